#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# For each misspelled hint, rank 0 must print one warning with the most similar name:
# `tests/mpi/spelling.sh LAUNCH MPI RANKS PROGRAM`.
set -u
output=$("$@" 2>&1) || { echo "$output"; exit 1; }
want="libummap-mpi: unknown hint 'aloc_type'; did you mean 'alloc_type'?
libummap-mpi: unknown hint 'storage_alloc_filname'; did you mean 'storage_alloc_filename'?"
[ "$(grep 'unknown hint' <<< "$output" | sort)" = "$want" ] && exit 0
echo "spelling.sh: $output"
exit 1
