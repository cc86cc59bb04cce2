! SPDX-License-Identifier: BSD-3-Clause
! fortran_commit - ummpi_io_split and ummpi_commit_begin in Fortran: the last rank writes the
! windows of the others, whose files have the contents of the moment of each commit.
program fortran_commit
	use, intrinsic :: iso_c_binding
	use mpi
	implicit none
	integer, parameter :: n = 30000
	integer(c_intptr_t) :: commit
	integer :: compute, info, window, rank, code, provided, round, done
	integer(mpi_address_kind) :: bytes
	type(c_ptr) :: base
	integer(c_int64_t), pointer :: words(:)
	character(len=256) :: folder

	call get_environment_variable('UMMAP_TEST_FOLDER', folder)
	call mpi_init_thread(mpi_thread_single, provided, code)
	call ummpi_io_split(mpi_comm_world, 1, compute, code)
	if (code /= mpi_success) stop 2
	if (compute /= mpi_comm_null) then
		call compute_rounds()
		call mpi_comm_free(compute, code)
	end if
	call mpi_finalize(code)
contains
	subroutine compute_rounds()
		call mpi_comm_rank(compute, rank, code)
		call mpi_info_create(info, code)
		call mpi_info_set(info, 'alloc_type', 'storage', code)
		call mpi_info_set(info, 'storage_alloc_filename', &
			trim(folder) // '/fortran.%r', code)
		call mpi_info_set(info, 'storage_alloc_driver', 'ioranks+posix:', code)
		bytes = 8 * n
		call mpi_win_allocate(bytes, 8, info, compute, base, window, code)
		if (code /= mpi_success) stop 3
		call mpi_info_free(info, code)
		call c_f_pointer(base, words, [n])
		do round = 1, 4
			words = round * 1000 + rank
			call ummpi_commit_begin([window], 1, compute, commit, code)
			if (code /= mpi_success) stop 4
			words = 0
			if (mod(round, 2) == 0) then
				call ummpi_commit_wait(commit, code)
			else
				done = 0
				do while (done == 0)
					call ummpi_commit_test(commit, done, code)
				end do
			end if
			if (code /= mpi_success .or. commit /= 0) stop 5
			call check_file(int(round * 1000 + rank, c_int64_t))
		end do
		call mpi_win_free(window, code)
	end subroutine

	subroutine check_file(word)
		integer(c_int64_t), intent(in) :: word
		integer(c_int64_t), allocatable :: stored(:)
		character(len=8) :: number
		integer :: unit

		write (number, '(i0)') rank
		open (newunit=unit, file=trim(folder) // '/fortran.' // trim(number), &
			access='stream', form='unformatted', action='read', status='old')
		allocate (stored(n))
		read (unit) stored
		close (unit)
		if (any(stored /= word)) stop 6
	end subroutine
end program
