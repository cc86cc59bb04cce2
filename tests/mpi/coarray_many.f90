! SPDX-License-Identifier: BSD-3-Clause
! coarray_many [FOLDER] - has more small coarrays than fit into the file for small coarrays. Each
! run adds one to all of them. The files of the last coarray are in FOLDER.
include 'ummap_coarray.f90'
program coarray_many
	use ummap_coarray
	implicit none
	integer, parameter :: n = 16000, many = 1054
	integer :: runs[*] = 0

	call add(1)
contains
	! Each level has a coarray. No level returns, because that would deallocate the coarray.
	recursive subroutine add(i)
		integer, intent(in) :: i
		integer, allocatable :: x(:)[:]
		character(500) :: folder

		allocate(x(n)[*])
		if (runs == 0) x = i
		if (any(x /= i + runs)) error stop 'the contents are of another run'
		x = x + 1
		if (i < many) call add(i + 1)
		call get_command_argument(1, folder)
		call pcaf_config(x, .true., folder)
		runs = runs + 1
		if (this_image() == 1) print '(a,i0)', 'run ', runs
		stop
	end subroutine
end program
