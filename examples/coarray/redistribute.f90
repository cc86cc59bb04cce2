! SPDX-License-Identifier: BSD-3-Clause
! redistribute - goes on with another number of images: `redistribute [STEPS]`. A ring of cells has a part at each image. Where an
! earlier run was, with whatever number of images, each image opens the parts of those that had its cells, as x_tmp.
!
!     caf -I/usr/local/include redistribute.f90 -Wl,--no-as-needed -lummap-mpi-openmpi -o redistribute
!     ummap-cafrun --path /tmp/four -n 4 ./redistribute 200
!     ummap-cafrun --path /tmp/three --recover /tmp/four -n 3 ./redistribute 400
include 'ummap_coarray.f90'
program redistribute
	use iso_c_binding, only: c_int64_t
	use ummap_coarray, only: pcaf_images, pcaf_open_image
	implicit none
	integer, parameter :: cells = 120000             ! a number that all numbers of images up to six divide
	integer(c_int64_t), allocatable :: x(:)[:]
	integer(c_int64_t) :: left
	integer :: step[*] = 0
	integer :: steps, me, share, before, i
	character(20) :: argument

	call get_command_argument(1, argument)
	steps = 400
	if (argument /= '') read (argument, *) steps
	me = this_image()
	share = cells / num_images()
	allocate(x(share)[*])
	! A run that has died before it had all of the other one begins again.
	if (step == 0) call begin
	sync all
	before = merge(me - 1, num_images(), me > 1)
	do while (step < steps)
		left = x(share)[before]
		sync all
		x = modulo(3 * x + [left, x(1:share - 1)] + step, 1000003_c_int64_t)
		step = step + 1
		sync all
	end do
	call report
contains
	subroutine begin
		integer(c_int64_t), allocatable :: x_tmp(:)
		integer :: image, its_share, first, from, to

		first = (me - 1) * share                   ! of all cells, those before this image's
		x = [(modulo(7919_c_int64_t * (first + i), 1000003_c_int64_t), i = 1, share)]
		if (pcaf_images() == 0) return
		its_share = cells / pcaf_images()
		allocate(x_tmp(its_share))
		do image = first / its_share + 1, (first + share - 1) / its_share + 1
			call pcaf_open_image(x, image, x_tmp)
			from = max(first, (image - 1) * its_share)
			to = min(first + share, image * its_share)
			x(from - first + 1:to - first) = x_tmp(from - (image - 1) * its_share + 1:to - (image - 1) * its_share)
		end do
		call pcaf_open_image(step, 1, step)
	end subroutine

	subroutine report
		integer(c_int64_t) :: total

		total = sum(x * [((me - 1) * share + i, i = 1, share)])
		call co_sum(total)
		if (me == 1) print '(a, i0, a, i0)', 'after ', step, ' steps: ', total
	end subroutine
end program
