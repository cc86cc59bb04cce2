! SPDX-License-Identifier: BSD-3-Clause
! coarray_path FOLDER [small] [die|early FILE] - the files of one coarray are in FOLDER. Each run
! adds one to all coarrays.
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
	if (any(large /= 3 + runs) .or. any(far /= 5 + runs)) error stop 'these are of another run'
	if (how == 'small') call pcaf_config(runs, .true., folder)
	! Contents that are in no file yet move, too.
	if (how /= 'early') far(1) = -1
	call pcaf_config(far, .true., folder)
	if (how == 'early') call die()
	if (far(1) /= -1 .or. any(far(2:) /= 5 + runs)) error stop 'the contents have not moved'
	far(1) = 5 + runs
	do i = 1, num_images()
		if (far(n)[i] /= 5 + runs) error stop 'another image has other contents'
	end do
	sync all
	runs = runs + 1
	large = large + 1
	far(:)[mod(this_image(), num_images()) + 1] = 5 + runs
	sync all
	! If the run dies here, the next one does not see this.
	far = -2
	if (how == 'die') call die()
	far = 5 + runs
	sync all
	if (this_image() == 1) print '(a,i0)', 'run ', runs
contains
	! Makes a file, because MPICH may lose or mix output that precedes the end of all images.
	subroutine die()
		character(500) :: told
		integer :: unit

		call get_command_argument(3, told)
		open (newunit=unit, file=told)
		close (unit)
		error stop
	end subroutine
end program
