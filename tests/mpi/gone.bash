# SPDX-License-Identifier: BSD-3-Clause
# Among machines (tests/mpi/machines), one of them is gone from one moment to the next, with its ranks and its network.

read -ra hosts <<< "${MACHINES:-}"
read -ra keepers <<< "${MACHINES_PIDS:-}"

several_machines() {
	[ ${#hosts[@]} -gt 1 ]
}

# The last one; what is launched from now on is on those that are left.
lose_machine() {
	kill -9 "${keepers[-1]}"
	unset 'keepers[-1]' 'hosts[-1]'
	MACHINES=${hosts[*]}
}

# What is left of a job: launchers may wait for a machine that is gone until TCP gives up. All processes here are this test's.
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

# A job that has no end of its own loses a machine, and no rank finds anything else wrong. It runs PROGRAM.
lose_machine_of() { # seconds at most, program, output, command ...
	local most=$1 program=$2 out=$3
	shift 3
	"$@" > "$out" 2>&1 &
	sleep "$((RANDOM % most)).$((RANDOM % 10))"
	lose_machine
	end_job $! "$program"
	grep -q '\] failed:' "$out" || return 0
	cat "$out"
	echo "$(basename "$0"): the job was to lose a machine, and nothing else"
	return 1
}
