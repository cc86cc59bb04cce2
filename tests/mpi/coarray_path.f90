! SPDX-License-Identifier: BSD-3-Clause
! coarray_path FOLDER [small] [die|early FILE] - one coarray has its files in a folder of its own; each run adds one to all.
include 'ummap_coarray.f90'
program coarray_path
	use ummap_coarray
	implicit none
	integer, parameter :: n = 30000
	integer :: runs[*] = 0, large(n)[*] = 3, far(n)[*] = 5
	character(500) :: folder
	character(10) :: how
	integer :: i

	call get_command_argument(1, folder)
	call get_command_argument(2, how)
	if (any(large /= 3 + runs) .or. any(far /= 5 + runs)) error stop 'this is of another run'
	if (how == 'small') call pcaf_config(runs, .true., folder)
	! What is not in any file yet goes along.
	if (how /= 'early') far(1) = -1
	call pcaf_config(far, .true., folder)
	if (how == 'early') call die()
	if (far(1) /= -1 .or. any(far(2:) /= 5 + runs)) error stop 'the contents have not come along'
	far(1) = 5 + runs
	do i = 1, num_images()
		if (far(n)[i] /= 5 + runs) error stop 'another image has something else'
	end do
	sync all
	runs = runs + 1
	large = large + 1
	far(:)[mod(this_image(), num_images()) + 1] = 5 + runs
	sync all
	! Without this, no other run sees it.
	far = -2
	if (how == 'die') call die()
	far = 5 + runs
	sync all
	if (this_image() == 1) print '(a,i0)', 'run ', runs
contains
	! A file says so: MPICH may lose what is said right before it ends all images, or mix what several say.
	subroutine die()
		character(500) :: told
		integer :: unit

		call get_command_argument(3, told)
		open (newunit=unit, file=told)
		close (unit)
		error stop
	end subroutine
end program
