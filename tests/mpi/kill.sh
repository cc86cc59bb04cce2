#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Kills a job at random times, and checks its files: `tests/mpi/kill.sh LAUNCH MPI RANKS PROGRAM`,
# in UMMAP_TEST_FOLDER.
folder=${UMMAP_TEST_FOLDER:?}
for ms in 0 $((RANDOM % 50)) $((RANDOM % 200)) $((RANDOM % 200)); do
	# Only the kill ends the job. MPICH 4.2 may return 0 for a killed job.
	"$@" "$folder" "$ms" > "$folder/out" 2>&1
	if grep -q '\] failed:' "$folder/out"; then
		cat "$folder/out"
		echo "kill.sh: the job failed before it was killed after $ms ms"
		exit 1
	fi
done
"$@" "$folder" check
