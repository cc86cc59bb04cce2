#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs all tests of the program in one job; then a job leaves a file with a cache, and another job
# deletes it: `tests/mpi/cacheddelete.sh LAUNCH MPI RANKS PROGRAM`.
set -e
folder=${UMMAP_TEST_FOLDER:?}
"$@"
"$@" leave "$folder"
"$@" delete "$folder"
