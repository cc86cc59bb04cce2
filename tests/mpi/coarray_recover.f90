! SPDX-License-Identifier: BSD-3-Clause
! coarray_recover [image|size|array|none|ended|die] - opens the coarrays of an earlier run with
! another number of images, of all types, image by image. Some arguments make a call that must fail.
include 'ummap_coarray.f90'
program coarray_recover
	use ummap_coarray
	implicit none
	integer, parameter :: n = 30000

	type :: pair
		integer :: one = 0
		real(8) :: other = 0
	end type

	integer :: mark[*] = 0
	real(8) :: large(n)[*]
	complex(4) :: plane(3, 4)[*]
	character(5) :: word[*]
	type(pair) :: both(2)[*]
	integer, allocatable :: late(:, :)[:]

	integer :: i, mark_tmp
	real(8) :: large_tmp(2, n)
	complex(4) :: plane_tmp(3, 4)
	character(5) :: word_tmp
	type(pair) :: both_tmp(2)
	integer, allocatable :: late_tmp(:, :)
	character(10) :: argument

	allocate(late(n, 2)[*])
	call get_command_argument(1, argument)
	if (argument == 'image') call pcaf_open_image(mark, pcaf_images() + 1, mark_tmp)
	if (argument == 'size') call pcaf_open_image(large, 1, mark_tmp)
	if (argument == 'array') call pcaf_open_image(mark_tmp, 1, mark_tmp)
	if (argument == 'none') call pcaf_open_image(mark, 1, mark_tmp)
	allocate(late_tmp(n, 2))
	do i = 1, pcaf_images()
		call pcaf_open_image(mark, i, mark_tmp)
		large_tmp = -1
		! The array for the copy is not contiguous.
		call pcaf_open_image(large, i, large_tmp(2, :))
		call pcaf_open_image(plane, i, plane_tmp)
		call pcaf_open_image(word, i, word_tmp)
		call pcaf_open_image(both, i, both_tmp)
		call pcaf_open_image(late, i, late_tmp)
		call compare(i)
	end do
	mark = 10 + this_image()
	large = this_image()
	plane = cmplx(this_image(), 1)
	word = 'im ' // achar(iachar('0') + this_image())
	both = pair(this_image(), 0.5d0)
	late = -this_image()
	sync all
	! No run may see these values.
	mark = -1
	large = -1
	late = -1
	if (argument == 'die') error stop 'the end of the test'
	if (pcaf_images() > 0 .and. this_image() == 1) print '(a,i0)', 'recovered ', pcaf_images()
	sync all
contains
	subroutine compare(image)
		integer, intent(in) :: image
		integer :: wanted
		logical :: ended, same

		ended = argument == 'ended'
		wanted = merge(-1, image, ended)
		same = mark_tmp == merge(-1, 10 + image, ended) .and. all(large_tmp(2, :) == wanted)
		same = same .and. all(large_tmp(1, :) == -1) .and. all(plane_tmp == cmplx(image, 1))
		same = same .and. word_tmp == 'im ' // achar(iachar('0') + image)
		same = same .and. all(both_tmp%one == image)
		same = same .and. all(late_tmp == -merge(1, image, ended))
		if (.not. same) error stop 'the contents are not those of the earlier run'
	end subroutine
end program
