#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The examples of coarrays: killed on the way, they come to the same as undisturbed. Within tests/mpi/machines, of which there are
# three, one of two machines disappears with all that runs there, and the third one takes its place.
. "$(dirname "$0")/coarray_job"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
library=${program%/tests/mpi/*} hosts=$UMMAP_TEST_FOLDER/hosts
read -ra machines <<< "${MACHINES:-}"
read -ra pids <<< "${MACHINES_PIDS:-}"

use() { # machine ...
	local i
	for i in "$@"; do echo "${machines[i]}$([ "$mpi" = mpich ] || echo ' slots=64')"; done > "$hosts.new" && mv "$hosts.new" "$hosts"
}

among=()
if [ "${#machines[@]}" -gt 0 ]; then
	rsh=$(realpath "$(dirname "$0")/rsh")
	case $mpi in
	openmpi) among=(--mpirun "--hostfile $hosts --map-by node --mca plm_rsh_agent $rsh --mca oob_tcp_if_include 10.77.0.0/24
		--mca btl_tcp_if_include 10.77.0.0/24") ;;
	mpich) among=(--mpirun "-launcher ssh -launcher-exec $rsh -f $hosts -iface switch") ;;
	esac
	among[1]=${among[1]//[$'\n\t']/ }
	use 0 1
fi

kill_something() {
	if [ "${#machines[@]}" -gt 0 ]; then
		use 0 2
		kill -9 "${pids[1]}"
	else
		kill -9 "$(tail -n 1 "$folder/OpenCoarrays_${ranks}.lock")"
	fi
}

job PCAF_ENABLED=false -- 300 > "$out" 2>&1 || fail "it fails in memory"
undisturbed=$(grep 'after 300 steps: ' "$out") || fail "there is no result"
LD_PRELOAD=${layer/$library\/libummap-mpi-$mpi.so.0/} UMMAP_GROUP=coarray.$$ LD_LIBRARY_PATH=$library:${LD_LIBRARY_PATH:-} \
	tools/cafrun --restarts 2 --path "$folder" "${among[@]}" -n "$ranks" "$program" 300 > "$out" 2>&1 &
runner=$!
# After the first sync.
until [ -e "$folder/OpenCoarrays_manifest" ]; do
	kill -0 "$runner" 2> /dev/null || fail "it ended by itself"
	sleep 0.01
done
kill_something
wait "$runner" || fail "it fails after a restart"
grep -q '^ummap cafrun: images have died .*restart 1 of 2' "$out" || fail "it was not killed"
grep -qF "$undisturbed" "$out" || fail "it should have come to the same: $undisturbed"
