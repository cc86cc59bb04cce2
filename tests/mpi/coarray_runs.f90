! SPDX-License-Identifier: BSD-3-Clause
! coarray_runs - each run finds the contents of the previous run in coarrays of all types, and adds
! one to each. Initial values of the source count only in the first run.
! coarray_runs die - the run ends while image 1 holds a lock.
program coarray_runs
	use mpi
	use, intrinsic :: iso_c_binding, only: c_ptr
	use, intrinsic :: iso_fortran_env, only: lock_type, event_type, atomic_int_kind
	implicit none
	integer, parameter :: n = 30000

	type :: pair
		integer :: one = 3
		real(8) :: other = 0.5d0
	end type
	type :: holder
		integer :: length = 0
		integer, allocatable :: part(:)
	end type

	integer :: runs[*] = 0
	real(8) :: large(n)[*] = 1d0, empty(n)[*]
	complex(4) :: plane(3, 4)[2, *]
	character(5) :: word[*] = 'run a'
	logical :: odd[*] = .false.
	type(pair) :: both(2)[*]
	type(holder) :: hold[*]
	type(lock_type) :: key[*]
	type(event_type) :: posted[*]
	integer(atomic_int_kind) :: atom[*]
	integer, allocatable :: late(:, :)[:], brief(:)[:]
	type(pair), allocatable :: single[:]
	integer :: next, i, mark, error, win
	type(c_ptr) :: window
	character(10) :: argument

	next = mod(this_image(), num_images()) + 1
	allocate(late(n, 2)[*], source=-1)
	allocate(single[*])
	call compare('large', all(large == 1 + runs))
	call compare('word', word == 'run ' // achar(iachar('a') + runs))
	call compare('odd', odd .eqv. mod(runs, 2) == 1)
	call compare('both', all(both%one == 3 + runs) .and. all(both%other == 0.5d0))
	call compare('late', all(late(:, 1) == -1) .and. all(late(:, 2) == runs - 1))
	call compare('single', single%one == 3 + runs .and. single%other == 0.5d0)
	if (runs > 0) then
		call compare('empty', all(empty == [(i + runs, i = 1, n)]))
		call compare('plane', all(plane == cmplx(runs, -runs)))
		call atomic_ref(mark, atom)
		call compare('atom', mark == runs * num_images())
	else
		call atomic_define(atom, 0)
	end if
	call compare('hold', .not. allocated(hold%part))
	call get_command_argument(1, argument)
	if (argument == 'die') call die

	! A window that is no coarray.
	call MPI_Win_allocate(int(8 * n, MPI_ADDRESS_KIND), 8, MPI_INFO_NULL, MPI_COMM_WORLD, &
		window, win, error)
	allocate(hold%part(this_image()), source=this_image())
	hold%length = this_image()
	sync all
	do i = 1, num_images()
		call compare('part', hold[i]%part(i) == i)
	end do
	lock(key[1])
	unlock(key[1])
	critical
		runs[next] = runs[next] + 1
	end critical
	event post(posted[next])
	event wait(posted)
	sync all
	large(:)[next] = large(:)[next] + 1
	empty = [(i + runs, i = 1, n)]
	plane(1:3:2, :)[1 + mod(next - 1, 2), 1 + (next - 1) / 2] = cmplx(runs, -runs)
	plane(2:2, :)[1 + mod(next - 1, 2), 1 + (next - 1) / 2] = cmplx(runs, -runs)
	word = 'run ' // achar(iachar('a') + runs)
	odd = mod(runs, 2) == 1
	both%one = 3 + runs
	late(:, 2)[next] = late(:, 1) + runs
	single[next]%one = 3 + runs
	do i = 1, num_images()
		call atomic_add(atom[i], 1)
	end do
	allocate(brief(n)[*])
	brief = 5
	deallocate(brief)
	call MPI_Win_free(win, error)
	sync all
	if (this_image() == 1) print '(a,1x,i0)', 'run', runs
contains
	subroutine compare(what, right)
		character(*), intent(in) :: what
		logical, intent(in) :: right

		if (right) return
		print '(3a,i0,a,i0)', 'wrong: ', what, ' at image ', this_image(), ', run ', runs
		error stop
	end subroutine

	! Ends the run with changes that are only in memory.
	subroutine die
		if (this_image() == 1) then
			lock(key[1])
			large = -1
		end if
		sync images(*)
		error stop 'the end of the test'
	end subroutine
end program
