#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the program with one node for each rank, and with the command `ummap iocache` of the same
# build: `tests/mpi/cachedbad.sh LAUNCH MPI RANKS PROGRAM`.
UMMAP_TEST_CACHE=$(realpath "$(dirname "$4")/../../../commands/ummap-iocache") \
	UMMAP_TEST_IOCACHE_NODES=$3 exec "$@"
