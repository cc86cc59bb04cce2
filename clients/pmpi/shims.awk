# SPDX-License-Identifier: BSD-3-Clause
# Reads pmpi/calls and writes C: the header pmpi/calls.h; with `-v mpi=openmpi` or `-v mpi=mpich` the ways into the library
# for that MPI, and the way on to it.

# ---- Reading: a call has parameters, each of a type ("void *") with a name; array: "[]" behind that, or nothing. ----

function die(text) {
	print FILENAME ":" FNR ": " text > "/dev/stderr"
	failed = 1
	exit 1
}

function read_call(text,    c, part, i, p) {
	c = ++calls
	languages[c] = "all"
	while (match(text, /^(C|hand|from): /)) {
		if (substr(text, 1, RLENGTH - 2) == "from") from[c] = 1
		else languages[c] = substr(text, 1, RLENGTH - 2)
		text = substr(text, RLENGTH + 1)
	}
	if (text !~ /^[A-Z][a-z_]*\(.*\)$/) die("\"" text "\" is not a call")
	call[c] = substr(text, 1, index(text, "(") - 1)
	params[c] = split(substr(text, index(text, "(") + 1, length(text) - length(call[c]) - 2), part, /, */)
	for (i = 1; i <= params[c]; i++) {
		p = part[i]
		array[c, i] = sub(/\[\]$/, "", p) ? "[]" : ""
		match(p, /[a-z_]+$/)
		name[c, i] = substr(p, RSTART)
		type[c, i] = substr(p, 1, RSTART - 1)
		sub(/ $/, "", type[c, i])
		note(c, type[c, i])
	}
}

function note(c, t) {
	if (t !~ /^((const )?void \*|address|(count|unit|int|MPI_Aint|MPI_Offset|MPI_[A-Z][a-z]+)|(unit|int|MPI_Aint|MPI_[A-Z][a-z]+|(const )?char|char \*\*) ?\*)$/)
		die(call[c] " has a parameter of the type \"" t "\", for which there is no rule")
	if (t ~ /^(count|unit)/) counts[c] = 1
	if (t ~ /void \*$/) buffers[c] = 1
	if (t == "address") addresses[c] = 1
	if (t == "unit *") gives_unit[c] = 1
}

function is_handle(t) { return t ~ /^MPI_/ && t !~ /^MPI_(Aint|Offset|Status)/ }

# How MPI names conversions of a handle.
function handle(t) {
	sub(/ \*$/, "", t)
	return t == "MPI_Datatype" ? "MPI_Type" : t
}

# ---- Writing lists of parameters and arguments. `wide`: with large counts. ----

function c_type(t, wide) {
	if (t == "address") return "void *"
	sub(/^count/, wide ? "MPI_Count" : "int", t)
	sub(/^unit/, wide ? "MPI_Aint" : "int", t)
	return t
}

function fortran_type(t, wide) {
	if (t ~ /void \*$/ || t == "address") return "void *"
	if (t ~ /^(count|unit)/ && wide || t ~ /^MPI_(Aint|Offset)/) {
		sub(/ \*$/, "", t)
		return c_type(t, 1) " *"
	}
	return "MPI_Fint *"
}

function declared(t, n) { return t (t ~ /\*$/ ? "" : " ") n }

function c_params(c, wide,    i, s) {
	for (i = 1; i <= params[c]; i++)
		s = s (i > 1 ? ", " : "") declared(c_type(type[c, i], wide), name[c, i] array[c, i])
	return s
}

# The same as arguments; unit: what is given for an int or MPI_Aint that a unit is put to.
function c_args(c, narrow, unit,    i, s) {
	for (i = 1; i <= params[c]; i++)
		s = s (i > 1 ? ", " : "") (narrow && type[c, i] ~ /^(count|unit)$/ ? "(int)" : "") \
			(unit && type[c, i] == "unit *" ? unit : name[c, i])
	return s
}

# Fortran passes references to all, and to the error, which may be left out. It has no arguments of the program.
function fortran_params(c, wide,    i, s) {
	for (i = 1; i <= params[c]; i++)
		if (name[c, i] !~ /^arg[cv]$/) s = s fortran_type(type[c, i], wide) name[c, i] ", "
	return s "MPI_Fint *error"
}

function fortran_args(c,    i, s, t, n) {
	for (i = 1; i <= params[c]; i++) {
		t = type[c, i]; n = name[c, i]
		if (n ~ /^arg[cv]$/) n = "NULL"
		else if (t ~ /void \*$/) n = "fortran_buffer(" n ")"
		else if (is_local(t)) n = "&c_" n
		else if (is_handle(t)) n = handle(t) "_f2c(*" n ")"
		else if (t ~ /^[a-zA-Z_]+$/ && t != "address") n = "*" n
		s = s (i > 1 ? ", " : "") n
	}
	return s
}

# What MPI puts somewhere, and Fortran has in another form.
function is_local(t) { return t ~ /^MPI_Status|^unit \*/ || is_handle(t) && t ~ /\*$/ }

# ---- Functions ----

function has_large(c) { return counts[c] && mpi == "mpich" }

function begin(text) { print text "\n{" }

function return_code() { print "\treturn code;\n}\n" }

# On to MPI. Who counts in ints goes on by C's call, which tools know best.
function write_next(c,    i, fits) {
	begin("static int next_" call[c] "(" c_params(c, 1) ")")
	for (i = 1; i <= params[c] && has_large(c); i++)
		if (type[c, i] ~ /^(count|unit)$/) fits = fits (fits ? " && " : "") name[c, i] " == (int)" name[c, i]
	if (fits) print "\tif (!(" fits "))"
	if (has_large(c)) print (fits ? "\t" : "") "\treturn next." call[c] "_c(" c_args(c) ");"
	if (has_large(c) && !fits) { print "}\n"; return }
	if (!gives_unit[c]) { print "\treturn next." call[c] "(" c_args(c, 1) ");\n}\n"; return }
	print "\tint unit, code = next." call[c] "(" c_args(c, 1, "&unit") ");\n"
	put_unit(c, "MPI_Aint")
	return_code()
}

function put_unit(c, t,    i) {
	for (i = 1; i <= params[c]; i++)
		if (type[c, i] == "unit *") print "\tif (code == MPI_SUCCESS)\n\t\t*" name[c, i] " = (" t ")unit;"
}

function write_c(c, wide) {
	begin("int MPI_" call[c] (wide ? "_c" : "") "(" c_params(c, wide) ")")
	if (from[c]) print "\tpmpi_caller = __builtin_return_address(0);"
	if (!gives_unit[c] || wide) { print "\treturn pmpi_first." call[c] "(" c_args(c) ");\n}\n"; return }
	print "\tMPI_Aint unit;\n\tint code = pmpi_first." call[c] "(" c_args(c, 0, "&unit") ");\n"
	put_unit(c, "int")
	return_code()
}

function write_fortran(c, symbol, wide,    i, t, n, puts) {
	print "void " symbol "(" fortran_params(c, wide) ");"
	begin("void " symbol "(" fortran_params(c, wide) ")")
	for (i = 1; i <= params[c]; i++) {
		t = type[c, i]; n = name[c, i]
		if (!is_local(t)) continue
		puts = puts "\n\tif (code == MPI_SUCCESS"
		if (t == "unit *") {
			print "\tMPI_Aint c_" n ";"
			puts = puts ")\n\t\t*" n " = (" (wide ? "MPI_Aint" : "MPI_Fint") ")c_" n ";"
		} else if (is_handle(t)) {
			print "\t" substr(t, 1, length(t) - 1) "c_" n " = " handle(t) "_f2c(*" n ");"
			puts = puts ")\n\t\t*" n " = " handle(t) "_c2f(c_" n ");"
		} else {
			print "\tMPI_Status c_" n " = { 0 };"
			puts = puts " && " n " != MPI_F_STATUS_IGNORE)\n\t\tPMPI_Status_c2f(&c_" n ", " n ");"
		}
	}
	if (from[c]) print "\tpmpi_caller = NULL;\n"
	print "\tint code = pmpi_first." call[c] "(" fortran_args(c) ");\n" puts
	print "\tif (error)\n\t\t*error = code;\n}\n"
}

function write_alias(c, symbol, of) {
	print "void " symbol "(" fortran_params(c) ") __attribute__((alias(\"" of "\")));\n"
}

# mpi_x_ is of mpif.h and the module mpi, and mpi_f08 goes through ompi_x_f. Where an address is put both have a second name.
function write_openmpi(c, x) {
	write_fortran(c, "ompi_" x "_f")
	write_alias(c, "mpi_" x "_", "ompi_" x "_f")
	if (!addresses[c]) return
	write_alias(c, "ompi_" x "_cptr_f", "ompi_" x "_f")
	write_alias(c, "mpi_" x "_cptr_", "ompi_" x "_f")
}

# Its Fortran calls C's MPI_X, but for calls of mpi_f08 that have no buffer.
function write_mpich(c, x) {
	if (buffers[c]) return
	write_fortran(c, "mpi_" x "_f08_")
	if (counts[c]) write_fortran(c, "mpi_" x "_f08_large_", 1)
}

# ---- Files ----

# A line for each call of the MPI's, with its name for @.
function list(line,    c, s) {
	for (c = 1; c <= calls; c++) {
		s = line; gsub(/@/, call[c], s); print s
		if (has_large(c)) { s = line; gsub(/@/, call[c] "_c", s); print s }
	}
}

function write_header(    c) {
	print "/* The calls that the library takes, as features see them. Made from pmpi/calls. */"
	print "#ifndef CALLS_H\n#define CALLS_H\n\n#include <mpi.h>\n\nstruct pmpi_calls {"
	for (c = 1; c <= calls; c++) print "\tint (*" call[c] ")(" c_params(c, 1) ");"
	print "};\n\n#endif"
}

function write_table(declaration,    c) {
	print declaration " = {"
	for (c = 1; c <= calls; c++) print "\t." call[c] " = next_" call[c] ","
	print "};\n"
}

function write_shims(    c) {
	print "/* From programs into the library, and on to " mpi ". Made from pmpi/calls. */"
	print "#include \"pmpi/fortran.h\"\n#include \"pmpi/pmpi.h\"\n\n#include <stddef.h>\n"
	print "static struct {"
	list("\t__typeof__(&PMPI_@) @;")
	print "} next = {"
	list("\t.@ = PMPI_@,")
	print "};\n\nstatic const char *const names[] = {"
	list("\t\"MPI_@\",")
	print "};\n"
	begin("__attribute__((constructor)) static void find_next(void)")
	print "\tpmpi_find_next(&next, names, sizeof(names) / sizeof(*names));\n}\n"
	for (c = 1; c <= calls; c++) write_next(c)
	write_table("const struct pmpi_calls pmpi_mpi")
	write_table("struct pmpi_calls pmpi_first")
	print "#pragma GCC visibility push(default)\n"
	for (c = 1; c <= calls; c++) {
		write_c(c)
		if (has_large(c)) write_c(c, 1)
		if (languages[c] == "all" && mpi == "openmpi") write_openmpi(c, tolower(call[c]))
		if (languages[c] == "all" && mpi == "mpich") write_mpich(c, tolower(call[c]))
	}
}

/^(#|$)/ { next }
{
	sub(/^[ \t]+/, "")
	text = text (text ? " " : "") $0
	if (/\)$/) { read_call(text); text = "" }
}
END {
	if (failed) exit 1
	if (text || !calls) die("\"" text "\" has no end")
	if (!mpi) write_header()
	else write_shims()
}
