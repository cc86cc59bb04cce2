#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One warning, of rank 0, for each misspelled hint, with the nearest name: `tests/mpi/spelling.sh LAUNCH MPI RANKS PROGRAM`.
set -u
said=$("$@" 2>&1) || { echo "$said"; exit 1; }
want="libummap-mpi: unknown hint 'aloc_type'; did you mean 'alloc_type'?
libummap-mpi: unknown hint 'storage_alloc_filname'; did you mean 'storage_alloc_filename'?"
[ "$(grep 'unknown hint' <<< "$said" | sort)" = "$want" ] && exit 0
echo "spelling.sh: $said"
exit 1
