#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `tests/mpi/cacheddelete.sh LAUNCH MPI RANKS PROGRAM`: all of it in one job, and then a file that another job deletes.
set -e
folder=${UMMAP_TEST_FOLDER:?}
"$@"
"$@" leave "$folder"
"$@" delete "$folder"
