#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Kills jobs with parallel HDF5 over the MPI-IO cache, and restarts them with other numbers of ranks
# and nodes: `tests/mpi/cachedhdf5.sh LAUNCH MPI RANKS PROGRAM`, in UMMAP_TEST_FOLDER.
folder=${UMMAP_TEST_FOLDER:?} launch=$1 mpi=$2 max=$3 program=$4
if [ ! -x "$program" ]; then
	echo "cachedhdf5.sh: there is no parallel HDF5 for $mpi (libhdf5-$mpi-dev)"
	exit 77
fi
mkdir -p "$folder/near"
export UMMAP_IOCACHE_ALL=$folder UMMAP_IOCACHE_PATH=$folder/near
run_job() { # ranks, nodes, argument
	UMMAP_TEST_IOCACHE_NODES=$2 "$launch" "$mpi" "$1" "$program" "$folder" "$3" \
		> "$folder/out" 2>&1
}
fail() {
	cat "$folder/out"
	echo "cachedhdf5.sh: $1"
	exit 1
}
last=0
for ((i = 0; i < ${HDF5_KILLS:-4}; i++)); do
	versions=$((1 + RANDOM % 4)) last=$((last + versions))
	run_job $((1 + RANDOM % max)) $((1 + i % 2)) "$versions"
	grep -q '\] failed:' "$folder/out" && fail "a check failed in job $i"
	found=$(od -An -tu4 "$folder/acknowledged" 2> /dev/null)
	[ $((found)) -eq "$last" ] || fail "job $i ended at version $((found)), not $last"
	# The data is in the near files, so the test is one of the cache.
	compgen -G "$folder/near/*" > "$folder/out" || fail "job $i did not use the cache"
done
run_job "$max" 2 check || fail "versions are missing"
# The closed file has all versions without the cache.
unset UMMAP_IOCACHE_ALL UMMAP_IOCACHE_PATH
run_job 1 1 check || fail "versions are missing in the file"
