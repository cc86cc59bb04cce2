! SPDX-License-Identifier: BSD-3-Clause
! caf-transpose - the Transpose kernel of the Parallel Research Kernels with coarrays. Each image
! has a strip of columns of both matrices, and gets a block from every other image. The arithmetic
! and the check are those of the kernel.
program caf_transpose
	use caf_kit
	implicit none
	real(real64), allocatable :: a(:, :)[:], b(:, :)[:], block(:, :)
	real(real64) :: start, error, want
	integer :: order, iterations, me, images, width, first, first_row, i, j, k, q
	integer :: iteration[*] = 0

	call kit_begin('usage: caf-transpose [--iterations N] [--order N] [--json FILE]' // nl // &
		'  --iterations N  iterations after the first, which is not counted (20)' // nl // &
		'  --order N       a multiple of the number of images (1024)' // nl // &
		'  --json FILE     add a line to FILE' // nl // '  --help')
	iterations = kit_number('--iterations', 20)
	order = kit_number('--order', 1024)
	me = this_image()
	images = num_images()
	if (mod(order, images) /= 0) &
		call kit_refuse('--order must be a multiple of the number of images')
	width = order / images
	first = (me - 1) * width
	allocate(a(order, width)[*], b(order, width)[*], block(width, width))
	if (iteration == 0) then
		do j = 1, width
			a(:, j) = [(real(order, real64) * (first + j - 1) + i - 1, i = 1, order)]
		end do
		b = 0
	end if
	sync all
	start = seconds()
	do while (iteration <= iterations)
		if (iteration == 1) start = seconds()
		do k = 0, images - 1
			q = mod(me - 1 + k, images)
			if (k == 0) then
				block = a(first + 1:first + width, :)
			else
				block = a(first + 1:first + width, 1:width)[q + 1]
			end if
			first_row = q * width + 1
			b(first_row:first_row + width - 1, :) = &
				b(first_row:first_row + width - 1, :) + transpose(block)
		end do
		sync all
		a = a + 1
		iteration = iteration + 1
		sync all
	end do
	start = seconds() - start
	error = 0
	want = real(iterations + 1, real64) * iterations / 2
	do j = 1, width
		do i = 1, order
			error = error + abs(b(i, j) - want - &
				(real(order, real64) * (i - 1) + first + j - 1) * (iterations + 1))
		end do
	end do
	call co_sum(error)
	if (error > 1e-8_real64) then
		if (me == 1) print '(a,es12.3)', 'ERROR: the sum of errors is ', error
		error stop
	end if
	if (me == 1) print '(a)', 'Solution validates'
	call kit_report('"kernel":"transpose"', 'mb_s', &
		2 * 8 * real(order, real64)**2 * iterations / start / 1e6_real64)
end program
