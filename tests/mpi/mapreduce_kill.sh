#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Kills all ranks of jobs of MapReduce again and again, until each has come to its end: `tests/mpi/mapreduce_kill.sh LAUNCH MPI RANKS
# PROGRAM`, in UMMAP_TEST_FOLDER. A kill comes at a random moment of what a job takes that nobody kills.
folder=${UMMAP_TEST_FOLDER:?} kills=2
[ -z "${UMMAP_TEST_LONG:-}" ] || kills=34

wrong() {
	cat "$folder/out"
	echo "mapreduce_kill.sh: $*"
	exit 1
}

# One that comes to its end, and leaves nothing.
complete() { # form
	"${launch[@]}" "$folder" "$1" never > "$folder/out" 2>&1 || wrong "$1: exit status $?"
	! ls "$folder"/ummr.* > "$folder/left" 2> /dev/null || wrong "$1: a complete job leaves $(cat "$folder/left")"
	took=$(sed -n 's/^complete after \([0-9]*\) ms$/\1/p' "$folder/out")
}

# OpenMPI's mpirun may wait for ever, and not reap them, when all ranks are killed at once: it is ended when only zombies are left.
await() { # mpirun
	local zombies=0 states
	while kill -0 "$1" 2> /dev/null; do
		states=$(ps -o stat= --ppid "$1")
		[ -n "$states" ] && ! grep -qv '^Z' <<< "$states" && zombies=$((zombies + 1)) || zombies=0
		[ "$zombies" -lt 100 ] || kill -9 "$1"
		sleep 0.05
	done
	wait "$1"
}

launch=("$@") total=0
for form in sums groups runs; do
	complete "$form"
	for ((killed = 0; killed < kills; )); do
		ms=$((RANDOM * 32768 + RANDOM)) ms=$((ms % (took + 1)))
		"${launch[@]}" "$folder" "$form" "$ms" > "$folder/out" 2>&1 &
		if ! await $!; then
			! grep -q '\] failed:' "$folder/out" || wrong "$form: killed after $ms ms of $took"
			killed=$((killed + 1))
		fi
	done
	total=$((total + killed))
	complete "$form"
done
echo "killed $total times"
