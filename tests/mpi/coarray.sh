#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A coarray program that is not linked with the library. All its windows are in UMMAP_TEST_FOLDER:
# `tests/mpi/coarray.sh LAUNCH MPI RANKS PROGRAM`.
mpi=$2
program=$(realpath "${!#}") || exit 1
# A sanitizer must be preloaded first.
sanitizer=$(ldd "$program" | sed -n 's/.*=> \(.*lib[at]san[^ ]*\) .*/\1/p')
layer=$sanitizer\ ${program%/tests/mpi/*}/libummap-mpi-$mpi.so.0
[ "$mpi" != mpich ] || layer+=" ${MPICH_PRELOAD:-}"
out=${UMMAP_TEST_FOLDER:?}/out
"${@:1:$#-1}" env LD_PRELOAD="$layer" UMMAP_MPI_ALL="$UMMAP_TEST_FOLDER" UMMAP_MEM_LIMIT=32K \
	UMMAP_SEG_SIZE=4K UMMAP_STATS=1 UMMAP_GROUP=coarray.$$ "$program" > "$out" 2>&1
rc=$?
cat "$out"
[ "$rc" -eq 0 ] && grep -q 'all of it is right' "$out" && grep -Eq 'evictions +[1-9]' "$out"
