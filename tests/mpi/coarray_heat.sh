#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The examples of coarrays: killed on the way, they come to the same as undisturbed.
. "$(dirname "$0")/coarray_job"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
library=${program%/tests/mpi/*}

job PCAF_ENABLED=false -- 300 > "$out" 2>&1 || fail "it fails in memory"
undisturbed=$(grep 'after 300 steps: ' "$out") || fail "there is no result"
LD_PRELOAD=${layer/$library\/libummap-mpi-$mpi.so.0/} UMMAP_GROUP=coarray.$$ LD_LIBRARY_PATH=$library:${LD_LIBRARY_PATH:-} \
	tools/ummap-cafrun --restarts 2 --path "$folder" -n "$ranks" "$program" 300 > "$out" 2>&1 &
runner=$!
# After the first sync.
until [ -e "$folder/OpenCoarrays_manifest" ]; do
	kill -0 "$runner" 2> /dev/null || fail "it ended by itself"
	sleep 0.01
done
kill -9 "$(tail -n 1 "$folder/OpenCoarrays_${ranks}.lock")"
wait "$runner" || fail "it fails after a restart"
grep -q '^ummap-cafrun: images have died .*restart 1 of 2' "$out" || fail "it was not killed"
grep -qF "$undisturbed" "$out" || fail "it should have come to the same: $undisturbed"
