#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The program's counts are those of coreutils, whatever the ranks, and its errors have a sentence:
# `tests/mpi/ummap-wordcount.sh LAUNCH MPI RANKS PROGRAM`, in UMMAP_TEST_FOLDER.
set -u
folder=${UMMAP_TEST_FOLDER:?} launch=("$@") mpi=$2 program=$4
in=$folder/in want=$folder/want got=$folder/got
export LC_ALL=C

wrong() {
	cat "$folder/out"
	echo "ummap-wordcount.sh: $*"
	exit 1
}

run() { # argument ...
	"${launch[@]}" "$@" > "$folder/out" 2>&1
}

expect() { # exit status, text, argument ...
	local status=$1 text=$2
	shift 2
	run "$@"
	[ $? -eq "$status" ] || wrong "$*: not exit status $status"
	grep -qF -- "$text" "$folder/out" || wrong "$*: expected \"$text\""
}

# This folder's own text, a file without an end of line, an empty one, one long word and one long line.
mkdir -p "$in/sub/empty"
cp -r lib man "$in/sub"
printf 'no end' > "$in/sub/end"
: > "$in/sub/zero"
{ head -c 100000 /dev/zero | tr '\0' q; echo; tr '\n' ' ' < NEWS.md; } > "$in/sub/long"
mkfifo "$in/sub/pipe"
find "$in" -type f -exec sed -s '$G' {} + | tr -cs A-Za-z '\n' | tr A-Z a-z | grep . | sort | uniq -c > "$want"

for ranks in 1 2 3 5; do
	launch=(tests/mpi/launch "$mpi" "$ranks" "$program")
	run -q -t 7000 -o "$got" "$in" || wrong "$ranks ranks: exit status $?"
	cmp "$want" "$got" || wrong "$ranks ranks: other counts"
done
mkdir "$folder/windows"
run -o "$got" --storage "$folder/windows" --sync 3 --task 50K "$in" || wrong "with storage: exit status $?"
cmp "$want" "$got" || wrong "with storage: other counts"
grep -q '^map .* of ' "$folder/out" || wrong "no progress"
[ -z "$(ls -A "$folder/windows")" ] || wrong "files are left in the folder for storage"
expect 0 "      1 no" -q "$in/sub/end"
expect 0 "usage: ummap-wordcount" --help
expect 0 " (libummap) 0." --version
expect 2 "usage: ummap-wordcount"
expect 2 '"5x" is no size' --task 5x "$in"
expect 1 "$folder/nothing cannot be read: No such file" -q "$folder/nothing"
expect 1 "pipe is neither a file nor a folder" -q "$in/sub/pipe"
expect 1 "No space left on device" -q -o /dev/full "$in/sub/end"
[ -c /dev/full ] || wrong "/dev/full is a device no more"
run -q "$in/sub/zero" "$in/sub/empty" || wrong "nothing to count: exit status $?"
