# SPDX-License-Identifier: BSD-3-Clause
# Reads umrun/wrappers, which explains its format, and writes C: the header umrun/next_calls.h; with
# `-v part=base` or `-v part=heap` the wrappers of libumrun, or those that libumrun-heap adds.

# ---- Reading ----

function die(text) {
	print FILENAME ":" FNR ": " text > "/dev/stderr"
	failed = 1
	exit 1
}

# Takes the text up to the bracket that closes the one in front of it, out of the variable rest.
function take_bracket(    i, depth, c, text) {
	for (i = 1; i <= length(rest); i++) {
		c = substr(rest, i, 1)
		depth += (c == "(") - (c == ")")
		if (depth < 0) break
	}
	if (depth >= 0) die("\"" rest "\" lacks a bracket")
	text = substr(rest, 1, i - 1)
	rest = substr(rest, i + 1)
	return text
}

# Splits a list of parameters at the commas that no bracket encloses.
function split_list(text, part,    i, n, depth, c) {
	n = 1
	part[1] = ""
	for (i = 1; i <= length(text); i++) {
		c = substr(text, i, 1)
		depth += (c == "(") - (c == ")")
		if (c == "," && !depth) part[++n] = ""
		else part[n] = part[n] c
	}
	for (i = 1; i <= n; i++) gsub(/^ +| +$/, "", part[i])
	return text == "" || text == "void" ? 0 : n
}

function name_of(param) {
	if (match(param, /\(\*[a-z_]+\)/)) return substr(param, RSTART + 2, RLENGTH - 3)
	match(param, /[a-z_]+$/)
	return substr(param, RSTART)
}

function read_param(r, i, text) {
	exists[r, i] = "1"
	if (sub(/^\.\.\. /, "", text)) {
		variable[r, i] = 1
		if (sub(/^if\(/, "", text)) {
			rest = text
			exists[r, i] = take_bracket()
			text = substr(rest, 2)
		}
	}
	if (match(text, /^(in|out)[ (]/)) {
		way[r, i] = substr(text, 1, RLENGTH - 1)
		rest = substr(text, RLENGTH + 1)
		size[r, i] = substr(text, RLENGTH, 1) == "(" ? take_bracket() : "sizeof(*@)"
		text = rest
		sub(/^ /, "", text)
	}
	if (sub(/^part /, "", text)) part_of[r, i] = 1
	if (sub(/^mask /, "", text)) mask[r] = i
	param[r, i] = text
	name[r, i] = name_of(text)
	sub(/@/, name[r, i], size[r, i])
}

function read_record(text,    r, i, at, list) {
	r = ++records
	heap[r] = is_heap
	if (match(text, /^(program|signals|memory|always|kernel|noreturn|next): /)) {
		word[r] = substr(text, 1, RLENGTH - 2)
		text = substr(text, RLENGTH + 1)
	}
	if (!match(text, /[A-Za-z_0-9]+\(/)) die("\"" text "\" is not a call")
	call[r] = substr(text, RSTART, RLENGTH - 1)
	type[r] = substr(text, 1, RSTART - 1)
	sub(/ $/, "", type[r])
	rest = substr(text, RSTART + RLENGTH)
	params[r] = split_list(take_bracket(), list)
	for (i = 1; i <= params[r]; i++) { saved = rest; read_param(r, i, list[i]); rest = saved }
	sub(/^ *= */, "", rest)
	symbols[r, 0] = rest
}

function read_twin(r, text,    t, at) {
	t = ++twins[r]
	if (!match(text, /^[A-Za-z_0-9]+\(/)) die("\"" text "\" is not a call")
	twin[r, t] = substr(text, 1, RLENGTH - 1)
	rest = substr(text, RLENGTH + 1)
	twin_params[r, t] = take_bracket()
	if ((at = match(rest, / = [A-Za-z_0-9 ]+$/))) {
		symbols[r, t] = substr(rest, at + 3)
		rest = substr(rest, 1, at - 1)
	}
	if (sub(/^ if /, "", rest)) check[r, t] = rest
}

function read_line(text,    r) {
	r = records
	if (sub(/^if /, "", text)) condition[r] = text
	else if (sub(/^first /, "", text)) first[r] = text
	else if (sub(/^try /, "", text)) attempt[r] = text
	else if (sub(/^-> /, "", text)) action[r] = text
	else if (sub(/^twin /, "", text)) read_twin(r, text)
	else die("\"" text "\" has no rule")
}

function finish(    text, n, line) {
	text = pending
	pending = ""
	if (text == "") return
	if (sub(/^\t/, "", text)) { read_line(text); return }
	n = split(text, line, /; /)
	read_record(line[1])
	if (n > 1) read_line(line[2])
}

function complete(r,    needs_caller) {
	if (first[r] attempt[r] action[r] mask[r] || word[r] == "next" || is_pinned(r)) return
	needs_caller = word[r] ~ /^(always|kernel)$/
	action[r] = "take_" call[r] "(" (needs_caller ? "CALLER" : "") \
		(needs_caller && params[r] ? ", " : "") arguments(r) ")"
}

# ---- Lists ----

function without_name(p, n) {
	if (p ~ /\(\*/) sub("\\(\\*" n "\\)", "(*)", p)
	else sub(n "$", "", p)
	sub(/ $/, "", p)
	return p
}

function types(r,    i, s) {
	for (i = 1; i <= params[r]; i++)
		s = s (i > 1 ? ", " : "") without_name(param[r, i], name[r, i])
	return params[r] ? s : "void"
}

function declared(r,    i, s) {
	for (i = 1; i <= params[r]; i++) s = s (i > 1 ? ", " : "") param[r, i]
	return params[r] ? s : "void"
}

function typed(t, n) { return t (t ~ /\*$/ ? "" : " ") n }

function next_name(r) { return (word[r] ~ /^(kernel|memory)$/ ? "kernel_" : "next_") call[r] }

function arguments(r, masked,    i, s) {
	for (i = 1; i <= params[r]; i++)
		s = s (i > 1 ? ", " : "") \
			(masked && mask[r] == i ? "signals_mask(" name[r, i] ", &room_for_mask)" : \
			name[r, i])
	return s
}

# ---- The header ----

function write_next(r,    args) {
	args = arguments(r)
	print "static inline " typed(type[r], next_name(r)) "(" declared(r) ")\n{"
	printf "\t%s", type[r] == "void" ? "" : "return "
	if (next_name(r) ~ /^kernel/)
		print "(" type[r] ")syscall(SYS_" call[r] ", " args ");\n}\n"
	else
		print "((" typed(type[r], "(*)") "(" types(r) "))next_call(CALL_" call[r] "))(" \
			args ");\n}\n"
}

# The function of a feature: take_ or before_, and given parameters of the call only.
function write_prototype(r, expression, result,    n, f, i, j, k, list, s) {
	if (!match(expression, /^(take|before)_[A-Za-z_0-9]+\([A-Za-z_, 0-9]*\)$/)) return
	f = substr(expression, 1, index(expression, "(") - 1)
	rest = substr(expression, length(f) + 2)
	n = split_list(take_bracket(), list)
	for (i = 1; i <= n; i++) {
		k = 0
		for (j = 1; j <= params[r]; j++) if (name[r, j] == list[i]) k = j
		if (!k && list[i] != "CALLER") return
		s = s (i > 1 ? ", " : "") (k ? param[r, k] : "const void *caller")
	}
	if (!declares[f]++) print typed(result, f) "(" (n ? s : "void") ");"
}

function write_header(    r, i, n, header) {
	print "/* The next library's functions, and those of features. Made from umrun/wrappers. */"
	print "#ifndef UMRUN_NEXT_CALLS_H\n#define UMRUN_NEXT_CALLS_H\n"
	print "#include \"umrun/next.h\"\n"
	n = split("aio dirent errno fcntl limits malloc poll pthread sched signal spawn stdarg " \
		"stdatomic stdint stdio stdlib string sys/epoll sys/ioctl sys/mman sys/random " \
		"sys/select sys/sendfile sys/socket sys/stat sys/syscall sys/uio sys/xattr unistd",
		header, " ")
	for (i = 1; i <= n; i++) print "#include <" header[i] ".h>"
	print ""
	print "enum next_call_number {"
	for (r = 1; r <= records; r++) print "\tCALL_" call[r] ","
	print "\tCALL_COUNT\n};\n\n#define CALL_NAMES { \\"
	for (r = 1; r <= records; r++) print "\t\"" call[r] "\", \\"
	print "}\n"
	print "/* Addresses of the functions, once they are known. */"
	print "extern void *_Atomic next_found[CALL_COUNT];\nvoid *next_find(int number);\n"
	print "static inline void *next_call(int number)\n{"
	print "\tvoid *found = atomic_load_explicit(&next_found[number], memory_order_relaxed);\n"
	print "\treturn found ? found : next_find(number);\n}\n"
	for (r = 1; r <= records; r++) write_next(r)
	for (r = 1; r <= records; r++) {
		write_prototype(r, first[r], "void")
		write_prototype(r, attempt[r], "int")
		write_prototype(r, action[r], type[r])
	}
	print "\n#endif"
}

# ---- Wrappers ----

function guard(r,    g) {
	if (word[r] ~ /^(always|kernel|noreturn)$/) return ""
	g = "next_is_library(CALLER)"
	if (word[r] == "signals") g = "region_kernel_can_access || " g
	else if (word[r] != "program") g = "!region_count || " g
	return g (condition[r] ? " || !(" condition[r] ")" : "")
}

function give(r, expression, indent) {
	if (type[r] == "void") print indent expression ";"
	else print indent "return " expression ";"
}

function is_pinned(r,    i) {
	for (i = 1; i <= params[r]; i++) if (way[r, i]) return 1
	return 0
}

function write_pins(r,    i, j) {
	for (i = 1; i <= params[r]; i++)
		if (part_of[r, i])
			for (j = 1; j <= params[r]; j++)
				if (size[r, j] == name[r, i])
					print "\t" name[r, i] " = limit_part(" name[r, j] ", " \
						name[r, i] ");"
	for (i = 1; i <= params[r]; i++)
		if (way[r, i])
			print "\tpin(&pins_" name[r, i] ", " name[r, i] ", " size[r, i] ", " \
				(way[r, i] == "in" ? "PROT_READ" : "PROT_READ | PROT_WRITE") ");"
}

# The part of a body behind the declarations and the check.
function write_call(r,    i, g, next_one) {
	next_one = next_name(r) "(" arguments(r, 1) ")"
	g = guard(r)
	if (g) {
		print "\tif (" g ")"
		give(r, next_one, "\t\t")
	}
	if (first[r]) print "\terror = errno;\n\t" first[r] ";\n\terrno = error;"
	if (attempt[r]) print "\tif (" attempt[r] " < 0)\n\t\treturn -1;"
	if (is_pinned(r)) {
		write_pins(r)
		print "\tresult = " next_one ";"
		for (i = 1; i <= params[r]; i++)
			if (way[r, i]) print "\tunpin(&pins_" name[r, i] ");"
		print "\treturn result;"
	} else
		give(r, action[r] ? action[r] : next_one, "\t")
	if (word[r] == "noreturn") print "\t__builtin_unreachable();"
}

# Parameters of a wrapper (t is 0) or of a twin, as declared.
function wrapper_params(r, t,    i, k, n, list, s, p) {
	if (t) {
		n = split_list(twin_params[r, t], list)
		for (k = 1; k <= n; k++) {
			p = list[k]
			has[p] = 1
			for (i = 1; i <= params[r]; i++) if (name[r, i] == list[k]) p = param[r, i]
			s = s (k > 1 ? ", " : "") p
		}
		return s
	}
	for (i = 1; i <= params[r]; i++)
		if (!variable[r, i]) s = s (s ? ", " : "") param[r, i]
		else return s ", ..."
	return params[r] ? s : "void"
}

function last_fixed(r,    i, n) {
	for (i = 1; i <= params[r] && !variable[r, i]; i++) n = name[r, i]
	return n
}

function write_wrapper(r, t,    i, f, header, uses_list, masked, before) {
	delete has
	f = t ? twin[r, t] : call[r]
	header = typed("PUBLIC " type[r], f) "(" wrapper_params(r, t) ")"
	print header ";\n" header "\n{"
	for (i = 1; i <= params[r]; i++) {
		if (way[r, i]) print "\tstruct pins pins_" name[r, i] ";"
		if (t && !(name[r, i] in has)) print "\t" param[r, i] " = 0;"
		if (t || !variable[r, i]) continue
		print "\t" param[r, i] (param[r, i] ~ /^va_list/ ? "" : " = 0") ";"
		uses_list = uses_list (param[r, i] ~ /^va_list/ ? "" : 1)
	}
	if (mask[r]) print "\tsigset_t room_for_mask;"
	if (first[r]) print "\tint error;"
	if (is_pinned(r)) print "\t" typed(type[r], "result;")
	if (!t && uses_list) {
		print "\tva_list list;\n\n\tva_start(list, " last_fixed(r) ");"
		for (i = 1; i <= params[r]; i++)
			if (variable[r, i])
				print (exists[r, i] == "1" ? "" : "\tif (" exists[r, i] ")\n\t") \
					"\t" name[r, i] " = va_arg(list, " \
					without_name(param[r, i], name[r, i]) ");"
		print "\tva_end(list);"
	}
	if (check[r, t]) print "\tif (!(" check[r, t] "))\n\t\tnext___chk_fail();"
	if (params[r] && param[r, params[r]] ~ /^va_list/ && variable[r, params[r]]) {
		i = params[r]
		print "\t" typed(type[r], "result;")
		print "\n\tva_start(" name[r, i] ", " last_fixed(r) ");"
		print "\tresult = " action[r] ";\n\tva_end(" name[r, i] ");\n\treturn result;"
	} else
		write_call(r)
	print "}\n"
	write_aliases(r, f, symbols[r, t])
}

# The compiler sees other names than the program: headers declare these with types of their own.
function write_aliases(r, f, list,    i, n, part_) {
	n = split(list, part_, " ")
	for (i = 1; i <= n; i++)
		print "PUBLIC __typeof__(" f ") alias_" part_[i] " __asm__(\"" part_[i] "\")\n" \
			"\t__attribute__((alias(\"" f "\")));\n"
}

function write_wrappers(    r, t) {
	print "/* The functions that programs call. Made from umrun/wrappers. */"
	print "#include \"umrun/calls.h\"\n#include \"umrun/choice.h\""
	print "#include \"umrun/heap.h\"\n#include \"umrun/list.h\"\n#include \"umrun/process.h\""
	print "#include \"umrun/signals.h\"\n"
	print "#if defined(__GNUC__) && !defined(__clang__)"
	print "#pragma GCC diagnostic ignored \"-Wmissing-attributes\"\n#endif\n"
	print "#undef fread_unlocked\n#undef fwrite_unlocked\n"
	for (r = 1; r <= records; r++) {
		if (word[r] == "next" || heap[r] != (part == "heap")) continue
		for (t = 0; t <= twins[r]; t++) write_wrapper(r, t)
	}
}

/^@heap$/ { finish(); is_heap = 1; next }
/^(#|$)/ { finish(); next }
/^\t(if|first|try|->|twin) / || /^[^\t]/ { finish(); pending = $0; next }
{ sub(/^[ \t]+/, ""); pending = pending " " $0 }
END {
	if (failed) exit 1
	finish()
	for (r = 1; r <= records; r++) complete(r)
	if (!part) write_header()
	else write_wrappers()
}
