#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Kills a job at random times, and checks its files: `tests/mpi/wal.sh LAUNCH MPI RANKS PROGRAM`, in
# UMMAP_TEST_FOLDER.
folder=${UMMAP_TEST_FOLDER:?}
for ms in 0 $((RANDOM % 50)) $((RANDOM % 200)); do
	# The job cannot end by itself, and the launcher of MPICH 4.2 sometimes returns 0 for a job
	# that was killed.
	"$@" "$folder" "$ms" > "$folder/out" 2>&1
	if grep -q '\] failed:' "$folder/out"; then
		cat "$folder/out"
		echo "wal.sh: a check failed before the job was killed after $ms ms"
		exit 1
	fi
done
"$@" "$folder" check || exit 1
# A job that ends cleanly applies and removes its logs.
if ls "$folder"/log.* > /dev/null 2>&1; then
	echo "wal.sh: logs are left"
	exit 1
fi
