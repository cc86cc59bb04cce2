! SPDX-License-Identifier: BSD-3-Clause
! coarray_bad STEPS [N [agree]] - so many steps, each of which changes all of a coarray of N elements, and is written down by image
! 1. What there is of an earlier run has to be of one step, with `agree` of the same one at all images.
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
	if (this_image() == 1) print '(3(a,i0))', 'from ', step, ' same ', nint(same(1)), ' field ', field(1)
	if (any(same /= same(1)) .or. any(field /= field(1))) error stop 'not of one step'
	if (argument == 'agree' .and. any([(step[i] /= step .or. same(1)[i] /= step .or. field(1)[i] /= step, i = 1, num_images())])) &
		error stop 'images are of different steps'
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
