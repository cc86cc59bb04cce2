! SPDX-License-Identifier: BSD-3-Clause
! caf-stencil - the Stencil kernel of the Parallel Research Kernels with coarrays: a star of radius
! 2 over a grid of order x order. Each image has a strip of columns, and gets two columns of each
! neighbor in every iteration. The arithmetic and the check are those of the kernel.
program caf_stencil
	use caf_kit
	implicit none
	integer, parameter :: r = 2
	real(real64), allocatable :: a(:, :)[:], b(:, :)[:]
	real(real64) :: w(-r:r, -r:r), start, norm, active
	integer :: order, iterations, me, images, width, first, i, j, k, from, to
	integer :: iteration[*] = 0
	logical :: tell

	call kit_begin('usage: caf-stencil [--iterations N] [--order N] [--tell] ' // &
		'[--json FILE]' // nl // &
		'  --iterations N  iterations after the first one, which does not count (100)' &
		// nl // &
		'  --order N       a multiple of the number of images (2048)' // nl // &
		'  --tell          print each iteration' // nl // &
		'  --json FILE     add a line to FILE' // nl // '  --help')
	iterations = kit_number('--iterations', 100)
	order = kit_number('--order', 2048)
	tell = kit_flag('--tell')
	me = this_image()
	images = num_images()
	if (mod(order, images) /= 0 .or. order / images < r) &
		call kit_refuse('--order must be a multiple of the number of images')
	width = order / images
	first = (me - 1) * width
	w = 0
	do k = 1, r
		w(0, k) = 1 / real(2 * k * r, real64)
		w(k, 0) = w(0, k)
		w(0, -k) = -w(0, k)
		w(-k, 0) = -w(0, k)
	end do
	allocate(a(order, 1 - r:width + r)[*], b(order, width)[*])
	if (iteration == 0) then
		do j = 1, width
			a(:, j) = [(real(i - 1 + first + j - 1, real64), i = 1, order)]
		end do
		b = 0
	end if
	from = merge(r + 1, 1, me == 1)
	to = merge(width - r, width, me == images)
	sync all
	start = seconds()
	do while (iteration <= iterations)
		if (iteration == 1) start = seconds()
		if (me > 1) a(:, 1 - r:0) = a(:, width - r + 1:width)[me - 1]
		if (me < images) a(:, width + 1:width + r) = a(:, 1:r)[me + 1]
		sync all
		do j = from, to
			do i = r + 1, order - r
				b(i, j) = b(i, j) + &
					w(0, -2) * a(i, j - 2) + w(0, -1) * a(i, j - 1) + &
					w(-2, 0) * a(i - 2, j) + w(-1, 0) * a(i - 1, j) + &
					w(1, 0) * a(i + 1, j) + w(2, 0) * a(i + 2, j) + &
					w(0, 1) * a(i, j + 1) + w(0, 2) * a(i, j + 2)
			end do
		end do
		a(:, 1:width) = a(:, 1:width) + 1
		iteration = iteration + 1
		sync all
		if (tell .and. me == 1) call print_iteration
	end do
	start = seconds() - start
	norm = sum(abs(b(r + 1:order - r, from:to)))
	call co_sum(norm)
	active = real(order - 2 * r, real64)**2
	norm = norm / active
	if (abs(norm - 2 * real(iterations + 1, real64)) > 1e-8_real64) then
		if (me == 1) print '(a,f0.10,a,i0)', 'ERROR: the L1 norm is ', norm, &
			', and should be ', 2 * (iterations + 1)
		error stop
	end if
	if (me == 1) print '(a)', 'Solution validates'
	call kit_report('"kernel":"stencil"', 'mflops', &
		1e-6_real64 * (2 * (4 * r + 1) + 1) * active * iterations / start)
contains
	subroutine print_iteration
		use, intrinsic :: iso_fortran_env, only: output_unit

		print '(a,i0)', 'iteration ', iteration
		flush output_unit
	end subroutine
end program
