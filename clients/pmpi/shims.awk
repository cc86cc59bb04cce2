# SPDX-License-Identifier: BSD-3-Clause
# Reads pmpi/calls, and writes the header pmpi/calls.h; with `-v mpi=openmpi` or `-v mpi=mpich`, the
# entry points for that MPI, and the functions that call it; with `-v list=1`, the names of
# calls; with `-v table=1` and files in C behind pmpi/calls, the table of features.

# ---- Reading: a parameter has a type ("void *"), a name, and in `array` "[]" or nothing ----

function die(text) {
	print FILENAME ":" FNR ": " text > "/dev/stderr"
	failed = 1
	exit 1
}

function read_call(text,    word, has) {
	while (match(text, /^(C|hand|from|operation|request): /)) {
		word = substr(text, 1, RLENGTH - 2)
		has[word] = 1
		text = substr(text, RLENGTH + 1)
	}
	add_call(text, has)
	if (!("request" in has)) return
	sub(/\)$/, ", MPI_Request *request)", text)
	add_call("R" tolower(substr(text, 1, 1)) substr(text, 2), has)
	base[calls] = calls - 1
	twin[calls - 1] = calls
}

function add_call(text, has,    c, part, i, p) {
	c = ++calls
	languages[c] = "C" in has ? "C" : "hand" in has ? "hand" : "all"
	from[c] = "from" in has
	operation[c] = "operation" in has
	if (text !~ /^[A-Z][a-z_]*\(.*\)$/) die("\"" text "\" is not a call")
	call[c] = substr(text, 1, index(text, "(") - 1)
	sub(/^[^(]*\(/, "", text)
	params[c] = split(substr(text, 1, length(text) - 1), part, /, */)
	for (i = 1; i <= params[c]; i++) {
		p = part[i]
		array[c, i] = sub(/\[\]$/, "", p) ? "[]" : ""
		match(p, /[a-z_]+$/)
		name[c, i] = substr(p, RSTART)
		type[c, i] = substr(p, 1, RSTART - 1)
		sub(/ $/, "", type[c, i])
		note(c, type[c, i])
		if (operation[c]) note_field(c_type(type[c, i], 1), name[c, i])
	}
}

# The fields of struct pmpi_operation are the parameters of all operations.
function note_field(t, n) {
	if (!(n in field_type)) field[++fields] = n
	else if (field_type[n] != t) die("\"" n "\" has another type in another operation")
	field_type[n] = t
}

function note(c, t) {
	if (t !~ /^((const )?void \*|address|count|unit|int|MPI_[A-Z][a-z]+)$/ &&
	    t !~ /^(unit|int|MPI_[A-Z][a-z]+|(const )?char|char \*\*) ?\*$/)
		die(call[c] " has a parameter of the type \"" t "\", for which there is no rule")
	if (t ~ /^(count|unit)/) counts[c] = 1
	if (t ~ /void \*$/) buffers[c] = 1
	if (t == "address") addresses[c] = 1
	if (t == "const char *") strings[c] = 1
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
	if (t == "const char *") return t
	if (t ~ /^(count|unit)/ && wide || t ~ /^MPI_(Aint|Offset)/) {
		sub(/ \*$/, "", t)
		return c_type(t, 1) " *"
	}
	return "MPI_Fint *"
}

function declared(t, n) { return t (t ~ /\*$/ ? "" : " ") n }

function c_params(c, wide,    i, s) {
	if (operation[c] && wide == "feature") return "const struct pmpi_operation *o"
	for (i = 1; i <= params[c]; i++)
		s = s (i > 1 ? ", " : "") declared(c_type(type[c, i], wide), name[c, i] array[c, i])
	return s
}

# The arguments of MPI's call. `unit` replaces the variable that gets a unit.
function c_args(c, narrow, unit,    i, s) {
	for (i = 1; i <= params[c]; i++)
		s = s (i > 1 ? ", " : "") (narrow && type[c, i] ~ /^(count|unit)$/ ? "(int)" : "") \
			(unit && type[c, i] == "unit *" ? unit : value(c, i))
	return s
}

# The parameter as MPI's call gets it.
function value(c, i) { return (operation[c] ? "o->" : "") name[c, i] }

# The call of the first feature, with a C expression for each parameter.
function first(c, expression,    i, s) {
	for (i = 1; i <= params[c]; i++)
		s = s (i > 1 ? ", " : "") (operation[c] ? "." name[c, i] " = " : "") expression[i]
	if (operation[c]) s = "&(struct pmpi_operation){ " s " }"
	return "pmpi_first." call[c in base ? base[c] : c] "(" s ")"
}

function c_first(c, unit,    i, expression) {
	for (i = 1; i <= params[c]; i++)
		expression[i] = unit && type[c, i] == "unit *" ? unit : name[c, i]
	return first(c, expression)
}

# Fortran passes references to all arguments, and to the error, which the program may leave out. It
# has no arguments of the program.
function fortran_params(c, wide,    i, s) {
	for (i = 1; i <= params[c]; i++)
		if (name[c, i] !~ /^arg[cv]$/) s = s fortran_type(type[c, i], wide) name[c, i] ", "
	s = s "MPI_Fint *error"
	for (i = 1; i <= params[c]; i++)
		if (type[c, i] == "const char *") s = s ", " length_type() " " name[c, i] "_len"
	return s
}

# Fortran passes the lengths of strings behind all arguments.
function length_type() { return mpi == "openmpi" ? "int" : "size_t" }

function fortran_first(c,    i, t, n, expression) {
	for (i = 1; i <= params[c]; i++) {
		t = type[c, i]; n = name[c, i]
		if (n ~ /^arg[cv]$/) n = "NULL"
		else if (t ~ /void \*$/) n = "fortran_buffer(" n ")"
		else if (is_local(t)) n = (t == "const char *" ? "" : "&") "c_" n
		else if (is_handle(t)) n = handle(t) "_f2c(*" n ")"
		else if (t ~ /^[a-zA-Z_]+$/ && t != "address") n = "*" n
		expression[i] = n
	}
	return first(c, expression)
}

# Whether C has the value in another form than Fortran, in a variable: results, and strings.
function is_local(t) {
	return t ~ /^MPI_Status|^unit \*/ || t == "const char *" || is_handle(t) && t ~ /\*$/
}

function has_large(c) { return counts[c] && mpi == "mpich" }

# ---- Table of features ----

# Notes the places in pmpi.h, and the calls of a struct pmpi_feature.
function read_source(    found, n) {
	if (match($0, /^\tPMPI_[A-Z]+/)) place[substr($0, 2, RLENGTH - 1)] = ++places
	if (/^static struct pmpi_feature .*\{$/) { file = FILENAME; sub(/^.*clients\//, "", file) }
	if (match($0, /\.place = PMPI_[A-Z]+/)) {
		order = place[substr($0, RSTART + 9, RLENGTH - 9)]
		file_at[order] = file_at[order] (file_at[order] ? " " : "") file
	}
	while (match($0, /TAKE\([a-z_]+\)|\.[A-Z][a-z_]* = [a-z_]+/)) {
		found = substr($0, RSTART, RLENGTH)
		$0 = substr($0, RSTART + RLENGTH)
		n = sub(/^TAKE\(/, "File_", found) ? found : substr(found, 2)
		sub(/( = .*|\))$/, "", n)
		if (file) takes[n, order] = file
	}
}

# Calls that the same features take share a row.
function write_features(    c, p, path, n, paths, calls_of) {
	for (c = 1; c <= calls; c++) {
		if (c in base) continue
		path = ""
		for (p = 1; p <= places; p++)
			if ((call[c], p) in takes)
				path = path (path ? ", " : "") "`" takes[call[c], p] "`"
		if (!(path in calls_of)) paths[++n] = path
		calls_of[path] = calls_of[path] (calls_of[path] ? ", " : "") call[c] \
			(c in twin ? ", " call[twin[c]] : "")
	}
	print "| calls | features, in order |\n|---|---|"
	for (p = 1; p <= n; p++) print "| " calls_of[paths[p]] " | " paths[p] " |"
}

# ---- Functions ----

function begin(text) { print text "\n{" }

function return_code() { print "\treturn code;\n}\n" }

# The call of MPI. Counts that fit into an int go by the usual call, which tools know best.
function write_next(c,    i, fits) {
	if (c in twin) write_next(twin[c])
	begin("static int next_" call[c] "(" c_params(c, "feature") ")")
	if (c in twin) print "\tif (o->request)\n\t\treturn next_" call[twin[c]] "(o);"
	for (i = 1; i <= params[c] && has_large(c); i++)
		if (type[c, i] ~ /^(count|unit)$/)
			fits = fits (fits ? " && " : "") value(c, i) " == (int)" value(c, i)
	if (fits) print "\tif (!(" fits "))"
	if (has_large(c)) print (fits ? "\t" : "") "\treturn next." call[c] "_c(" c_args(c) ");"
	if (has_large(c) && !fits) { print "}\n"; return }
	if (!gives_unit[c]) {
		print "\treturn next." call[c] "(" c_args(c, 1) ");\n}\n"
		return
	}
	print "\tint unit, code = next." call[c] "(" c_args(c, 1, "&unit") ");\n"
	put_unit(c, "MPI_Aint")
	return_code()
}

function put_unit(c, t,    i) {
	for (i = 1; i <= params[c]; i++)
		if (type[c, i] == "unit *")
			print "\tif (code == MPI_SUCCESS)\n\t\t*" name[c, i] " = (" t ")unit;"
}

function write_c(c, wide) {
	begin("int MPI_" call[c] (wide ? "_c" : "") "(" c_params(c, wide) ")")
	if (from[c]) print "\tpmpi_caller = __builtin_return_address(0);"
	if (!gives_unit[c] || wide) { print "\treturn " c_first(c) ";\n}\n"; return }
	print "\tMPI_Aint unit;\n\tint code = " c_first(c, "&unit") ";\n"
	put_unit(c, "int")
	return_code()
}

function write_fortran(c, symbol, wide,    i, t, n, code, puts) {
	code = fortran_first(c)
	print "void " symbol "(" fortran_params(c, wide) ");"
	begin("void " symbol "(" fortran_params(c, wide) ")")
	for (i = 1; i <= params[c]; i++) {
		t = type[c, i]; n = name[c, i]
		if (!is_local(t)) continue
		if (t == "const char *") {
			print "\tchar *c_" n " = fortran_string(" n ", (size_t)" n "_len);"
			code = "c_" n " ? " code " : MPI_ERR_NO_MEM"
			puts = puts "\tfree(c_" n ");\n"
			continue
		}
		puts = puts "\tif (code == MPI_SUCCESS"
		if (t == "unit *") {
			print "\tMPI_Aint c_" n ";"
			t = wide ? "MPI_Aint" : "MPI_Fint"
			puts = puts ")\n\t\t*" n " = (" t ")c_" n ";\n"
		} else if (is_handle(t)) {
			sub(/ \*$/, "", t)
			print "\t" t " c_" n " = " handle(t) "_f2c(*" n ");"
			puts = puts ")\n\t\t*" n " = " handle(t) "_c2f(c_" n ");\n"
		} else {
			print "\tMPI_Status c_" n " = { 0 };"
			puts = puts " && " n " != MPI_F_STATUS_IGNORE)\n"
			puts = puts "\t\tPMPI_Status_c2f(&c_" n ", " n ");\n"
		}
	}
	if (from[c]) print "\tpmpi_caller = NULL;\n"
	printf "\tint code = %s;\n\n%s", code, puts
	print "\tif (error)\n\t\t*error = code;\n}\n"
}

function write_alias(c, symbol, of) {
	print "void " symbol "(" fortran_params(c) ")\n\t__attribute__((alias(\"" of "\")));\n"
}

# mpif.h and the module mpi call mpi_x_, and mpi_f08 calls ompi_x_f. Calls that store an address
# have a second symbol of each.
function write_openmpi(c, x) {
	write_fortran(c, "ompi_" x "_f")
	write_alias(c, "mpi_" x "_", "ompi_" x "_f")
	if (!addresses[c]) return
	write_alias(c, "ompi_" x "_cptr_f", "ompi_" x "_f")
	write_alias(c, "mpi_" x "_cptr_", "ompi_" x "_f")
}

# MPICH's Fortran calls C's MPI_X, except for calls of mpi_f08 without a buffer.
function write_mpich(c, x) {
	if (buffers[c]) return
	write_fortran(c, "mpi_" x "_f08_")
	if (counts[c]) write_fortran(c, "mpi_" x "_f08_large_", 1)
}

# ---- Files ----

# Prints the line for each call of the MPI, with the name of the call in the place of @.
function print_all(line,    c, s) {
	for (c = 1; c <= calls; c++) {
		s = line; gsub(/@/, call[c], s); print s
		if (has_large(c)) { s = line; gsub(/@/, call[c] "_c", s); print s }
	}
}

function write_header(    c, i) {
	print "/* The calls that the library takes, as features see them. Made from pmpi/calls. */"
	print "#ifndef CALLS_H\n#define CALLS_H\n\n#include <mpi.h>\n"
	print "/* The arguments of a one-sided operation. The others are 0. */"
	print "struct pmpi_operation {"
	for (i = 1; i <= fields; i++) print "\t" declared(field_type[field[i]], field[i]) ";"
	print "};\n\nstruct pmpi_calls {"
	for (c = 1; c <= calls; c++)
		if (!(c in base)) print "\tint (*" call[c] ")(" c_params(c, "feature") ");"
	print "};\n\n#endif"
}

function write_table(declaration,    c) {
	print declaration " = {"
	for (c = 1; c <= calls; c++)
		if (!(c in base)) print "\t." call[c] " = next_" call[c] ","
	print "};\n"
}

function write_shims(    c) {
	print "/* Entry points, and calls of " mpi ". Made from pmpi/calls. */"
	print "#include \"pmpi/fortran.h\"\n#include \"pmpi/pmpi.h\"\n"
	print "#include <stddef.h>\n#include <stdlib.h>\n"
	print "static struct {"
	print_all("\t__typeof__(&PMPI_@) @;")
	print "} next = {"
	print_all("\t.@ = PMPI_@,")
	print "};\n\nstatic const char *const names[] = {"
	print_all("\t\"MPI_@\",")
	print "};\n"
	begin("__attribute__((constructor)) static void find_next(void)")
	print "\tpmpi_find_next(&next, names, sizeof(names) / sizeof(*names));\n}\n"
	for (c = 1; c <= calls; c++)
		if (!(c in base)) write_next(c)
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

table && FILENAME ~ /\.[ch]$/ { read_source(); next }
/^(#|$)/ { next }
{
	sub(/^[ \t]+/, "")
	text = text (text ? " " : "") $0
	if (/\)$/) { read_call(text); text = "" }
}
END {
	if (failed) exit 1
	if (text || !calls) die("\"" text "\" has no end")
	if (table) write_features()
	else if (list) for (c = 1; c <= calls; c++) print languages[c], call[c]
	else if (mpi) write_shims()
	else write_header()
}
