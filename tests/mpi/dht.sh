#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs examples/mpi/dht, which kills itself, and continues it until it has all keys:
# `tests/mpi/dht.sh LAUNCH MPI RANKS PROGRAM`, in UMMAP_TEST_FOLDER. The windows are twice as large
# as the memory limit.
table=${UMMAP_TEST_FOLDER:?}/table.%r out=$UMMAP_TEST_FOLDER/out keys=1500
export UMMAP_MEM_LIMIT=$((keys * 32 / 2 * $3))

expect() { # text that the run must print, argument of the program ...
	local text=$1
	shift
	"${launch[@]}" "$table" "$keys" "$@" > "$out" 2>&1
	grep -q "$text" "$out" && return
	cat "$out"
	echo "dht.sh: expected \"$text\""
	exit 1
}

launch=("$@")
expect "continuing after 0 of $keys" 1
expect "continuing after 1024 of" 1
expect " keys, 0 of them wrong"
expect "continuing after $keys of"
grep -q " keys, 0 of them wrong" "$out"
