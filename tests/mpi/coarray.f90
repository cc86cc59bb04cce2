! SPDX-License-Identifier: BSD-3-Clause
! coarray - a program without calls of the library. Its coarrays, also those from before the main
! program, are larger than the memory limit. libgfortran sets a signal handler after the library.
program coarray
	implicit none
	integer, parameter :: n = 12000
	integer :: early(n)[*], i
	integer, allocatable :: late(:)[:], got(:)

	early = this_image() * n + [(i, i = 1, n)]
	allocate(late(n)[*], got(n))
	late(:)[next()] = -early
	sync all
	got = early(:)[next()]
	if (any(got /= next() * n + [(i, i = 1, n)])) error stop 'a get is wrong'
	if (any(late /= -(before() * n + [(i, i = 1, n)]))) error stop 'a put is wrong'
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
