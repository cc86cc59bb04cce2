#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Kills a job at random times: `tests/mpi/objects_kill.sh LAUNCH MPI RANKS PROGRAM`, in
# UMMAP_TEST_FOLDER. `umobject gc` must remove the chunks that killed jobs have staged, and no
# others. With several machines, one of them fails in the end, and the next job runs on the others.
. tests/mpi/gone.bash
folder=${UMMAP_TEST_FOLDER:?}
umobject=$(dirname "$4")/../../../umobject
"$umobject" create "$folder/box" || exit 1
for ms in 0 $((RANDOM % 50)) $((RANDOM % 200)) $((RANDOM % 200)); do
	# Only the kill ends the job. MPICH 4.2 may return 0 for a killed job.
	"$@" "$folder" "$ms" > "$folder/out" 2>&1
	if grep -q '\] failed:' "$folder/out"; then
		cat "$folder/out"
		echo "objects_kill.sh: the job failed before it was killed after $ms ms"
		exit 1
	fi
done
if several_machines; then
	lose_machine_of 3 "$4" "$folder/out" "$@" "$folder" 1000000 || exit 1
fi
"$umobject" gc "$folder/box" > "$folder/gc" || exit 1
"$@" "$folder" check || exit 1
"$umobject" check "$folder/box" || exit 1
# Only the chunks of the newest version are left: 4 of each rank.
chunks=$(find "$folder/box/data" -type f | wc -l)
[ "$chunks" -eq $((4 * $3)) ] || { echo "objects_kill.sh: $chunks chunks are left"; exit 1; }
