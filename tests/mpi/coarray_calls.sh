#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The calls of include/ummap_coarray.f90, in a program that is linked with the library.
. "$(dirname "$0")/coarray_job"
layer=$other_layers
for run in 1 2 3; do
	! job PCAF_SYNCFREQ=10000000 -- "$UMMAP_TEST_FOLDER/report" > "$out" 2>&1 ||
		fail "the program does not end with an error"
	grep -q "^run $run$" "$UMMAP_TEST_FOLDER/report" || fail "this is not run $run"
done
