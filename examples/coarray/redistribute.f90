! SPDX-License-Identifier: BSD-3-Clause
! redistribute - continues with another number of images: `redistribute [STEPS]`. Each image has a
! part of a ring of cells. If there is an earlier run, with any number of images, each image reads
! the parts that contain its cells into x_tmp.
!
!     caf -I/usr/local/include redistribute.f90 -Wl,--no-as-needed -lummap-mpi-openmpi \
!         -o redistribute
!     ummap cafrun --path /tmp/four -n 4 ./redistribute 200
!     ummap cafrun --path /tmp/three --recover /tmp/four -n 3 ./redistribute 400
include 'ummap_coarray.f90'
program redistribute
	use iso_c_binding, only: c_int64_t
	use ummap_coarray, only: pcaf_images, pcaf_open_image
	implicit none
	integer, parameter :: cells = 120000 ! divisible by each number of images up to six
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
	! A run that died before it had read the whole earlier run begins again.
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
		integer :: image, its_share, first, before_it, from, to

		first = (me - 1) * share                   ! number of cells of lower images
		x = [(modulo(7919_c_int64_t * (first + i), 1000003_c_int64_t), i = 1, share)]
		if (pcaf_images() == 0) return
		its_share = cells / pcaf_images()
		allocate(x_tmp(its_share))
		do image = first / its_share + 1, (first + share - 1) / its_share + 1
			call pcaf_open_image(x, image, x_tmp)
			from = max(first, (image - 1) * its_share)
			to = min(first + share, image * its_share)
			before_it = (image - 1) * its_share
			x(from - first + 1:to - first) = x_tmp(from - before_it + 1:to - before_it)
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
