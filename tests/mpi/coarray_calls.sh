#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The calls of include/ummap_coarray.f90, in a program that needs no preloading.
. "$(dirname "$0")/coarray_job"
layer=${layer/${program%\/tests\/mpi\/*}\/libummap-mpi-$mpi.so.0/}
for run in 1 2 3; do
	! job PCAF_SYNCFREQ=10000000 -- "$UMMAP_TEST_FOLDER/report" > "$out" 2>&1 || fail "the program was to stop"
	grep -q "^run $run$" "$UMMAP_TEST_FOLDER/report" || fail "this should have been run $run"
done
