#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Kills jobs with an MPI-IO cache CACHED_KILLS times (5), each with other numbers of ranks and
# nodes: `tests/mpi/cachedkill.sh LAUNCH MPI RANKS PROGRAM`, in UMMAP_TEST_FOLDER. With several
# machines, one of them fails in the end; its folder for the cache is in the shared file system.
. tests/mpi/gone.bash
folder=${UMMAP_TEST_FOLDER:?} launch=$1 mpi=$2 max=$3 program=$4
mkdir -p "$folder/near"
run_job() { # ranks, nodes, argument
	UMMAP_TEST_IOCACHE_NODES=$2 "$launch" "$mpi" "$1" "$program" "$folder" "$3" \
		> "$folder/out" 2>&1
}
for ((i = 0; i < ${CACHED_KILLS:-5}; i++)); do
	ranks=$((1 + RANDOM % max)) nodes=$((1 + RANDOM % 3))
	ms=$((i == 0 ? 1000 : RANDOM % 400)) cut=$((1 + RANDOM % 40))
	if run_job "$ranks" "$nodes" "$ms" || grep -q '\] failed:' "$folder/out"; then
		cat "$folder/out"
		echo "cachedkill.sh: the job of $ranks ranks on $nodes nodes ended or failed" \
			"before it was killed after $ms ms"
		exit 1
	fi
	# The next job dies at a call that makes data durable, while it recovers or later. It may
	# have fewer such calls and survive.
	ranks=$((1 + RANDOM % max)) nodes=$((1 + RANDOM % 3))
	run_job "$ranks" "$nodes" "cut=$cut"
	if grep -q '\] failed:' "$folder/out"; then
		cat "$folder/out"
		echo "cachedkill.sh: a check of the job of $ranks ranks on $nodes nodes failed" \
			"before it died at call $cut"
		exit 1
	fi
done
if several_machines; then
	lose_machine_of 4 "$program" "$folder/out" "$launch" "$mpi" "$max" "$program" \
		"$folder" lost || exit 1
fi
run_job "$max" "$((1 + RANDOM % 3))" check || { cat "$folder/out"; exit 1; }
# The file has all data without the cache.
UMMAP_TEST_IOCACHE_NODES=1 run_job 1 1 check || { cat "$folder/out"; exit 1; }
