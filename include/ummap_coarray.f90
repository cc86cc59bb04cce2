! SPDX-License-Identifier: BSD-3-Clause
! Calls for coarrays that are kept in files: see ummap-coarray(7). Compile this file with the
! program, and link the program with libummap-mpi-openmpi or libummap-mpi-mpich.
module ummap_coarray
	use iso_c_binding, only: c_bool, c_char, c_int, c_int64_t, c_null_char
	implicit none
	private
	public :: pcaf_restarted, pcaf_epoch, pcaf_sync, pcaf_config, pcaf_images, pcaf_open_image

	interface
		! Returns true if this run has found coarrays of an earlier run.
		function pcaf_restarted() bind(c) result(restarted)
			import :: c_bool
			logical(c_bool) :: restarted
		end function

		! Returns the number of the last checkpoint, the last sync that all images have
		! completed.
		function pcaf_epoch() bind(c) result(epoch)
			import :: c_int64_t
			integer(c_int64_t) :: epoch
		end function

		! Does a sync all that also writes to storage, whatever the value of PCAF_SYNCFREQ
		! is.
		subroutine pcaf_sync() bind(c)
		end subroutine

		! Returns the number of images of the run in PCAF_RECOVER, or 0 if that is not set.
		function pcaf_images() bind(c) result(images)
			import :: c_int
			integer(c_int) :: images
		end function
	end interface

	interface
		subroutine pcaf_config_c(array, persistent, path) bind(c, name='pcaf_config')
			import :: c_bool, c_char
			type(*), dimension(..), intent(in) :: array
			logical(c_bool), value :: persistent
			character(kind=c_char), intent(in) :: path(*)
		end subroutine

		subroutine pcaf_open_image_c(array, image, copy) bind(c, name='pcaf_open_image')
			import :: c_int
			type(*), dimension(..), intent(in) :: array
			integer(c_int), value :: image
			type(*), dimension(..), intent(inout), contiguous :: copy
		end subroutine
	end interface
contains
	! Sets whether a coarray is kept in files from now on. path is the folder of the files,
	! by default PCAF_PATH. All images must make the call, with the same coarray.
	subroutine pcaf_config(array, persistent, path)
		type(*), dimension(..), intent(in) :: array
		logical, intent(in) :: persistent
		character(*), intent(in), optional :: path

		if (present(path)) then
			call pcaf_config_c(array, logical(persistent, c_bool), &
				trim(path) // c_null_char)
		else
			call pcaf_config_c(array, logical(persistent, c_bool), c_null_char)
		end if
	end subroutine

	! Reads the contents that this coarray had at one image of the run in PCAF_RECOVER into an
	! ordinary array of the same size in bytes.
	subroutine pcaf_open_image(array, image, copy)
		type(*), dimension(..), intent(in) :: array
		integer, intent(in) :: image
		type(*), dimension(..), intent(inout), contiguous :: copy

		call pcaf_open_image_c(array, int(image, c_int), copy)
	end subroutine
end module
