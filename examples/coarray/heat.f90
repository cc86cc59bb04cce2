! SPDX-License-Identifier: BSD-3-Clause
! heat - heat that spreads over a plate, of which each image has a strip: `heat [STEPS]`. The
! program calls nothing of libummap. All of its state is in coarrays, so under ummap-cafrun(1) it
! continues from its last sync after it was killed:
!
!     caf heat.f90 -o heat
!     ummap cafrun --path /tmp/heat --restarts 5 -n 4 ./heat
program heat
	implicit none
	integer, parameter :: rows = 200, columns = 100
	real(8) :: plate(0:rows + 1, 0:columns + 1, 0:1)[*] = 0    ! this step and the next one
	integer :: step[*] = 0
	integer :: steps, me, now
	character(20) :: argument

	call get_command_argument(1, argument)
	steps = 400
	if (argument /= '') read (argument, *) steps
	me = this_image()
	if (step == 0 .and. me == 1) plate(:, 0, :) = 100
	sync all
	do while (step < steps)
		now = mod(step, 2)
		if (me > 1) plate(1:rows, 0, now) = plate(1:rows, columns, now)[me - 1]
		if (me < num_images()) &
			plate(1:rows, columns + 1, now) = plate(1:rows, 1, now)[me + 1]
		plate(1:rows, 1:columns, 1 - now) = plate(1:rows, 1:columns, now) + 0.2d0 * ( &
			plate(0:rows - 1, 1:columns, now) + plate(2:rows + 1, 1:columns, now) + &
			plate(1:rows, 0:columns - 1, now) + plate(1:rows, 2:columns + 1, now) - &
			4 * plate(1:rows, 1:columns, now))
		step = step + 1
		sync all
	end do
	call report
contains
	subroutine report
		real(8) :: total

		total = sum(plate(1:rows, 1:columns, mod(step, 2)))
		call co_sum(total)
		if (me == 1) print '(a, i0, a, f0.9)', 'after ', step, ' steps: ', total
	end subroutine
end program
