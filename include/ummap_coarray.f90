! SPDX-License-Identifier: BSD-3-Clause
! What programs may ask and say about coarrays that are kept in files: see ummap-coarray(7). To be compiled with the
! program, which is then linked with libummap-mpi-openmpi or -mpich.
module ummap_coarray
	use iso_c_binding, only: c_bool, c_int64_t
	implicit none
	private
	public :: pcaf_restarted, pcaf_epoch, pcaf_sync, pcaf_config

	interface
		! Whether this run has begun with what an earlier one has left.
		function pcaf_restarted() bind(c) result(restarted)
			import :: c_bool
			logical(c_bool) :: restarted
		end function

		! The number of the last sync that has reached storage at all images.
		function pcaf_epoch() bind(c) result(epoch)
			import :: c_int64_t
			integer(c_int64_t) :: epoch
		end function

		! A sync all that reaches storage, whatever PCAF_SYNCFREQ says.
		subroutine pcaf_sync() bind(c)
		end subroutine
	end interface

	interface
		subroutine pcaf_config_c(array, persistent) bind(c, name='pcaf_config')
			import :: c_bool
			type(*), dimension(..), intent(in) :: array
			logical(c_bool), value :: persistent
		end subroutine
	end interface
contains
	! Whether a coarray is kept from now on. All images call it, with the same coarray.
	subroutine pcaf_config(array, persistent)
		type(*), dimension(..), intent(in) :: array
		logical, intent(in) :: persistent

		call pcaf_config_c(array, logical(persistent, c_bool))
	end subroutine
end module
