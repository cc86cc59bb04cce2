! SPDX-License-Identifier: BSD-3-Clause
! The common parts of the benchmarks of coarrays: arguments, times and reports. The same program has
! its coarrays in memory, or in files with ummap-cafrun(1).
module caf_kit
	use, intrinsic :: iso_fortran_env, only: int64, real64, output_unit, error_unit
	implicit none
	private
	public :: int64, real64, nl, seconds
	public :: kit_begin, kit_refuse, kit_number, kit_flag, kit_report

	character, parameter :: nl = new_line('a')
	character(1000) :: json = ''
contains
	real(real64) function seconds()
		integer(int64) :: count, rate

		call system_clock(count, rate)
		seconds = real(count, real64) / real(rate, real64)
	end function

	! Handles --help, and --json FILE, to which kit_report adds its lines.
	subroutine kit_begin(usage)
		character(*), intent(in) :: usage
		character(1000) :: argument
		integer :: i

		do i = 1, command_argument_count()
			call get_command_argument(i, argument)
			if (argument == '--json') call get_command_argument(i + 1, json)
			if (argument /= '--help') cycle
			if (this_image() == 1) print '(a)', usage
			! `stop` of OpenCoarrays aborts the job.
			call exit(0)
		end do
	end subroutine

	! Prints an error message once, and ends all images. `error stop` would abort the job, and
	! mpirun could lose the message.
	subroutine kit_refuse(sentence)
		character(*), intent(in) :: sentence

		if (this_image() == 1) then
			write (error_unit, '(a)') sentence
			flush error_unit
		end if
		sync all
		call exit(1)
	end subroutine

	logical function kit_flag(name)
		character(*), intent(in) :: name
		character(1000) :: argument
		integer :: i

		kit_flag = .false.
		do i = 1, command_argument_count()
			call get_command_argument(i, argument)
			kit_flag = kit_flag .or. argument == name
		end do
	end function

	! The value of an option, or what it is without that.
	integer function kit_number(name, default)
		character(*), intent(in) :: name
		integer, intent(in) :: default
		character(1000) :: argument
		integer :: i, error

		kit_number = default
		do i = 1, command_argument_count() - 1
			call get_command_argument(i, argument)
			if (argument /= name) cycle
			call get_command_argument(i + 1, argument)
			read (argument, *, iostat=error) kit_number
			if (error == 0 .and. kit_number > 0) return
			call kit_refuse(name // ' must be a number of at least 1, not ' // &
				trim(argument))
		end do
	end function

	! A line of JSON, of image 1.
	subroutine kit_report(what, name, value)
		character(*), intent(in) :: what, name
		real(real64), intent(in) :: value
		integer :: unit

		if (this_image() /= 1) return
		write (output_unit, '(3a,es14.6)') what, ' ', name, value
		flush output_unit
		if (json == '') return
		open (newunit=unit, file=trim(json), position='append')
		write (unit, '(5a,es14.6,a)') '{', what, ',"', name, '":', value, '}'
		close (unit)
	end subroutine
end module
