#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a program with the library between two other libraries that intercept the same calls:
# `tests/mpi/stack.sh LAUNCH MPI RANKS PROGRAM`. The first one must see all calls of the program,
# and the last one the calls that the library passes to MPI.
mpi=$2 ranks=$3
program=$(realpath "${!#}") || exit 1
tests=${program%/*}
# A sanitizer must be the first library.
layers=$(ldd "$program" | sed -n 's/.*=> \(.*lib[at]san[^ ]*\) .*/\1/p')
layers+=" $tests/front.so ${program%/tests/mpi/*}/libummap-mpi-$mpi.so.0 $tests/behind.so"
[ "$mpi" != mpich ] || layers+=" ${MPICH_PRELOAD:-}"
out=${UMMAP_TEST_FOLDER:?}/out
"${@:1:$#-1}" env LD_PRELOAD="$layers" "$program" > "$out" 2>&1
rc=$?
cat "$out"
[ "$rc" -eq 0 ] && [ "$(grep -c '^front: 1 begun, 2 allocated, 24 put$' "$out")" -eq "$ranks" ] &&
	[ "$(grep -c '^behind: 1 begun, 1 allocated, 1 created, 12 put$' "$out")" -eq "$ranks" ]
