# SPDX-License-Identifier: BSD-3-Clause
# Functions for tests in which a machine of tests/mpi/machines fails suddenly, with its ranks and
# its network.

read -ra hosts <<< "${MACHINES:-}"
read -ra keepers <<< "${MACHINES_PIDS:-}"

several_machines() {
	[ ${#hosts[@]} -gt 1 ]
}

# Ends the last machine. Later launches use the other machines.
lose_machine() {
	kill -9 "${keepers[-1]}"
	unset 'keepers[-1]' 'hosts[-1]'
	MACHINES=${hosts[*]}
}

# Ends the rest of a job, because launchers may wait for a lost machine until TCP gives up. All
# processes of this namespace belong to the test.
end_job() { # launcher, program
	local pid
	for _ in {1..60}; do kill -0 "$1" 2> /dev/null || return; sleep 0.05; done
	kill -9 "$1"
	for pid in /proc/[0-9]*; do
		case $(readlink "$pid/exe") in
		"$(realpath "$2")" | */orted | */hydra_pmi_proxy) kill -9 "${pid#/proc/}" ;;
		esac
	done
} 2> /dev/null

# Runs a job that does not end by itself, and ends a machine. No check of a rank may fail.
lose_machine_of() { # maximum number of seconds, program, output, command ...
	local max=$1 program=$2 out=$3
	shift 3
	"$@" > "$out" 2>&1 &
	sleep "$((RANDOM % max)).$((RANDOM % 10))"
	lose_machine
	end_job $! "$program"
	grep -q '\] failed:' "$out" || return 0
	cat "$out"
	echo "$(basename "$0"): a check failed in a job that lost a machine"
	return 1
}
