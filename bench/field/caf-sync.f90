! SPDX-License-Identifier: BSD-3-Clause
! caf-sync - the bytes that a `sync all` writes. In each round, every image changes some pieces of
! its coarray, and then all images sync. The kernel counts the bytes that processes have written.
program caf_sync
	use caf_kit
	implicit none
	integer, parameter :: piece = 8192               ! elements: 64 KiB
	real(real64), allocatable :: x(:, :)[:]
	real(real64) :: before, written, changed, start
	integer :: pieces, part, rounds, round, i

	call kit_begin('usage: caf-sync [--pieces N] [--part P] [--rounds N] ' // &
		'[--json FILE]' // nl // &
		'  --pieces N   pieces of a coarray, of 64 KiB each (512)' // nl // &
		'  --part P     percentage of pieces that change in each round (100)' // nl // &
		'  --rounds N   number of rounds (20)' // nl // &
		'  --json FILE  add a line to FILE' // nl // '  --help')
	pieces = kit_number('--pieces', 512)
	part = kit_number('--part', 100)
	rounds = kit_number('--rounds', 20)
	allocate(x(piece, pieces)[*])
	x = 0
	sync all
	changed = 0
	before = storage_bytes()
	sync all
	start = seconds()
	do round = 1, rounds
		do i = 1, pieces
			! Other pieces change in each round, in all parts of the coarray.
			if (mod(37 * i + 13 * round, 100) >= part) cycle
			x(:, i) = round
			changed = changed + 8 * piece
		end do
		sync all
	end do
	start = seconds() - start
	written = storage_bytes() - before
	call co_sum(written)
	call co_sum(changed)
	call kit_report('"of":"sync all"', 'ms', start / rounds * 1e3_real64)
	call kit_report('"of":"changed"', 'ratio', written / changed)
contains
	! Returns the bytes that this process has written.
	real(real64) function storage_bytes()
		character(100) :: line
		integer :: unit, error
		integer(int64) :: bytes

		storage_bytes = 0
		open (newunit=unit, file='/proc/self/io', action='read', iostat=error)
		do while (error == 0)
			read (unit, '(a)', iostat=error) line
			if (error /= 0 .or. index(line, 'write_bytes: ') /= 1) cycle
			read (line(14:), *) bytes
			storage_bytes = real(bytes, real64)
		end do
		close (unit)
	end function
end program
