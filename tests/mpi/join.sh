#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The result is that of join(1), also if ranks are killed. Lines of one key come in any order.
set -u
. tests/mpi/mapreduce.bash

# The tables have keys of one table only, repeated keys, empty keys, empty and missing fields, and
# no newline at the end.
mkdir -p "$in"
awk 'BEGIN { srand(1); for (i = 0; i < 8000; i++)
	printf "key%d\tleft %d\t%s\n", rand() * 6000, i, i % 3 ? "" : "x y" }' > "$in/left"
awk 'BEGIN { srand(2); for (i = 0; i < 8000; i++)
	print "key" int(rand() * 6000) "\tright " i }' > "$in/right"
printf '\tempty\nalone\nboth\n\nboth\tfields\n' >> "$in/left"
printf '\t\nboth\nboth\t2\nother\nboth\t1' >> "$in/right"
{ cat "$in/right"; echo; } | sort > "$folder/sorted"
sort "$in/left" | join -t $'\t' - "$folder/sorted" | sort > "$want"

sorted() { # argument ...
	run -q -o "$got" "$@" || wrong "${launch[2]} ranks, $*: exit status $?"
	cut -f1 "$got" | sort -c || wrong "${launch[2]} ranks, $*: keys are not in order"
	sort -o "$got" "$got"
	cmp "$want" "$got" || wrong "${launch[2]} ranks, $*: another result"
}

for ranks in 1 2 3 5; do by_ranks $ranks; sorted -t 20K "$in/left" "$in/right"; done
by_ranks 3
killed sorted -t 20K --table 50K --limit 4M "$in/left" "$in/right"
by_ranks 1
expect 0 "usage: join [options]" --help
expect 1 "cannot join: two tables are needed" "$in/left"
expect 1 "cannot join: both tables have the same name" "$in/left" "$in/left"
expect 1 "cannot join: a table is a folder" "$in/left" "$in"
