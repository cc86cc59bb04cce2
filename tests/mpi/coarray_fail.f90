! SPDX-License-Identifier: BSD-3-Clause
! coarray_fail - the last image fails at every twentieth step, once. `coarray_fail error`: it ends with an error instead.
program coarray_fail
	implicit none
	integer, parameter :: n = 20000
	integer :: step[*] = 0, tries[*] = 0
	real(8) :: total(n)[*] = 0
	character(10) :: argument

	tries = tries + 1
	sync all
	call get_command_argument(1, argument)
	do while (step < 60)
		total = total + step
		step = step + 1
		sync all
		if (mod(step, 20) /= 0 .or. step == 60 .or. tries /= step / 20 .or. this_image() /= num_images()) cycle
		if (argument == 'error') error stop 7
		fail image
	end do
	if (this_image() == 1) print '(3(a,i0))', 'steps ', step, ' total ', nint(sum(total) / n), ' tries ', tries
end program
