! SPDX-License-Identifier: BSD-3-Clause
! neighbour - checkpoints at a neighboring image. The working array stays in memory. Every tenth
! step, each image puts a copy into a coarray of the next image, which is kept in files. After
! images have died, a restart reads the copies from there.
!
!     caf -I/usr/local/include neighbour.f90 -Wl,--no-as-needed -lummap-mpi-openmpi -o neighbour
!     ummap cafrun --path /tmp/neighbour --restarts 5 -n 4 ./neighbour
include 'ummap_coarray.f90'
program neighbour
	use ummap_coarray, only: pcaf_config
	implicit none
	integer, parameter :: n = 50000, every = 10
	real(8) :: work(n)[*]                            ! in memory
	real(8) :: copy(n, 0:1)[*]                       ! the last two copies of the previous image
	integer :: saved[*] = 0                          ! the step of the newer copy
	integer :: step, steps, next, i
	character(20) :: argument

	call pcaf_config(work, .false.)
	call get_command_argument(1, argument)
	steps = 400
	if (argument /= '') read (argument, *) steps
	next = mod(this_image(), num_images()) + 1
	work = [(this_image() + i * 1d-3, i = 1, n)]
	if (saved > 0) work = copy(:, mod(saved / every, 2))[next]
	do step = saved + 1, steps
		work = work * 0.999d0 + step
		if (mod(step, every) /= 0) cycle
		copy(:, mod(step / every, 2))[next] = work
		sync all
		saved = step
		sync all
	end do
	call report
contains
	subroutine report
		real(8) :: total

		total = sum(work)
		call co_sum(total)
		if (this_image() == 1) print '(a, i0, a, f0.3)', 'after ', steps, ' steps: ', total
	end subroutine
end program
