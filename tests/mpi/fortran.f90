! SPDX-License-Identifier: BSD-3-Clause
! fortran - storage windows by mpif.h: libgfortran has its own handler for SIGSEGV, and calls have
! other names than in C. Each rank creates its window again, which must have the data of the
! previous rank.
program fortran
	use, intrinsic :: iso_c_binding
	implicit none
	include 'mpif.h'
	integer, parameter :: n = 100000
	character(len=256) :: folder
	integer :: rank, ranks, ierr, i, code, info, win, length, pass
	integer(kind=mpi_address_kind) :: bytes, flavor, address
	type(c_ptr) :: base
	logical :: found
	integer, pointer :: words(:)
	integer :: mine(n)
	character(len=mpi_max_error_string) :: text

	call mpi_init(ierr)
	call mpi_comm_rank(mpi_comm_world, rank, ierr)
	call mpi_comm_size(mpi_comm_world, ranks, ierr)
	call get_environment_variable('UMMAP_TEST_FOLDER', folder)
	bytes = 4 * n
	do pass = 1, 2
		call make_info
		call mpi_win_allocate(bytes, 4, info, mpi_comm_world, address, win, ierr)
		call mpi_info_free(info, ierr)
		base = transfer(address, base)
		call c_f_pointer(base, words, [n])
		if (pass == 2 .and. any(words /= before() * n + [(i, i = 1, n)])) &
			error stop 'not what was there'
		call mpi_win_get_attr(win, mpi_win_create_flavor, flavor, found, ierr)
		if (.not. found .or. flavor /= mpi_win_flavor_allocate) error stop 'the flavor'
		mine = rank * n + [(i, i = 1, n)]
		call mpi_win_lock(mpi_lock_shared, mod(rank + 1, ranks), 0, win, ierr)
		call mpi_put(mine, n, mpi_integer, mod(rank + 1, ranks), 0_mpi_address_kind, n, &
			mpi_integer, win, ierr)
		call mpi_win_unlock(mod(rank + 1, ranks), win, ierr)
		call mpi_barrier(mpi_comm_world, ierr)
		if (any(words /= before() * n + [(i, i = 1, n)])) error stop 'not what was put'
		call mpi_win_sync(win, ierr)
		if (ierr /= mpi_success) error stop 'mpi_win_sync'
		call mpi_win_free(win, ierr)
		if (ierr /= mpi_success .or. win /= mpi_win_null) error stop 'mpi_win_free'
	end do

	call mpi_comm_set_errhandler(mpi_comm_world, mpi_errors_return, ierr)
	call make_info
	call mpi_info_set(info, 'storage_alloc_factor', '2', ierr)
	call mpi_win_allocate(bytes, 4, info, mpi_comm_world, address, win, code)
	call mpi_error_string(code, text, length, ierr)
	if (code /= mpi_err_info_value .or. index(text, 'storage_alloc_factor') == 0) &
		error stop 'the error'
	call mpi_info_free(info, ierr)
	call mpi_finalize(ierr)
contains
	integer function before()
		before = mod(rank + ranks - 1, ranks)
	end function

	subroutine make_info
		call mpi_info_create(info, ierr)
		call mpi_info_set(info, 'alloc_type', 'storage', ierr)
		call mpi_info_set(info, 'storage_alloc_filename', trim(folder) // '/part.%r', ierr)
	end subroutine
end program
