#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The example that goes on with another number of images: from where a run was killed, it comes to the same as an undisturbed
# one. A copy of it is another program.
. "$(dirname "$0")/coarray_job"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
library=${program%/tests/mpi/*} other=$UMMAP_TEST_FOLDER/other
cp "$program" "$other"

# By the launcher, as users do.
cafrun() { # ARGUMENT ...
	LD_PRELOAD=${layer/$library\/libummap-mpi-$mpi.so.0/} UMMAP_GROUP=coarray.$$ LD_LIBRARY_PATH=$library:${LD_LIBRARY_PATH:-} \
		tools/cafrun "$@" > "$out" 2>&1
}

undisturbed() { # steps
	layer=${layer/$library\/libummap-mpi-$mpi.so.0/} job PCAF_ENABLED=false -- "$1" 2>&1 | grep '^after '
}

ranks=$((ranks + 1)) EXEC=exec job -- 1000000 > "$out" 2>&1 &
first=$!
# Its log grows by some KiB a step.
until [ "$(stat -c %s "$folder/OpenCoarrays_1_1.win.wal" 2> /dev/null || echo 0)" -gt 200000 ]; do
	kill -0 "$first" 2> /dev/null || fail "it ended by itself"
	sleep 0.05
done
! cafrun --path "$UMMAP_TEST_FOLDER/early" --recover "$folder" -n 1 "$program" 1 || fail "a job that still runs was recovered"
grep -q 'cannot read the coarrays in PCAF_RECOVER, .*: another job uses them' "$out" ||
	fail "that it still runs was to be said"
kill_images
wait "$first" 2> /dev/null
step=$("$library/commands/ummap-caf" ls "$folder" | awk '$2 == 4 { print $1 }') && "$library/commands/ummap-caf" export "$folder" "$step" 1 "$out" &&
	step=$(od -An -td4 "$out" | tr -d ' ') && [ "$step" -gt 0 ] || fail "there is no step in the files"
want=$(undisturbed $((step + 20)))
[ -n "$want" ] || fail "it fails in memory"
cafrun --path "$UMMAP_TEST_FOLDER/second" --recover "$folder" -n "$ranks" "$other" $((step + 10)) || fail "it fails with fewer images"
grep -qF "after $((step + 10)) steps" "$out" || fail "it has not gone on"
cafrun --path "$UMMAP_TEST_FOLDER/third" --recover "$UMMAP_TEST_FOLDER/second" -n $((ranks + 2)) "$program" $((step + 20)) || fail "it fails with more images"
grep -qF "$want" "$out" || fail "it should have come to the same: $want"
