#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The counts of the program are those of coreutils with any number of ranks, and errors have a
# message: `tests/mpi/wordcount.sh LAUNCH MPI RANKS PROGRAM`, in UMMAP_TEST_FOLDER.
set -u
. tests/mpi/mapreduce.bash

# The input is text of the sources, a file without a newline at its end, an empty file, a long word
# and a long line.
mkdir -p "$in/sub/empty"
cp -r lib man "$in/sub"
printf 'no end' > "$in/sub/end"
: > "$in/sub/zero"
{ head -c 100000 /dev/zero | tr '\0' q; echo; tr '\n' ' ' < NEWS.md; } > "$in/sub/long"
mkfifo "$in/sub/pipe"
find "$in" -type f -exec sed -s '$G' {} + | tr -cs A-Za-z '\n' | tr A-Z a-z | grep . | sort |
	uniq -c > "$want"

for ranks in 1 2 3 5; do by_ranks $ranks; matches -t 7000 "$in"; done
by_ranks 3
matches -t 70K "$in/sub/lib" "$in/sub/long" "$in/sub/end" "$in/sub/man"
matches --timeline "$folder/timeline" -t 70K "$in"
[ "$(grep -c '^1,[012],[0-9.]*,combine,end,[0-9]*$' "$folder/timeline")" -eq 3 ] ||
	wrong "the timeline does not have three ranks"
killed matches -t 150K --table 50K --limit 4M "$in"
run -o "$got" --storage "$folder/windows" --sync 3 --task 50K "$in" ||
	wrong "with storage: exit status $?"
cmp "$want" "$got" || wrong "with storage: other counts"
grep -q '^map .* of ' "$folder/out" || wrong "no progress"
[ -z "$(ls -A "$folder/windows")" ] || wrong "files are left in the storage folder"
expect 0 "      1 no" -q "$in/sub/end"
expect 1 "cannot read '$folder/nothing': No such file" -q "$folder/nothing"
expect 1 "pipe': it is neither a file nor a folder" -q "$in/sub/pipe"
expect 1 "No space left on device" -q -o /dev/full "$in/sub/end"
# A result that could not be written remains in the storage folder.
expect 1 "No space left on device" -o /dev/full --storage "$folder/windows" "$in"
grep -q '^map ' "$folder/out" || wrong "no progress"
run -o "$got" --storage "$folder/windows" "$in" || wrong "again: exit status $?"
! grep -q '^map ' "$folder/out" ||
	wrong "tasks are mapped again for a result that could not be written"
cmp "$want" "$got" || wrong "again: other counts"
[ -z "$(ls -A "$folder/windows")" ] || wrong "files are left in the storage folder"
# These errors are reported before any task is mapped.
expect 1 "UMMAP_MEM_LIMIT is \"9000000G\"" --limit 9000000G --storage "$folder/windows" "$in"
! grep -q '^map ' "$folder/out" || wrong "an impossible limit is reported after Map"
expect 1 "cannot write '$folder/nowhere/counts': No such file" -o "$folder/nowhere/counts" "$in"
! grep -q '^map ' "$folder/out" || wrong "a missing folder is reported after Map"
expect 1 "cannot write '$in': Is a directory" -o "$in" "$in"
! grep -q '^map ' "$folder/out" || wrong "a folder as output is reported after Map"
cp "$in/sub/end" "$folder/kept"
expect 1 "cannot write '$in/sub/end': it is an input, or in one" \
	-o "$in/sub/end" "$folder/kept" "$in/sub/end"
expect 1 "cannot write '$in/counts': it is an input, or in one" -o "$in/counts" "$in"
cmp "$folder/kept" "$in/sub/end" || wrong "an input was written over"
[ -c /dev/full ] || wrong "/dev/full was replaced"
run -q "$in/sub/zero" "$in/sub/empty" || wrong "nothing to count: exit status $?"
"$program" -q "$in/sub/end" > /dev/full 2> "$folder/out" && wrong "a full disk is no error"
grep -q "No space left" "$folder/out" || wrong "the message lacks the reason"
"$program" -q "$in/sub/end" >&- 2> "$folder/out" && wrong "a closed standard output is no error"
by_ranks 1
expect 0 "usage: ummap-wordcount.$mpi [options]" --help
expect 0 "ummap-wordcount.$mpi (libummap) 0." --version
expect 2 "cannot run: there is no input"
expect 2 "cannot use '5x' for --task: the value is invalid" --task 5x "$in"
expect 2 "cannot use '--colour': there is no such option. Try 'ummap-wordcount.$mpi --help'" \
	--colour "$in"
! grep -q 'usage:' "$folder/out" || wrong "the usage is printed with an error"
expect 2 "cannot use '-o': it needs a value" "$in" -o
