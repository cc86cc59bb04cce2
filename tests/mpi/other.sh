#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The library for the other MPI, preloaded beside that of the program's own, ends a program with a sentence, before it starts.
set -u
mpi=$2 program=${!#}
case $mpi in openmpi) other=mpich ;; *) other=openmpi ;; esac
library=$(realpath "$(dirname "$program")/../../..")/libummap-mpi-$other.so
[ -e "$library" ] || exit 77
said=$(LD_PRELOAD=$library "$program" 2>&1)
rc=$?
[ $rc -eq 1 ] && [[ $said = *"libummap-mpi: cannot run with '"*"Try libummap-mpi-"* ]] && exit 0
echo "other.sh: exit status $rc: $said"
exit 1
