! SPDX-License-Identifier: BSD-3-Clause
! fortran_cached - a file with an MPI-IO cache in Fortran: written data is not in the file before it
! is closed, and all of it afterwards. The program uses the module mpi_f08; the older modules of MPI
! call the same entry points.
program fortran_cached
	use mpi_f08
	implicit none
	integer, parameter :: n = 1000
	character(len=256) :: folder, found
	integer :: rank, ranks, i, length
	integer :: words(n), again(n)
	integer(kind=mpi_offset_kind) :: at, bytes
	logical :: set, atomic
	type(mpi_file) :: file
	type(mpi_info) :: info
	type(mpi_status) :: done
	type(mpi_request) :: request
	type(mpi_datatype) :: turn, items

	call mpi_init()
	call mpi_comm_rank(mpi_comm_world, rank)
	call mpi_comm_size(mpi_comm_world, ranks)
	call get_environment_variable('UMMAP_TEST_FOLDER', folder)
	call mpi_info_create(info)
	call mpi_info_set(info, 'pmem_path', trim(folder))
	call mpi_info_set(info, 'pmem_size', '4M')
	call mpi_file_open(mpi_comm_world, trim(folder) // '/far', &
		mpi_mode_rdwr + mpi_mode_create, info, file)
	call mpi_info_free(info)
	call mpi_file_get_info(file, info)
	call mpi_info_get(info, 'pmem_path', 255, found, set)
	! MPICH does not initialize the rest of the string.
	if (.not. set .or. found(1:len_trim(folder)) /= folder) error stop 'the file has no cache'
	call mpi_file_set_atomicity(file, .true.)
	call mpi_file_get_atomicity(file, atomic)
	if (.not. atomic) error stop 'the file is not in atomic mode'
	call mpi_file_set_atomicity(file, .false.)
	! Blocks of ten words of all ranks in turn.
	call mpi_type_contiguous(10, mpi_integer, items)
	call mpi_type_create_resized(items, 0_mpi_address_kind, int(40 * ranks, &
		mpi_address_kind), turn)
	call mpi_type_commit(turn)
	call mpi_file_set_view(file, int(40 * rank, mpi_offset_kind), mpi_integer, turn, &
		'native', mpi_info_null)
	words = [(i * ranks + rank, i = 1, n)]
	call mpi_file_write_all(file, words(1:n / 2), n / 2, mpi_integer, done)
	call mpi_file_iwrite_all(file, words(n / 2 + 1:n), n / 2, mpi_integer, request)
	call mpi_wait(request, done)
	call mpi_get_count(done, mpi_integer, length)
	if (length /= n / 2) error stop 'not all was written'
	call mpi_file_get_position(file, at)
	if (at /= n) error stop 'the pointer is elsewhere'
	call mpi_barrier(mpi_comm_world)
	inquire(file=trim(folder) // '/far', size=length)
	if (length > 0) error stop 'it was written past the cache'
	call mpi_file_get_size(file, bytes)
	if (bytes /= 4 * n * ranks) error stop 'the size is wrong'
	call mpi_file_seek(file, 0_mpi_offset_kind, mpi_seek_set)
	call mpi_file_iread_all(file, again, n, mpi_integer, request)
	call mpi_wait(request, done)
	if (any(again /= words)) error stop 'not what was written'
	call mpi_file_sync(file)
	call mpi_file_close(file)
	call mpi_file_open(mpi_comm_world, trim(folder) // '/far', mpi_mode_rdonly, &
		mpi_info_null, file)
	call mpi_file_set_view(file, int(40 * rank, mpi_offset_kind), mpi_integer, turn, &
		'native', mpi_info_null)
	again = 0
	call mpi_file_read_all(file, again, n, mpi_integer, done)
	if (any(again /= words)) error stop 'not what was written, in the file'
	call mpi_file_close(file)
	call mpi_finalize()
end program
