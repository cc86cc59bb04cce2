#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Preloads the library for the other MPI in addition to the right one: it must end the program with
# a message before the program starts. `tests/mpi/other.sh LAUNCH MPI RANKS PROGRAM`
set -u
mpi=$2 program=${!#}
case $mpi in openmpi) other=mpich ;; *) other=openmpi ;; esac
library=$(realpath "$(dirname "$program")/../../..")/libummap-mpi-$other.so
[ -e "$library" ] || exit 77
output=$(LD_PRELOAD=$library "$program" 2>&1)
rc=$?
[ $rc -eq 1 ] && [[ $output = *"libummap-mpi: cannot run with '"*"Try libummap-mpi-"* ]] && exit 0
echo "other.sh: exit status $rc: $output"
exit 1
