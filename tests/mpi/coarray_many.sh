#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Small coarrays that do not fit into the file for small coarrays have files of their own.
. "$(dirname "$0")/coarray_job"
layer=$other_layers
far=$UMMAP_TEST_FOLDER/far
mkdir "$far"

# Without PCAF_SYNCFREQ, each allocation would sync. The launcher may put a line of the standard
# error in front of a line of the standard output.
for run in 1 2; do
	job PCAF_SYNCFREQ=10000000 -- "$far" > "$out" 2>&1 && grep -q "run $run$" "$out" ||
		fail "this is not run $run"
	[ "$(find "$far" -name '*.win' | wc -l)" -eq "$ranks" ] ||
		fail "$far does not have the files of the last coarray"
done
