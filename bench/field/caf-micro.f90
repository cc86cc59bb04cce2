! SPDX-License-Identifier: BSD-3-Clause
! caf-micro - operations of image 1 on a coarray of image 2, like EPCC's microbenchmarks for
! coarrays: puts and gets of contiguous elements, of every second element, and of two-dimensional
! sections; sync all, sync images, and locks.
program caf_micro
	use caf_kit
	use, intrinsic :: iso_fortran_env, only: lock_type
	implicit none
	integer, parameter :: most = 524288, side = 1024    ! 4 MiB; and a plane of 8
	real(real64), allocatable :: x(:)[:], plane(:, :)[:]
	real(real64) :: y(most), tile(512, 512)
	type(lock_type) :: key[*]
	integer :: n, turns, limit

	call kit_begin('usage: caf-micro [--ms MS] [--json FILE]' // nl // &
		'Two images: MB/s of puts and gets, and microseconds of synchronization.' // nl // &
		'  --ms MS      time of each measurement (50)' // nl // &
		'  --json FILE  add a line for each measurement to FILE' // nl // '  --help')
	if (num_images() /= 2) call kit_refuse('it needs two images')
	limit = kit_number('--ms', 50)
	allocate(x(2 * most)[*], plane(side, side)[*])
	x = this_image()
	plane = this_image()
	y = 3
	tile = 3
	sync all
	n = 1
	do while (n <= most)
		call transfers('contiguous', n, 1)
		n = n * 8
		if (n > most .and. n < 8 * most) n = most
	end do
	n = 1
	do while (n <= 32768)
		call transfers('strided', n, 2)
		n = n * 8
	end do
	n = 4
	do while (n <= 512)
		call sections(n)
		n = n * 4
		if (n > 256 .and. n < 2048) n = 512
	end do
	call synchronisation
contains
	! How many fit into the time, from one on; both images agree.
	logical function more(start)
		real(real64), intent(in) :: start

		turns = turns + 1
		more = (seconds() - start) * 1000 < limit
	end function

	subroutine transfers(kind, n, stride)
		character(*), intent(in) :: kind
		integer, intent(in) :: n, stride
		integer :: last
		real(real64) :: start

		last = (n - 1) * stride + 1
		sync all
		if (this_image() == 1) then
			! The first of each is another thing: pages come.
			x(1:last:stride)[2] = y(1:n)
			y(1:n) = x(1:last:stride)[2]
			turns = 0
			start = seconds()
			do while (more(start))
				x(1:last:stride)[2] = y(1:n)
			end do
			call rate('put', kind, 8 * n, start)
			turns = 0
			start = seconds()
			do while (more(start))
				y(1:n) = x(1:last:stride)[2]
			end do
			call rate('get', kind, 8 * n, start)
			if (any(y(1:n) /= 3)) error stop 'this is not what was put'
		end if
		sync all
	end subroutine

	subroutine sections(n)
		integer, intent(in) :: n
		real(real64) :: start

		sync all
		if (this_image() == 1) then
			plane(1:n, 1:n)[2] = tile(1:n, 1:n)
			tile(1:n, 1:n) = plane(1:n, 1:n)[2]
			turns = 0
			start = seconds()
			do while (more(start))
				plane(1:n, 1:n)[2] = tile(1:n, 1:n)
			end do
			call rate('put', 'section', 8 * n * n, start)
			turns = 0
			start = seconds()
			do while (more(start))
				tile(1:n, 1:n) = plane(1:n, 1:n)[2]
			end do
			call rate('get', 'section', 8 * n * n, start)
			if (any(tile(1:n, 1:n) /= 3)) error stop 'this is not what was put'
		end if
		sync all
	end subroutine

	subroutine rate(op, kind, bytes, start)
		character(*), intent(in) :: op, kind
		integer, intent(in) :: bytes
		real(real64), intent(in) :: start
		character(100) :: what

		write (what, '(5a,i0)') '"op":"', op, '","kind":"', kind, '","bytes":', bytes
		call kit_report(trim(what), 'mb_s', &
			real(turns, real64) * bytes / (seconds() - start) / 1e6_real64)
	end subroutine

	subroutine synchronisation
		integer :: i, rounds
		real(real64) :: start

		rounds = 20 * limit
		sync all
		start = seconds()
		do i = 1, rounds
			sync all
		end do
		call kit_report('"op":"sync all"', 'us', (seconds() - start) / rounds * 1e6_real64)
		sync all
		start = seconds()
		do i = 1, rounds
			sync images (3 - this_image())
		end do
		call kit_report('"op":"sync images"', 'us', &
			(seconds() - start) / rounds * 1e6_real64)
		sync all
		start = seconds()
		if (this_image() == 1) then
			do i = 1, rounds
				lock (key[2])
				unlock (key[2])
			end do
		end if
		call kit_report('"op":"lock"', 'us', (seconds() - start) / rounds * 1e6_real64)
		sync all
	end subroutine
end program
