# SPDX-License-Identifier: BSD-3-Clause
# Functions for tests of the programs that use MapReduce. A test is called with the arguments
# LAUNCH MPI RANKS PROGRAM, and uses the folder UMMAP_TEST_FOLDER.
folder=${UMMAP_TEST_FOLDER:?} launch=("$@") mpi=$2 program=$4
# shellcheck disable=SC2034 # the tests use these variables
in=$folder/in want=$folder/want got=$folder/got
# Small segments, so that windows have many of them.
export LC_ALL=C UMMAP_SEG_SIZE=64K

wrong() {
	cat "$folder/out"
	echo "$(basename "$0"): $*"
	exit 1
}

run() { # argument ...
	"${launch[@]}" "$@" > "$folder/out" 2>&1
}

expect() { # exit status, text, argument ...
	local status=$1 text=$2
	shift 2
	run "$@"
	[ $? -eq "$status" ] || wrong "$*: not exit status $status"
	grep -qF -- "$text" "$folder/out" || wrong "$*: expected \"$text\""
}

# Sets the number of ranks of the next programs.
by_ranks() { # ranks
	launch=(tests/mpi/launch "$mpi" "$1" "$program")
}

# Checks that the program with these arguments writes the bytes of $want.
matches() { # argument ...
	rm -f "$got"
	run -q -o "$got" "$@" || wrong "${launch[2]} ranks, $*: exit status $?"
	cmp "$want" "$got" || wrong "${launch[2]} ranks, $*: another result"
}

# Waits for mpirun. If all ranks are killed at once, mpirun of Open MPI may wait forever without
# reaping them; it is killed when all its children are zombies.
await() { # mpirun
	local zombies=0 states
	while kill -0 "$1" 2> /dev/null; do
		states=$(ps -o stat= --ppid "$1")
		[ -n "$states" ] && ! grep -qv '^Z' <<< "$states" && zombies=$((zombies + 1)) ||
			zombies=0
		[ "$zombies" -lt 20 ] || kill -9 "$1"
		sleep 0.05
	done
	wait "$1"
}

# Prints the processes below this one that run the program.
ranks_of() { # process
	local pid
	for pid in $(ps -o pid= --ppid "$1"); do
		ranks_of "$pid"
		[ "$(readlink "/proc/$pid/exe")" != "$(realpath "$program")" ] || echo "$pid"
	done
}

# Kills all ranks of a job at a random moment within the duration of an uninterrupted job, and
# continues it. The result must be the same, and no file may be left.
killed() { # comparing function, argument ...
	local compare=$1 times=1 killed=0 took ms
	shift
	set -- --sync 1 "$@"
	[ -z "${UMMAP_TEST_LONG:-}" ] || times=10
	mkdir -p "$folder/windows"
	took=$(date +%s%N)
	"$compare" -s "$folder/windows" "$@"
	took=$((($(date +%s%N) - took) / 1000000))
	while [ "$killed" -lt "$times" ]; do
		"${launch[@]}" -q -o "$got" -s "$folder/windows" "$@" > "$folder/out" 2>&1 &
		ms=$((RANDOM * 32768 + RANDOM)) ms=$((ms % (took + 1)))
		sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
		# shellcheck disable=SC2046 # one word for each
		kill -9 $(ranks_of $!) 2> /dev/null
		await $! || killed=$((killed + 1))
	done
	"$compare" -s "$folder/windows" "$@"
	[ -z "$(ls -A "$folder/windows")" ] ||
		wrong "$*: files are left in the storage folder: $(ls "$folder/windows")"
}
