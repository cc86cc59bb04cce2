! SPDX-License-Identifier: BSD-3-Clause
! fortran_fileio - MPI-IO in Fortran from and to windows of which most segments are not resident.
! The written data is read into another block, and compared.
program fortran_fileio
	use, intrinsic :: iso_c_binding
	use mpi_f08
	implicit none
	integer, parameter :: n = 40000, blocks = 32, calls = 8
	character(len=256) :: folder
	integer :: rank, ranks, call, provided, i, from, to
	integer(kind=mpi_offset_kind) :: at
	type(mpi_win) :: win
	type(mpi_file) :: file
	type(mpi_status) :: done
	type(mpi_request) :: request
	integer, pointer :: words(:, :)

	call mpi_init_thread(mpi_thread_funneled, provided)
	call mpi_comm_rank(mpi_comm_world, rank)
	call mpi_comm_size(mpi_comm_world, ranks)
	call get_environment_variable('UMMAP_TEST_FOLDER', folder)
	call open_window()
	call mpi_file_open(mpi_comm_world, trim(folder) // '/io', &
		mpi_mode_rdwr + mpi_mode_create, mpi_info_null, file)
	do call = 1, calls
		from = 2 * call - 1
		to = 2 * call
		at = int(4 * n, mpi_offset_kind) * (ranks * call + rank)
		words(:, from) = [(i * call + rank, i = 1, n)]
		call leave()
		call write_block(words(:, from))
		call mpi_file_sync(file)
		call mpi_barrier(mpi_comm_world)
		call leave()
		call read_block(words(:, to))
		if (any(words(:, to) /= [(i * call + rank, i = 1, n)])) &
			error stop 'not what was written'
	end do
	call mpi_file_close(file)
	call mpi_win_free(win)
	call mpi_finalize()
contains
	subroutine open_window()
		integer(kind=mpi_address_kind) :: bytes
		type(mpi_info) :: info
		type(c_ptr) :: base

		call mpi_info_create(info)
		call mpi_info_set(info, 'alloc_type', 'storage')
		call mpi_info_set(info, 'storage_alloc_filename', trim(folder) // '/window.%r')
		call mpi_info_set(info, 'storage_alloc_segsize', '64K')
		bytes = 4 * n * blocks
		call mpi_win_allocate(bytes, 4, info, mpi_comm_world, base, win)
		call c_f_pointer(base, words, [n, blocks])
		call mpi_info_free(info)
	end subroutine

	! Accesses to other blocks evict these blocks.
	subroutine leave()
		integer, volatile :: sum

		sum = 0
		do i = 2 * calls + 1, blocks
			sum = sum + words(1, i) + words(n / 2, i) + words(n, i)
		end do
	end subroutine

	subroutine move_to()
		call mpi_file_seek(file, at, mpi_seek_set)
	end subroutine

	subroutine write_block(block)
		integer, asynchronous :: block(n)

		select case (call)
		case (1)
			call mpi_file_write_at(file, at, block, n, mpi_integer, done)
		case (2)
			call mpi_file_write_at_all(file, at, block, n, mpi_integer, &
				mpi_status_ignore)
		case (3)
			call mpi_file_iwrite_at(file, at, block, n, mpi_integer, request)
			call mpi_wait(request, done)
		case (4)
			call mpi_file_write_at_all_begin(file, at, block, n, mpi_integer)
			call mpi_file_write_at_all_end(file, block, done)
		case (5)
			call move_to()
			call mpi_file_write(file, block, n, mpi_integer, done)
		case (6)
			call move_to()
			call mpi_file_write_all(file, block, n, mpi_integer, done)
		case (7)
			call move_to()
			call mpi_file_iwrite(file, block, n, mpi_integer, request)
			call mpi_wait(request, mpi_status_ignore)
		case (8)
			call move_to()
			call mpi_file_write_all_begin(file, block, n, mpi_integer)
			call mpi_file_write_all_end(file, block, mpi_status_ignore)
		end select
	end subroutine

	subroutine read_block(block)
		integer, asynchronous :: block(n)
		integer :: count

		count = n
		select case (call)
		case (1)
			call mpi_file_read_at(file, at, block, n, mpi_integer, done)
			call mpi_get_count(done, mpi_integer, count)
		case (2)
			call mpi_file_read_at_all(file, at, block, n, mpi_integer, &
				mpi_status_ignore)
		case (3)
			call mpi_file_iread_at(file, at, block, n, mpi_integer, request)
			call mpi_wait(request, done)
			call mpi_get_count(done, mpi_integer, count)
		case (4)
			call mpi_file_read_at_all_begin(file, at, block, n, mpi_integer)
			call mpi_file_read_at_all_end(file, block, done)
			call mpi_get_count(done, mpi_integer, count)
		case (5)
			call move_to()
			call mpi_file_read(file, block, n, mpi_integer, done)
			call mpi_get_count(done, mpi_integer, count)
		case (6)
			call move_to()
			call mpi_file_read_all(file, block, n, mpi_integer, done)
			call mpi_get_count(done, mpi_integer, count)
		case (7)
			call move_to()
			call mpi_file_iread(file, block, n, mpi_integer, request)
			call mpi_wait(request, mpi_status_ignore)
		case (8)
			call move_to()
			call mpi_file_read_all_begin(file, block, n, mpi_integer)
			call mpi_file_read_all_end(file, block, mpi_status_ignore)
		end select
		if (count /= n) error stop 'a status with another count'
	end subroutine
end program
