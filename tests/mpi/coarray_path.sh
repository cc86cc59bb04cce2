#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# pcaf_config with a folder: files are there from then on, in later runs too, also after one that has died.
. "$(dirname "$0")/coarray_job"
library=${program%/tests/mpi/*}
layer=${layer/$library\/libummap-mpi-$mpi.so.0/}
far=$UMMAP_TEST_FOLDER/far% told=$UMMAP_TEST_FOLDER/told again=$UMMAP_TEST_FOLDER/again
mkdir "$far" "$again"

run() { # run, ARGUMENT ...
	local n=$1
	shift
	job -- "$@" > "$out" 2>&1 && grep -q "^run $n$" "$out" || fail "this should have been run $n"
	! grep -q ' warn io: ' "$out" || fail "what works is no reason for a warning"
}

dies() { # ARGUMENT ...
	rm -f "$told"
	! job -- "$@" "$told" > "$out" 2>&1 || fail "it was to stop"
	[ -e "$told" ] || fail "it was to stop as it was told"
}

files_at() { # folder, how many
	[ "$(find "$1" -name '*.win' | wc -l)" -eq "$2" ] || { ls -l "$1" >> "$out"; fail "there should be $2 files in $1"; }
}

per_image=3
[ "${PCAF_SHAREDFILE:-}" != true ] || per_image=1
run 1 "$far"
files_at "$far" "$ranks"
files_at "$folder" $(((per_image == 1 ? 1 : per_image - 1) * ranks))
run 2 "$far"
dies "$far" die
run 4 "$far"
"$library/commands/ummap-caf" ls "$folder" > "$out" || fail "ummap caf does not find it"
contents=$(for order in $("$library/commands/ummap-caf" ls "$folder" | awk '$2 == 120000 { print $1 }'); do
	"$library/commands/ummap-caf" export "$folder" "$order" "$ranks" "$UMMAP_TEST_FOLDER/part" &&
		od -v -w4 -An -td4 "$UMMAP_TEST_FOLDER/part" | sort -u
done)
[ "$(echo $contents)" = "7 9" ] || [ "$(echo $contents)" = "9 7" ] || fail "ummap caf has $contents"
# Killed right behind the move, and back to where all others are.
dies "$again" early
[ "${PCAF_SHAREDFILE:-}" = true ] || files_at "$far" 0
files_at "$again" "$ranks"
run 5 "$folder"
[ "${PCAF_SHAREDFILE:-}" = true ] || files_at "$again" 0

refuse "none': the path must be a folder that exists" -- "$UMMAP_TEST_FOLDER/none"
refuse 'share one file in PCAF_PATH' -- "$far" small
run 6 "$folder"
