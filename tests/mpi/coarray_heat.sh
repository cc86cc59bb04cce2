#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# An example of coarrays that is killed has the same result as without. If tests/mpi/machines has
# started the test on three pretended machines, one of two machines disappears with all its
# processes, and the third one replaces it.
. "$(dirname "$0")/coarray_job"
hosts=$UMMAP_TEST_FOLDER/hosts
read -ra machines <<< "${MACHINES:-}"
read -ra pids <<< "${MACHINES_PIDS:-}"

use_machines() { # machine ...
	local i slots=' slots=64'
	[ "$mpi" != mpich ] || slots=
	for i in "$@"; do echo "${machines[i]}$slots"; done > "$hosts.new"
	mv "$hosts.new" "$hosts"
}

among=()
if [ "${#machines[@]}" -gt 0 ]; then
	rsh=$(realpath "$(dirname "$0")/rsh")
	case $mpi in
	openmpi)
		among=(--mpirun "--hostfile $hosts --map-by node --mca plm_rsh_agent $rsh
			--mca oob_tcp_if_include 10.77.0.0/24
			--mca btl_tcp_if_include 10.77.0.0/24")
		;;
	mpich) among=(--mpirun "-launcher ssh -launcher-exec $rsh -f $hosts -iface switch") ;;
	esac
	among[1]=${among[1]//[$'\n\t']/ }
	use_machines 0 1
fi

kill_machine_or_image() {
	if [ "${#machines[@]}" -gt 0 ]; then
		use_machines 0 2
		kill -9 "${pids[1]}"
	else
		kill -9 "$(tail -n 1 "$folder/OpenCoarrays_${ranks}.lock")"
	fi
}

job PCAF_ENABLED=false -- 300 > "$out" 2>&1 || fail "the program fails in memory"
result=$(grep 'after 300 steps: ' "$out") || fail "there is no result"
run_cafrun --restarts 2 --path "$folder" "${among[@]}" -n "$ranks" "$program" 300 > "$out" 2>&1 &
runner=$!
until [ -e "$folder/OpenCoarrays_manifest" ]; do
	kill -0 "$runner" 2> /dev/null || fail "the job has ended before it was killed"
	sleep 0.01
done
kill_machine_or_image
wait "$runner" || fail "the job fails after a restart"
grep -q '^ummap cafrun: images have died .*restart 1 of 2' "$out" || fail "no image has died"
grep -qF "$result" "$out" || fail "the result is not: $result"
