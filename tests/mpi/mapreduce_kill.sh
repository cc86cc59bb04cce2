#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Kills all ranks of MapReduce jobs several times before the jobs are completed:
# `tests/mpi/mapreduce_kill.sh LAUNCH MPI RANKS PROGRAM`, in UMMAP_TEST_FOLDER. A kill comes at a
# random moment within the duration of an uninterrupted job.
. tests/mpi/mapreduce.bash
. tests/mpi/gone.bash
kills=1
[ -z "${UMMAP_TEST_LONG:-}" ] || kills=34

# Completes a job, which must leave no file.
complete() { # form
	"${launch[@]}" "$folder" "$1" never > "$folder/out" 2>&1 || wrong "$1: exit status $?"
	! ls "$folder"/ummr.* > "$folder/left" 2> /dev/null ||
		wrong "$1: a complete job leaves $(cat "$folder/left")"
	took=$(sed -n 's/^complete after \([0-9]*\) ms$/\1/p' "$folder/out")
}

total=0
for form in sums groups runs; do
	complete "$form"
	for ((killed = 0; killed < kills; )); do
		ms=$((RANDOM * 32768 + RANDOM)) ms=$((ms % (took + 1)))
		"${launch[@]}" "$folder" "$form" "$ms" > "$folder/out" 2>&1 &
		if ! await $!; then
			! grep -q '\] failed:' "$folder/out" ||
				wrong "$form: killed after $ms ms of $took"
			killed=$((killed + 1))
		fi
	done
	total=$((total + killed))
	complete "$form"
done
echo "killed $total times"

# On several machines, one of them is lost at a random moment. The other machines complete the job.
for form in sums runs; do
	several_machines || break
	complete "$form"
	"${launch[@]}" "$folder" "$form" never > "$folder/out" 2>&1 &
	ms=$((RANDOM * 32768 + RANDOM)) ms=$((ms % (took + 1)))
	sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
	lose_machine
	end_job $! "$program"
	! grep -q '\] failed:' "$folder/out" ||
		wrong "$form: without a machine after $ms ms of $took"
	complete "$form"
	echo "$form: completed without a machine that was lost after $ms ms of $took"
done
