! SPDX-License-Identifier: BSD-3-Clause
! coarray_calls FILE - a program that is linked with the library, before libcaf, and asks and says what of its coarrays is kept.
include 'ummap_coarray.f90'
program coarray_calls
	use, intrinsic :: iso_fortran_env, only: int64
	use ummap_coarray
	implicit none
	integer, parameter :: n = 30000
	integer :: runs[*] = 0, scratch(n)[*] = 4, mark[*] = 5
	integer, allocatable :: field(:)[:], part(:)[:]
	integer(int64) :: before
	integer :: unit
	character(500) :: report

	call pcaf_config(scratch, .false.)
	call pcaf_config(mark, .false.)
	allocate(field(n)[*], part(10)[*])
	if (.not. pcaf_restarted()) field = 0
	if (pcaf_restarted() .neqv. runs > 0) error stop 'whether it was restarted'
	if (runs > 0 .and. pcaf_epoch() == 0) error stop 'there is no epoch'
	if (any(field /= runs)) error stop 'the field is of another run'
	if (any(scratch /= 4) .or. mark /= 5) error stop 'what was not to be kept has come back'
	before = pcaf_epoch()
	sync all
	runs = runs + 1
	field = field + 1
	scratch = -1
	mark = -1
	part = 7
	call pcaf_config(part, .false.)
	call pcaf_config(part, .true.)
	! Not by a sync all, with a PCAF_SYNCFREQ of hours: what comes after is not there in the next run.
	call pcaf_sync()
	if (pcaf_epoch() <= before) error stop 'no sync has reached storage'
	before = pcaf_epoch()
	field = -1
	sync all
	if (pcaf_epoch() /= before) error stop 'this was not to reach storage'
	! What is printed may get lost when an MPI ends its job. Nobody ends it before this is written down.
	if (this_image() == 1) then
		call get_command_argument(1, report)
		open (newunit=unit, file=report)
		write (unit, '(a,i0)') 'run ', runs
		close (unit)
	end if
	sync all
	error stop 'as it has to'
end program
