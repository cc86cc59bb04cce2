#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The library between two others that take the same calls: `tests/mpi/stack.sh LAUNCH MPI RANKS PROGRAM`. The first sees
# all calls, the last what goes on to MPI.
mpi=$2 ranks=$3
program=$(realpath "${!#}") || exit 1
tests=${program%/*}
# A sanitizer has to come first.
layers=$(ldd "$program" | sed -n 's/.*=> \(.*lib[at]san[^ ]*\) .*/\1/p')
layers+=" $tests/front.so ${program%/tests/mpi/*}/libummap-mpi-$mpi.so.0 $tests/behind.so"
[ "$mpi" != mpich ] || layers+=" ${MPICH_PRELOAD:-}"
out=${UMMAP_TEST_FOLDER:?}/out
"${@:1:$#-1}" env LD_PRELOAD="$layers" "$program" > "$out" 2>&1
rc=$?
cat "$out"
[ "$rc" -eq 0 ] && [ "$(grep -c '^front: 1 begun, 2 allocated, 24 put$' "$out")" -eq "$ranks" ] &&
	[ "$(grep -c '^behind: 1 begun, 1 allocated, 1 created, 12 put$' "$out")" -eq "$ranks" ]
