#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Small coarrays for which the file of the small ones has no room have files of their own, and are kept as the others are.
. "$(dirname "$0")/coarray_job"
library=${program%/tests/mpi/*}
layer=${layer/$library\/libummap-mpi-$mpi.so.0/}
far=$UMMAP_TEST_FOLDER/far
mkdir "$far"

# Each allocation would be a sync. The launcher may put a line of standard error in front of a line of standard output.
for run in 1 2; do
	job PCAF_SYNCFREQ=10000000 -- "$far" > "$out" 2>&1 && grep -q "run $run$" "$out" || fail "this should have been run $run"
	[ "$(find "$far" -name '*.win' | wc -l)" -eq "$ranks" ] || fail "the last coarray should have its files in $far"
done
