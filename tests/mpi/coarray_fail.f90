! SPDX-License-Identifier: BSD-3-Clause
! coarray_fail - the last image fails once at every twentieth step.
! coarray_fail error CODE - the last image ends with an error instead.
! coarray_fail stop [CODE] - all images store once and execute `stop`, image 1 first, the last one
! some time later.
program coarray_fail
	implicit none
	integer, parameter :: n = 20000
	integer :: step[*] = 0, tries[*] = 0
	real(8) :: total(n)[*] = 0
	character(10) :: argument, number
	integer :: code = 0

	call get_command_argument(1, argument)
	call get_command_argument(2, number)
	if (number /= '') read (number, *) code
	if (argument == 'stop') call store_and_stop
	tries = tries + 1
	sync all
	do while (step < 60)
		total = total + step
		step = step + 1
		sync all
		if (mod(step, 20) /= 0 .or. step == 60 .or. tries /= step / 20) cycle
		if (this_image() /= num_images()) cycle
		if (argument == 'error') error stop code
		fail image
	end do
	if (this_image() == 1) print '(3(a,i0))', 'steps ', step, ' total ', nint(sum(total) / n), &
		' tries ', tries
contains
	subroutine store_and_stop
		integer(8) :: now, first, rate

		call system_clock(first, rate)
		do
			call system_clock(now)
			if (now - first >= rate / 5 * this_image() / num_images()) exit
		end do
		step = step + 1
		total = step
		if (number == '') stop
		stop code
	end subroutine
end program
