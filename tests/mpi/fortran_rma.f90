! SPDX-License-Identifier: BSD-3-Clause
! fortran_rma - one-sided operations in Fortran on windows that ranks access without MPI, mixed with
! operations that MPI makes.
program fortran_rma
	use, intrinsic :: iso_c_binding
	use mpi_f08
	implicit none
	integer, parameter :: n = 40000, turns = 100
	character(len=256) :: folder
	character(len=8), parameter :: engines(3) = [character(len=8) :: 'kernel', 'segv', 'auto']
	character(len=8) :: engine
	logical :: near
	integer :: rank, ranks, next, pass, provided, i
	type(mpi_info) :: info
	type(mpi_win) :: win
	integer, pointer :: words(:)
	integer, external :: ummpi_op

	call mpi_init_thread(mpi_thread_funneled, provided)
	call mpi_comm_rank(mpi_comm_world, rank)
	call mpi_comm_size(mpi_comm_world, ranks)
	next = mod(rank + 1, ranks)
	call get_environment_variable('UMMAP_TEST_FOLDER', folder)
	near = are_near()
	do pass = 1, size(engines)
		engine = engines(pass)
		! OpenMPI cannot access this window from other machines.
		if (engine == 'segv' .and. .not. near) engine = 'auto'
		call open_window(trim(engine))
		if (engine == 'kernel' .and. near) call without_target()
		call locks()
		call requests()
		call operations()
		call fences()
		call mpi_win_free(win)
	end do
	call mpi_finalize()
contains
	! Whether ranks 0 and 1 are on one machine according to MPI; the result is equal at all
	! ranks.
	logical function are_near()
		type(mpi_comm) :: machine
		integer :: near(2)

		call mpi_comm_split_type(mpi_comm_world, mpi_comm_type_shared, 0, mpi_info_null, &
			machine)
		near = 0
		if (rank < 2) near(rank + 1) = 1
		call mpi_allreduce(mpi_in_place, near, 2, mpi_integer, mpi_sum, machine)
		call mpi_comm_free(machine)
		are_near = sum(near) == 2
		call mpi_bcast(are_near, 1, mpi_logical, 0, mpi_comm_world)
	end function

	subroutine open_window(engine)
		character(len=*), intent(in) :: engine
		integer(kind=mpi_address_kind) :: bytes
		type(c_ptr) :: base

		call mpi_info_create(info)
		call mpi_info_set(info, 'alloc_type', 'storage')
		call mpi_info_set(info, 'storage_alloc_filename', &
			trim(folder) // '/' // engine // '.%r')
		if (engine /= 'kernel') call mpi_info_set(info, 'storage_alloc_segsize', '16K')
		call mpi_info_set(info, 'storage_alloc_engine', engine)
		bytes = 4 * n
		call mpi_win_allocate(bytes, 4, info, mpi_comm_world, base, win)
		call c_f_pointer(base, words, [n])
		call mpi_info_free(info)
		words = rank
		call mpi_barrier(mpi_comm_world)
	end subroutine

	! A target that makes no MPI calls receives the data, and its answer is visible in its
	! memory.
	subroutine without_target()
		integer, pointer, volatile :: mine(:)
		integer(kind=mpi_address_kind) :: at
		integer :: value

		mine => words
		call mpi_win_lock_all(mpi_mode_nocheck, win)
		if (rank == 1) then
			do while (mine(1) /= 5)
			end do
			mine(2) = 6
		else if (rank == 0) then
			at = 0
			value = 5
			call mpi_put(value, 1, mpi_integer, 1, at, 1, mpi_integer, win)
			call mpi_win_flush(1, win)
			at = 1
			do while (value /= 6)
				call mpi_get(value, 1, mpi_integer, 1, at, 1, mpi_integer, win)
				call mpi_win_flush(1, win)
			end do
		end if
		call mpi_win_unlock_all(win)
		call mpi_barrier(mpi_comm_world)
	end subroutine

	! Direct copies and operations of MPI in turn see the results of each other after a flush.
	subroutine locks()
		integer(kind=mpi_address_kind) :: at
		integer :: value(2), one(2), old

		one = 1
		call mpi_win_lock_all(0, win)
		do i = 1, turns
			at = 2 * mod(i * 7919, n / 2)
			value = [i, -i]
			call mpi_put(value, 2, mpi_integer, next, at, 2, mpi_integer, win)
			call mpi_win_flush(next, win)
			call mpi_accumulate(one, 2, mpi_integer, next, at, 2, mpi_integer, &
				mpi_sum, win)
			call mpi_win_flush_all(win)
			value = 0
			call mpi_get(value, 2, mpi_integer, next, at, 2, mpi_integer, win)
			call mpi_win_flush_local(next, win)
			if (any(value /= [i + 1, 1 - i])) error stop 'a get has not what was added'
			call mpi_fetch_and_op(one, old, mpi_integer, next, at, mpi_sum, win)
			call mpi_win_flush(next, win)
			call mpi_compare_and_swap(one(1), old, value(1), mpi_integer, next, at, win)
			call mpi_win_flush_local_all(win)
			if (old /= i + 1 .or. value(1) /= i + 2) error stop 'atomics differ'
		end do
		call mpi_win_unlock_all(win)
		call mpi_barrier(mpi_comm_world)
	end subroutine

	! Epochs with an operation (UMMPI_OP).
	subroutine operations()
		integer(kind=mpi_address_kind) :: at
		integer :: mine(3), got(3)

		do i = 1, turns
			at = mod(i * 104729, n - 3)
			mine = [rank, i, -1]
			call mpi_win_lock(mpi_lock_exclusive, next, 0, win)
			call mpi_put(mine, 3, mpi_integer, next, at, 3, mpi_integer, win)
			call mpi_win_unlock(next, win)
			call mpi_win_lock(mpi_lock_shared, next, ummpi_op(mpi_sum%mpi_val), win)
			call mpi_put(mine, 3, mpi_integer, next, at, 3, mpi_integer, win)
			call mpi_win_flush(next, win)
			got = [5, 6, 7]
			call mpi_get(got, 3, mpi_integer, next, at, 3, mpi_integer, win)
			call mpi_win_unlock(next, win)
			if (any(got /= 2 * mine + [5, 6, 7])) &
				error stop 'an epoch with an operation has not added'
		end do
		call mpi_barrier(mpi_comm_world)
	end subroutine

	subroutine requests()
		integer(kind=mpi_address_kind) :: at
		integer :: mine(3), got(3)
		type(mpi_request) :: request

		do i = 1, turns
			at = mod(i * 104729, n - 3)
			mine = [rank, i, -1]
			call mpi_win_lock(mpi_lock_exclusive, next, 0, win)
			call mpi_rput(mine, 3, mpi_integer, next, at, 3, mpi_integer, win, request)
			call mpi_wait(request, mpi_status_ignore)
			call mpi_win_flush(next, win)
			call mpi_rget(got, 3, mpi_integer, next, at, 3, mpi_integer, win, request)
			call mpi_wait(request, mpi_status_ignore)
			call mpi_win_unlock(next, win)
			if (any(got /= mine)) error stop 'a request has not what was put'
		end do
		call mpi_barrier(mpi_comm_world)
	end subroutine

	subroutine fences()
		integer(kind=mpi_address_kind) :: zero
		integer, allocatable :: mine(:)

		allocate(mine(n))
		zero = 0
		do i = 1, 5
			mine = rank * n + i
			call mpi_win_fence(0, win)
			call mpi_put(mine, n, mpi_integer, next, zero, n, mpi_integer, win)
			call mpi_win_fence(0, win)
			if (any(words /= mod(rank + ranks - 1, ranks) * n + i)) &
				error stop 'a fence has not what was put'
		end do
		call mpi_win_fence(mpi_mode_nosucceed, win)
	end subroutine
end program
