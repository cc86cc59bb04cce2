#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Lines come in the order of sort(1), also where ranks are killed.
set -u
. tests/mpi/mapreduce.bash

# Lines that come often, empty ones, one that is longer than a task, bytes that are no text, and no end of line.
mkdir -p "$in"
cat man/*.7 > "$in/text"
{ head -c 100000 /dev/zero | tr '\0' q; echo; head -c 100000 /dev/urandom; } > "$in/bytes"
: > "$in/zero"
all() { cat "$in/bytes"; echo; cat "$in/text"; }

all | sort > "$want"
for ranks in 1 2 3 5; do by_ranks $ranks; matches -t 50K "$in"; done
by_ranks 3
killed matches -t 50K --table 50K --limit 4M "$in"
all | sort -r > "$want"
matches -r -t 50K "$in"
all | sort -u > "$want"
matches -u -t 50K "$in"
by_ranks 1
expect 0 "usage: sort [options]" --help
expect 1 "cannot read '$folder/nothing': No such file" -q "$folder/nothing"
