! SPDX-License-Identifier: BSD-3-Clause
! fortran08 - storage windows by the module mpi_f08: MPI_Win_create of memory from MPI_Alloc_mem.
! Each rank creates its window again, which must have the data of the previous rank.
program fortran08
	use, intrinsic :: iso_c_binding
	use mpi_f08
	implicit none
	integer, parameter :: n = 100000
	character(len=256) :: folder
	integer :: rank, ranks, i, pass, provided
	integer(kind=mpi_address_kind) :: bytes
	type(mpi_info) :: info
	type(mpi_win) :: win
	type(c_ptr) :: base
	integer, pointer :: words(:)
	integer :: mine(n)

	call mpi_init_thread(mpi_thread_funneled, provided)
	call mpi_comm_rank(mpi_comm_world, rank)
	call mpi_comm_size(mpi_comm_world, ranks)
	call get_environment_variable('UMMAP_TEST_FOLDER', folder)
	bytes = 4 * n
	call mpi_info_create(info)
	call mpi_info_set(info, 'alloc_type', 'storage')
	call mpi_info_set(info, 'storage_alloc_filename', trim(folder) // '/part.%r')
	do pass = 1, 4
		if (pass < 3) then
			call mpi_win_allocate(bytes, 4, info, mpi_comm_world, base, win)
			call c_f_pointer(base, words, [n])
		else
			call mpi_alloc_mem(bytes, info, base)
			call c_f_pointer(base, words, [n])
			call mpi_win_create(words, bytes, 4, mpi_info_null, mpi_comm_world, win)
		end if
		if (pass > 1) then
			if (any(words /= pass - 1 + before() * n + [(i, i = 1, n)])) &
				error stop 'not what was there'
			! Other ranks put without a call of this rank.
			call mpi_barrier(mpi_comm_world)
		end if
		mine = pass + rank * n + [(i, i = 1, n)]
		call mpi_win_lock(mpi_lock_shared, mod(rank + 1, ranks), 0, win)
		call mpi_put(mine, n, mpi_integer, mod(rank + 1, ranks), 0_mpi_address_kind, n, &
			mpi_integer, win)
		call mpi_win_unlock(mod(rank + 1, ranks), win)
		call mpi_barrier(mpi_comm_world)
		call mpi_win_sync(win)
		call mpi_win_free(win)
		if (pass >= 3) call mpi_free_mem(words)
		call mpi_barrier(mpi_comm_world)
	end do
	call mpi_info_free(info)
	call mpi_finalize()
contains
	integer function before()
		before = mod(rank + ranks - 1, ranks)
	end function
end program
