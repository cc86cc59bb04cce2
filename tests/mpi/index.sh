#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The index is that of grep, sort and awk, also where ranks are killed.
set -u
. tests/mpi/mapreduce.bash

mkdir -p "$in/sub"
cp lib/*/*.h include/*.h "$in/sub"
cp NEWS.md "$in/sub/with blanks"
printf 'no end' > "$in/end"
: > "$in/zero"
grep -roE '[A-Za-z]+' "$in" | awk -F: '{ print tolower($2) "\t" $1 }' | sort -u |
	awk -F'\t' '$1 != word { if (NR > 1) print line; word = line = $1 } { line = line "\t" $2 } END { print line }' > "$want"

for ranks in 1 2 3 5; do by_ranks $ranks; matches -t 20K "$in"; done
by_ranks 3
killed matches -t 20K --table 100K --limit 4M "$in"
by_ranks 1
expect 0 "usage: index [options]" --help
expect 1 "cannot read '$folder/nothing': No such file" -q "$folder/nothing"
