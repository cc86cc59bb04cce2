! SPDX-License-Identifier: BSD-3-Clause
! coarray_calls FILE - a program that is linked with the library, before libcaf, and calls it.
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
	if (pcaf_restarted() .neqv. runs > 0) error stop 'pcaf_restarted returns the wrong value'
	if (runs > 0 .and. pcaf_epoch() == 0) error stop 'pcaf_epoch returns 0 in a restarted run'
	if (any(field /= runs)) error stop 'the field is of another run'
	if (any(scratch /= 4) .or. mark /= 5) error stop 'a coarray was kept that should not be'
	before = pcaf_epoch()
	sync all
	runs = runs + 1
	field = field + 1
	scratch = -1
	mark = -1
	part = 7
	call pcaf_config(part, .false.)
	call pcaf_config(part, .true.)
	! With a PCAF_SYNCFREQ of hours, `sync all` does not reach storage, and changes are lost.
	call pcaf_sync()
	if (pcaf_epoch() <= before) error stop 'no sync has reached storage'
	before = pcaf_epoch()
	field = -1
	sync all
	if (pcaf_epoch() /= before) error stop 'a sync has reached storage too early'
	! Output may be lost when MPI ends the job, so image 1 writes a file, and the others wait.
	if (this_image() == 1) then
		call get_command_argument(1, report)
		open (newunit=unit, file=report)
		write (unit, '(a,i0)') 'run ', runs
		close (unit)
	end if
	sync all
	error stop 'the end of the test'
end program
