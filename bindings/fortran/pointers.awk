# SPDX-License-Identifier: BSD-3-Clause
# Writes ummap.f90 to the standard output: `awk -f pointers.awk KINDS ummap.in`. A line of KINDS is
# a type and a kind. The line @names of ummap.in becomes the declarations of the procedures for all
# kinds of elements, ranks and kinds of shapes, and the line @bodies becomes the procedures.

function dimensions(rank,   text) {
	text = ":"
	while (--rank)
		text = text ", :"
	return text
}

function print_procedures(   i, rank, s) {
	for (i = 1; i <= n; i++)
		for (rank = 1; rank <= 7; rank++)
			for (s = 32; s <= 64; s += 32)
				print_procedure(name[i] "_" rank "_" s, i, rank, s)
}

function print_procedure(id, i, rank, s) {
	if (section == "names") {
		print "\t\tprocedure, private :: " id
		print "\t\tgeneric :: point => " id
		return
	}
	print "\tsubroutine " id "(this, array, shape, offset, stat, errmsg)"
	print "\t\tclass(mapping), intent(in) :: this"
	print "\t\t" type[i] ", pointer, intent(out) :: array(" dimensions(rank) ")"
	print "\t\tinteger(int" s "), intent(in) :: shape(" rank ")"
	print "\t\tinteger(int64), intent(in), optional :: offset"
	print "\t\tinteger, intent(out), optional :: stat"
	print "\t\tcharacter(*), intent(inout), optional :: errmsg"
	print "\t\ttype(c_ptr) :: place"
	print ""
	print "\t\tnullify(array)"
	print "\t\tplace = this%place_of(int(shape, int64), storage_size(array, int64) / 8, &"
	print "\t\t\t" align[i] "_int64, offset, stat, errmsg)"
	print "\t\tif (c_associated(place)) call c_f_pointer(place, array, shape)"
	print "\tend subroutine\n"
}

FILENAME == ARGV[1] {
	type[++n] = $1 == "character" ? "character(kind=" $2 ")" : $1 "(" $2 ")"
	name[n] = "point_" $1 $2
	# An element of kind 10 takes 16 bytes.
	align[n] = $2 == 10 ? 16 : $2
	next
}
/^@/ {
	section = substr($1, 2)
	print_procedures()
	next
}
{ print }
