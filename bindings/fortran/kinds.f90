! SPDX-License-Identifier: BSD-3-Clause
! Prints the kinds that this compiler has, one a line, for pointers.awk.
program kinds
	use iso_fortran_env, only: integer_kinds, logical_kinds, real_kinds
	implicit none
	integer :: i

	print '(a, i3)', ('integer', integer_kinds(i), i = 1, size(integer_kinds))
	print '(a, i3)', ('real', real_kinds(i), i = 1, size(real_kinds))
	print '(a, i3)', ('complex', real_kinds(i), i = 1, size(real_kinds))
	print '(a, i3)', ('logical', logical_kinds(i), i = 1, size(logical_kinds))
	print '(a, i3)', 'character', kind('a')
end program
