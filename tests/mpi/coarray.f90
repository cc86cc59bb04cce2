! SPDX-License-Identifier: BSD-3-Clause
! coarray - a program that knows nothing of storage: its coarrays, those from before the main program too, are
! larger than the memory for them, and libgfortran has put a handler of its own over the library's by then.
program coarray
	implicit none
	integer, parameter :: n = 50000
	integer :: early(n)[*], i
	integer, allocatable :: late(:)[:], got(:)

	early = this_image() * n + [(i, i = 1, n)]
	allocate(late(n)[*], got(n))
	late(:)[next()] = -early
	sync all
	got = early(:)[next()]
	if (any(got /= next() * n + [(i, i = 1, n)])) error stop 'not what is there'
	if (any(late /= -(before() * n + [(i, i = 1, n)]))) error stop 'not what was put'
	if (this_image() == 1) print *, 'all of it is right'
	sync all
	deallocate(late)
contains
	integer function next()
		next = mod(this_image(), num_images()) + 1
	end function

	integer function before()
		before = mod(this_image() + num_images() - 2, num_images()) + 1
	end function
end program
