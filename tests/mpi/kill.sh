#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Kills a job again and again: `tests/mpi/kill.sh LAUNCH MPI RANKS PROGRAM`.
folder=$(mktemp -d "${TMPDIR:-/var/tmp}/ummap-test-XXXXXX") || exit 2
trap 'rm -rf "$folder"' EXIT
launch=("${@:1:3}") program=$4
for ms in 0 $((RANDOM % 50)) $((RANDOM % 200)) $((RANDOM % 200)); do
	if "${launch[@]}" "$program" "$folder" "$ms" > "$folder/out" 2>&1 || grep -q 'failed:' "$folder/out"; then
		cat "$folder/out"
		echo "kill.sh: the job was to be killed after $ms ms, and only that"
		exit 1
	fi
done
"${launch[@]}" "$program" "$folder" check
