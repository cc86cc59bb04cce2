! SPDX-License-Identifier: BSD-3-Clause
! A test of the module ummap: arrays of many kinds and ranks, calls and errors. The argument is a
! folder.
program use_ummap
	use iso_c_binding, only: c_double, c_f_pointer, c_int, c_intptr_t, c_loc
	use iso_fortran_env, only: int8, int64, real32, real64
	use ummap
	implicit none
	character(256) :: folder
	character(:), allocatable :: uri
	character(300) :: why = ''
	type(mapping) :: m
	integer :: failures = 0, stat

	call get_command_argument(1, folder)
	uri = 'posix:' // trim(folder) // '/array'
	call contents()
	call calls()
	call errors()
	call other_mappings()
	call records()
	if (failures > 0) error stop 1
contains
	subroutine check(right, what)
		logical, intent(in) :: right
		character(*), intent(in) :: what

		if (right) return
		print *, 'FAILED: ', what
		failures = failures + 1
	end subroutine

	subroutine contents()
		real(real64), pointer :: a(:, :), line(:)
		complex(real32), pointer :: c(:, :, :)
		integer(int8), pointer :: b(:)
		integer, pointer :: seven(:, :, :, :, :, :, :)
		logical, pointer :: l(:, :, :, :)
		character, pointer :: text(:)
		integer(int64) :: bytes = 8_int64 * 1000 * 500
		type(statistics) :: s
		integer :: i

		call m%open(uri, bytes, mode='create', limit=2_int64**20, segment=65536_int64, &
			policy='lifo')
		call check(m%size() == bytes, 'size')
		call m%point(a, [1000, 500])
		do i = 1, 500
			a(:, i) = i
		end do
		s = m%counters()
		call check(s%budget_bytes == 2**20 .and. s%write_bytes > 0, 'the limit')
		call m%sync()
		s = m%counters()
		call check(s%dirty_bytes == 0, 'sync')
		call m%point(line, [1000_int64], offset=8000_int64 * 41)
		call check(all(line == 42) .and. size(line) == 1000, 'an offset')
		call m%point(c, [3, 4, 5])
		c = (1.0, 2.0)
		call m%point(seven, [2, 3, 1, 2, 1, 2, 5], offset=480_int64)
		call check(size(seven) == 120, 'seven ranks')
		call check(all(shape(seven) == [2, 3, 1, 2, 1, 2, 5]), 'seven extents')
		seven = 9
		call m%point(l, [2, 2, 2, 2], offset=960_int64)
		l = .true.
		call m%point(text, [5], offset=1024_int64)
		text = ['h', 'e', 'l', 'l', 'o']
		call m%close()
		call check(m%size() == 0, 'close')

		call m%open(uri, bytes)
		call m%point(a, [1000_int64, 500_int64])
		call m%point(b, [5], offset=1024_int64)
		call check(all(b == [104, 101, 108, 108, 111]), 'characters')
		call m%point(c, [60, 1, 1])
		call check(all(c == (1.0, 2.0)), 'complex numbers')
		call check(abs(sum(a(:, 2:)) - 1000.0_real64 * (500 * 501 / 2 - 1)) < 1, 'the sum')
		call m%close()
	end subroutine

	subroutine calls()
		integer(int64), pointer :: a(:)
		type(statistics) :: s

		call m%open(uri, 4000000_int64, mode='readwrite', flags=ummap_blank, &
			engine=ummap_engine_segv, flush_interval=100)
		call m%point(a, [500000])
		call check(a(7) == 0, 'unwritten elements are zero')
		a(7) = 7
		call m%begin_sync()
		call m%begin_sync()
		call m%wait_sync(stat=stat)
		call check(stat == 0, 'a sync in the background')
		call m%wait_sync()
		call m%begin_sync()
		call m%sync(offset=0_int64, bytes=4096_int64, evict=.true.)
		call m%advise(ummap_random)
		call m%advise(ummap_dontneed, offset=0_int64, bytes=4096_int64)
		call m%prefetch(0_int64, 4096_int64)
		call m%prefetch([0_int64, 2097152_int64], [8_int64, 8_int64])
		call m%pin(0_int64, 4096_int64, write=.true.)
		s = m%counters()
		call check(s%pinned_bytes > 0, 'pin')
		call m%unpin(0_int64, 4096_int64)
		call check(a(7) == 7, 'an element that was written and evicted')
		a(8) = 8
		s = process_counters()
		call check(s%mappings == 1, 'counters of the process')
		call m%close(discard=.true.)
		call m%close()
	end subroutine

	subroutine errors()
		real(real64), pointer :: a(:)
		type(statistics) :: s

		call m%open('posix:/nowhere/x', 10_int64, stat=stat, errmsg=why)
		call check(stat == 2 .and. index(why, 'nowhere') > 0, 'no file')
		call m%open(uri, 10_int64, mode='append', stat=stat, errmsg=why)
		call check(stat == 22 .and. index(why, 'append') > 0, 'no mode')
		call m%point(a, [1], stat=stat, errmsg=why)
		call check(stat == 22 .and. index(why, 'closed') > 0, 'a closed mapping')
		call check(.not. associated(a), 'a pointer into a closed mapping')
		s = m%counters(stat)
		call check(stat == 22, 'counters of a closed mapping')
		call m%sync(stat=stat, errmsg=why)
		call check(stat == 22 .and. len_trim(why) > 10, 'a sync of nothing')
		call m%open(uri, 4096_int64)
		call m%open(uri, 4096_int64, stat=stat, errmsg=why)
		call check(stat == 22 .and. index(why, 'Close it first') > 0, 'open twice')
		call m%point(a, [513], stat=stat)
		call check(stat == 22 .and. .not. associated(a), 'too large an array')
		call m%point(a, [huge(1_int64)], stat=stat)
		call check(stat == 22, 'far too large an array')
		call m%point(a, [1], offset=4_int64, stat=stat, errmsg=why)
		call check(stat == 22 .and. index(why, 'aligned') > 0, 'alignment')
		call m%point(a, [1], offset=5000_int64, stat=stat)
		call check(stat == 22, 'an offset outside')
		call m%pin(0_int64, 8_int64, write=.true., stat=stat, errmsg=why)
		call check(stat == 13 .and. ummap_message() == why, 'a writable pin')
		call m%point(a, [-5], stat=stat, errmsg=why)
		call check(stat == 22 .and. index(why, 'negative') > 0, 'a negative extent')
		call check(.not. associated(a), 'a pointer with a negative extent')
		call m%prefetch([0_int64, 8_int64], [8_int64], stat=stat, errmsg=why)
		call check(stat == 22 .and. index(why, 'different sizes') > 0, 'a size is missing')
		call m%point(a, [0], stat=stat)
		call check(stat == 0 .and. size(a) == 0, 'an empty array')
		call m%close(stat=stat)
		call check(stat == 0, 'close')
		call m%open(uri, 4096_int64, limit=-1_int64, stat=stat, errmsg=why)
		call check(stat == 22 .and. index(why, 'negative') > 0, 'a negative limit')
	end subroutine

	! Offsets outside a mapping may be inside another mapping.
	subroutine other_mappings()
		type(mapping) :: both(2), a
		integer(int8), pointer :: bytes(:)
		integer(int64) :: at(2), apart
		type(statistics) :: s
		integer :: i, low

		do i = 1, 2
			call both(i)%open('mem:64K', 65536_int64, mode='readwrite')
			call both(i)%point(bytes, [65536])
			at(i) = transfer(c_loc(bytes), 0_c_intptr_t)
			bytes(1) = 1
		end do
		low = minloc(at, 1)
		a = both(low)
		apart = abs(at(2) - at(1))
		call a%pin(apart, 4096_int64, stat=stat, errmsg=why)
		call check(stat == 22 .and. index(why, 'outside') > 0, 'a pin outside')
		call a%unpin(apart, 4096_int64, stat=stat)
		call check(stat == 22, 'an end of a pin outside')
		call a%sync(offset=apart, bytes=4096_int64, stat=stat, errmsg=why)
		call check(stat == 22 .and. index(why, 'outside') > 0, 'a sync outside')
		call a%advise(ummap_dontneed, offset=apart, bytes=4096_int64, stat=stat)
		call check(stat == 22, 'advice outside')
		call a%prefetch(apart, 4096_int64, stat=stat)
		call check(stat == 22, 'a prefetch outside')
		call a%sync(offset=-1_int64, stat=stat)
		call check(stat == 22, 'an offset below zero')
		s = both(3 - low)%counters()
		call check(s%dirty_bytes > 0 .and. s%pinned_bytes == 0, 'the other mapping')
		call both(1)%close()
		call both(2)%close()
	end subroutine

	! The conversion to a derived type that the comments of the module describe.
	subroutine records()
		type, bind(c) :: record
			integer(c_int) :: i
			real(c_double) :: d
		end type
		integer(int8), pointer :: bytes(:)
		type(record), pointer :: all(:)

		call m%open('mem:64K', 65536_int64, mode='readwrite')
		call m%point(bytes, [1600], offset=16_int64)
		call c_f_pointer(c_loc(bytes), all, [100])
		all(100)%d = 2.5
		call m%point(bytes, [8], offset=16_int64 + 1592)
		call check(transfer(bytes, 0.0_c_double) == 2.5, 'a derived type')
		call m%close()
	end subroutine
end program
