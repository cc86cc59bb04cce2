#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `tests/mpi/cachedbad.sh LAUNCH MPI RANKS PROGRAM`: every rank is a node, and the command is where the program was built.
UMMAP_TEST_CACHE=$(realpath "$(dirname "$4")/../../../commands/ummap-iocache") UMMAP_TEST_IOCACHE_NODES=$3 exec "$@"
