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
	while (match(text, /^(C|hand|from|operation|request|transfer): /)) {
		word = substr(text, 1, RLENGTH - 2)
		has[word] = 1
		text = substr(text, RLENGTH + 1)
	}
	add_calls(text, has)
	if (!("request" in has)) return
	sub(/\)$/, ", MPI_Request *request)", text)
	add_call("R" tolower(substr(text, 1, 1)) substr(text, 2), has)
	twin[calls - 1] = calls
	member[calls] = call[calls - 1]
}

# Adds a call for each word of each {a,b} in the name.
function add_calls(text, has,    i, n, head, tail, word) {
	if (!match(text, /\{[a-z_,]*\}/)) { add_call(text, has); return }
	head = substr(text, 1, RSTART - 1)
	tail = substr(text, RSTART + RLENGTH)
	n = split(substr(text, RSTART + 1, RLENGTH - 2), word, ",")
	for (i = 1; i <= n; i++) add_calls(head word[i] tail, has)
}

function add_call(text, has,    c, part, i, p) {
	c = ++calls
	languages[c] = "C" in has ? "C" : "hand" in has ? "hand" : "all"
	from[c] = "from" in has
	group[c] = "operation" in has ? "operation" : "transfer" in has ? "transfer" : ""
	if (text !~ /^[A-Z][a-z_]*\(.*\)$/) die("\"" text "\" is not a call")
	call[c] = substr(text, 1, index(text, "(") - 1)
	member[c] = group[c] == "transfer" ? "File_transfer" : call[c]
	sub(/^[^(]*\(/, "", text)
	params[c] = split(substr(text, 1, length(text) - 1), part, /, */)
	for (i = 1; i <= params[c]; i++) {
		p = part[i]
		array[c, i] = sub(/\[\]$/, "", p) ? "[]" : ""
		match(p, /[a-z_]+$/)
		name[c, i] = substr(p, RSTART)
		type[c, i] = substr(p, 1, RSTART - 1)
		sub(/ $/, "", type[c, i])
		if (type[c, i] == "buffer")
			type[c, i] = call[c] ~ /write/ ? "const void *" : "void *"
		note(c, type[c, i])
		if (group[c]) note_field(group[c], c_type(type[c, i], 1), name[c, i])
	}
}

# The fields of a structure are the parameters of all calls of its group.
function note_field(g, t, n) {
	if (g == "transfer") sub(/^const /, "", t)
	if (!((g, n) in field_type)) field[g, ++fields[g]] = n
	else if (field_type[g, n] != t) die("\"" n "\" has another type in another call")
	field_type[g, n] = t
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
	if (group[c] && wide == "feature") return "const struct pmpi_" group[c] " *a"
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
function value(c, i) { return (group[c] ? "a->" : "") name[c, i] }

# The call of the first feature, with a C expression for each parameter. Fields that the call lacks
# are set, too, because compilers would clear the structure by a slow instruction.
function first(c, expression,    i, s, n, has) {
	for (i = 1; i <= params[c]; i++)
		s = s (i > 1 ? ", " : "") (group[c] ? "." name[c, i] " = " : "") \
			(type[c, i] == "const void *" ? "(void *)" : "") expression[i]
	for (i = 1; i <= params[c]; i++) has[name[c, i]] = 1
	for (i = 1; group[c] && i <= fields[group[c]]; i++) {
		n = field[group[c], i]
		if (!(n in has)) s = s ", ." n " = 0"
	}
	if (group[c] == "transfer")
		s = s sprintf(", .writes = %s, .all = %s, .position = %s, .form = %s", \
			writes(c), is_all(c), position(c), form(c))
	if (group[c]) s = "&(struct pmpi_" group[c] "){ " s " }"
	return "pmpi_first." member[c] "(" s ")"
}

# Properties of a call for MPI-IO data, which its name tells.
function writes(c) { return call[c] ~ /write/ ? "true" : "false" }
function is_all(c) { return call[c] ~ /_all/ ? "true" : "false" }
function position(c) {
	return call[c] ~ /_at/ ? "PMPI_AT_OFFSET" : call[c] ~ /_shared/ ? "PMPI_AT_SHARED" : \
		call[c] ~ /_ordered/ ? "PMPI_AT_ORDERED" : "PMPI_AT_POINTER"
}
function form(c) {
	return call[c] ~ /^File_i/ ? "PMPI_NONBLOCKING" : call[c] ~ /_begin$/ ? "PMPI_BEGIN" : \
		call[c] ~ /_end$/ ? "PMPI_END" : "PMPI_BLOCKING"
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
function read_source(    n) {
	if (match($0, /^\tPMPI_[A-Z]+/)) place[substr($0, 2, RLENGTH - 1)] = ++places
	if (/^static struct pmpi_feature .*\{$/) { file = FILENAME; sub(/^.*clients\//, "", file) }
	if (match($0, /\.place = PMPI_[A-Z]+/)) {
		order = place[substr($0, RSTART + 9, RLENGTH - 9)]
		file_at[order] = file_at[order] (file_at[order] ? " " : "") file
	}
	while (match($0, /\.[A-Z][a-z_]* = [a-z_]+/)) {
		n = substr($0, RSTART + 1, RLENGTH - 1)
		$0 = substr($0, RSTART + RLENGTH)
		sub(/ = .*/, "", n)
		if (file) takes[n, order] = file
	}
}

# Calls that the same features take share a row.
function write_features(    c, p, path, n, paths, calls_of) {
	for (c = 1; c <= calls; c++) {
		path = ""
		for (p = 1; p <= places; p++)
			if ((member[c], p) in takes)
				path = path (path ? ", " : "") "`" takes[member[c], p] "`"
		if (!(path in calls_of)) paths[++n] = path
		calls_of[path] = calls_of[path] (calls_of[path] ? ", " : "") call[c]
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
	if (c in twin) print "\tif (a->request)\n\t\treturn next_" call[twin[c]] "(a);"
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

function write_struct(g, comment, last,    i, n) {
	print comment "\nstruct pmpi_" g " {"
	for (i = 1; i <= fields[g]; i++) {
		n = field[g, i]
		print "\t" declared(field_type[g, n], n) ";"
	}
	print last "};\n"
}

# Prints the line for each function of a feature, with its name for @ and its parameters for #.
function print_members(line,    c, s, seen) {
	for (c = 1; c <= calls; c++) {
		if (member[c] in seen) continue
		seen[member[c]] = 1
		s = line; gsub(/@/, member[c], s); sub(/#/, c_params(c, "feature"), s)
		print s
	}
}

function write_header() {
	print "/* The calls that the library takes, as features see them. Made from pmpi/calls. */"
	print "#ifndef CALLS_H\n#define CALLS_H\n\n#include <mpi.h>\n#include <stdbool.h>\n"
	print "enum pmpi_position {"
	print "\tPMPI_AT_POINTER, PMPI_AT_OFFSET, PMPI_AT_SHARED, PMPI_AT_ORDERED\n};"
	print "enum pmpi_form { PMPI_BLOCKING, PMPI_NONBLOCKING, PMPI_BEGIN, PMPI_END };\n"
	write_struct("operation", "/* Arguments of a one-sided operation. The others are 0. */")
	write_struct("transfer", "/* Arguments of a call for MPI-IO data. The others are 0. */", \
		"\tbool writes, all;\n\tenum pmpi_position position;\n\tenum pmpi_form form;\n")
	print "struct pmpi_calls {"
	print_members("\tint (*@)(#);")
	print "};\n\n#endif"
}

# Calls the function of MPI that the fields of a transfer describe.
function write_transfer(    c) {
	begin("static int next_File_transfer(const struct pmpi_transfer *a)")
	print "\tstatic int (*const calls[2][2][4][4])(const struct pmpi_transfer *) = {"
	for (c = 1; c <= calls; c++)
		if (group[c] == "transfer")
			printf "\t\t[%s][%s][%s][%s] = next_%s,\n", writes(c), is_all(c), \
				position(c), form(c), call[c]
	print "\t};\n\n\treturn calls[a->writes][a->all][a->position][a->form](a);\n}\n"
}

function write_table(declaration) {
	print declaration " = {"
	print_members("\t.@ = next_@,")
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
		if (member[c] == call[c] || group[c] == "transfer") write_next(c)
	write_transfer()
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
