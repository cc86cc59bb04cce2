#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The example that continues with another number of images. It continues from a run that was killed,
# and its result is that of an undisturbed run. A copy of the program is another program.
. "$(dirname "$0")/coarray_job"
other=$UMMAP_TEST_FOLDER/other tool=$build/commands/ummap-caf
cp "$program" "$other"

cafrun() { # ARGUMENT ...
	run_cafrun "$@" > "$out" 2>&1
}

run_in_memory() { # steps
	layer=$other_layers job PCAF_ENABLED=false -- "$1" 2>&1 | grep '^after '
}

ranks=$((ranks + 1)) EXEC=exec job -- 1000000 > "$out" 2>&1 &
first=$!
# The log grows by some KiB in each step.
until [ "$(stat -c %s "$folder/OpenCoarrays_1_1.win.wal" 2> /dev/null || echo 0)" -gt 200000 ]; do
	kill -0 "$first" 2> /dev/null || fail "the job has ended before it was killed"
	sleep 0.05
done
! cafrun --path "$UMMAP_TEST_FOLDER/early" --recover "$folder" -n 1 "$program" 1 ||
	fail "the files of a running job are not refused"
grep -q 'cannot read the coarrays in PCAF_RECOVER, .*: another job uses them' "$out" ||
	fail "the message for the files of a running job is wrong"
kill_images
wait "$first" 2> /dev/null
order=$("$tool" ls "$folder" | awk '$2 == 4 { print $1 }')
"$tool" export "$folder" "$order" 1 "$out" && step=$(od -An -td4 "$out" | tr -d ' ') &&
	[ "$step" -gt 0 ] || fail "there is no step in the files"
want=$(run_in_memory $((step + 20)))
[ -n "$want" ] || fail "the program fails in memory"
cafrun --path "$UMMAP_TEST_FOLDER/second" --recover "$folder" -n "$ranks" "$other" $((step + 10)) ||
	fail "the program fails with fewer images"
grep -qF "after $((step + 10)) steps" "$out" || fail "the program has not continued"
cafrun --path "$UMMAP_TEST_FOLDER/third" --recover "$UMMAP_TEST_FOLDER/second" \
	-n $((ranks + 2)) "$program" $((step + 20)) || fail "the program fails with more images"
grep -qF "$want" "$out" || fail "the result is not: $want"
