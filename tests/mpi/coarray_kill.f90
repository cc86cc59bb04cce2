! SPDX-License-Identifier: BSD-3-Clause
! coarray_kill LAST - makes steps until LAST. Each step ends with a `sync all`, after which image 1
! prints it. coarray_kill.sh kills the program many times: the contents of the next run must be of
! one step, and not of an earlier one than the last step that was printed.
program coarray_kill
	use, intrinsic :: iso_fortran_env, only: output_unit
	implicit none
	integer, parameter :: n = 40000
	integer :: step[*] = 0
	integer :: large(n)[*] = 0
	integer, allocatable :: late(:)[:], brief(:)[:]
	integer :: i, last
	character(20) :: argument

	call get_command_argument(1, argument)
	read (argument, *) last
	allocate(late(n)[*], source=0)
	do i = 1, num_images()
		if (step[i] /= step) error stop 'images are of different steps'
	end do
	if (any(large /= step)) error stop 'the static coarray is of another step'
	if (any(late /= step)) error stop 'the allocated coarray is of another step'
	if (this_image() == 1) call say('from')
	sync all
	do i = step + 1, last
		step = i
		large = i
		late(:)[mod(this_image(), num_images()) + 1] = i
		if (mod(i, 3) == 0) then
			allocate(brief(n)[*])
			brief = i
			deallocate(brief)
		end if
		sync all
		if (this_image() == 1) call say('step')
	end do
contains
	subroutine say(what)
		character(*), intent(in) :: what

		print '(a,1x,i0)', what, step
		flush output_unit
	end subroutine
end program
