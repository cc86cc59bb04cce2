! SPDX-License-Identifier: BSD-3-Clause
! coarray_bad STEPS [N [agree]] - makes steps. Each step changes a whole coarray of N elements, and
! is printed by image 1. The contents of an earlier run must be of one step; with `agree`, they must
! be of the same step at all images.
program coarray_bad
	use, intrinsic :: iso_fortran_env, only: output_unit
	implicit none
	integer :: step[*] = 0, n, last, i
	real(8) :: same(30000)[*] = 0
	integer, allocatable :: field(:)[:]
	character(20) :: argument

	call get_command_argument(1, argument)
	read (argument, *) last
	n = 40000
	call get_command_argument(2, argument)
	if (argument /= '') read (argument, *) n
	call get_command_argument(3, argument)
	allocate(field(n)[*], source=0)
	if (this_image() == 1) print '(3(a,i0))', 'from ', step, ' same ', nint(same(1)), &
		' field ', field(1)
	if (any(same /= same(1)) .or. any(field /= field(1))) error stop 'several steps'
	if (argument == 'agree') then
		do i = 1, num_images()
			if (step[i] /= step .or. same(1)[i] /= step .or. field(1)[i] /= step) then
				error stop 'images are of different steps'
			end if
		end do
	end if
	sync all
	last = step + last
	do while (step < last)
		step = step + 1
		same = step
		field = step
		sync all
		if (this_image() == 1) print '(a,i0)', 'step ', step
		flush output_unit
	end do
end program
