#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# pcaf_config with a folder: the files are there from then on, also in later runs, and after a run
# that has died.
. "$(dirname "$0")/coarray_job"
layer=$other_layers
far=$UMMAP_TEST_FOLDER/far% told=$UMMAP_TEST_FOLDER/told again=$UMMAP_TEST_FOLDER/again
mkdir "$far" "$again"

run() { # run, ARGUMENT ...
	local n=$1
	shift
	job -- "$@" > "$out" 2>&1 && grep -q "^run $n$" "$out" || fail "this is not run $n"
	! grep -q ' warn io: ' "$out" || fail "there is a warning without an error"
}

dies() { # ARGUMENT ...
	rm -f "$told"
	! job -- "$@" "$told" > "$out" 2>&1 || fail "the program does not end with an error"
	[ -e "$told" ] || fail "the program ends too early"
}

files_at() { # folder, number
	[ "$(find "$1" -name '*.win' | wc -l)" -eq "$2" ] && return
	ls -l "$1" >> "$out"
	fail "the number of files in $1 is not $2"
}

per_image=3
[ "${PCAF_SHAREDFILE:-}" != true ] || per_image=1
run 1 "$far"
files_at "$far" "$ranks"
files_at "$folder" $(((per_image == 1 ? 1 : per_image - 1) * ranks))
run 2 "$far"
dies "$far" die
run 4 "$far"
tool=$build/commands/ummap-caf
"$tool" ls "$folder" > "$out" || fail "ummap caf does not find the coarrays"
contents=$(for order in $("$tool" ls "$folder" | awk '$2 == 120000 { print $1 }'); do
	"$tool" export "$folder" "$order" "$ranks" "$UMMAP_TEST_FOLDER/part" &&
		od -v -w4 -An -td4 "$UMMAP_TEST_FOLDER/part"
done | sort -u)
[ "$(echo $contents)" = "7 9" ] || fail "ummap caf has $contents"
# The run dies after the move. The next one moves the files back.
dies "$again" early
[ "${PCAF_SHAREDFILE:-}" = true ] || files_at "$far" 0
files_at "$again" "$ranks"
run 5 "$folder"
[ "${PCAF_SHAREDFILE:-}" = true ] || files_at "$again" 0

refuse "none': the path must be a folder that exists" -- "$UMMAP_TEST_FOLDER/none"
refuse 'share one file in PCAF_PATH' -- "$far" small
run 6 "$folder"
