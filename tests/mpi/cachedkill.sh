#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Kills jobs with a cached file again and again, each with other ranks and nodes: `tests/mpi/cachedkill.sh LAUNCH MPI RANKS PROGRAM`,
# in UMMAP_TEST_FOLDER; CACHED_KILLS times (5). Among machines, one of them is gone in the end; others can reach its cache.
. tests/mpi/gone.bash
folder=${UMMAP_TEST_FOLDER:?} launch=$1 mpi=$2 most=$3 program=$4
mkdir -p "$folder/near"
run() { # RANKS NODES ARGUMENT
	UMMAP_TEST_IOCACHE_NODES=$2 "$launch" "$mpi" "$1" "$program" "$folder" "$3" > "$folder/out" 2>&1
}
for ((i = 0; i < ${CACHED_KILLS:-5}; i++)); do
	ranks=$((1 + RANDOM % most)) nodes=$((1 + RANDOM % 3)) ms=$((i == 0 ? 1000 : RANDOM % 400)) cut=$((1 + RANDOM % 40))
	if run "$ranks" "$nodes" "$ms" || grep -q '\] failed:' "$folder/out"; then
		cat "$folder/out"
		echo "cachedkill.sh: the job of $ranks ranks on $nodes nodes was to be killed after $ms ms, and nothing else"
		exit 1
	fi
	# The next one dies while it goes on with that, or later, or has no more such calls.
	ranks=$((1 + RANDOM % most)) nodes=$((1 + RANDOM % 3))
	run "$ranks" "$nodes" "cut=$cut"
	if grep -q '\] failed:' "$folder/out"; then
		cat "$folder/out"
		echo "cachedkill.sh: the job of $ranks ranks on $nodes nodes was to die at a call, $cut"
		exit 1
	fi
done
if several_machines; then
	lose_machine_of 4 "$program" "$folder/out" "$launch" "$mpi" "$most" "$program" "$folder" lost || exit 1
fi
run "$most" "$((1 + RANDOM % 3))" check || { cat "$folder/out"; exit 1; }
# The file is complete without the cache, and has every version in the end.
UMMAP_TEST_IOCACHE_NODES=1 run 1 1 check || { cat "$folder/out"; exit 1; }
