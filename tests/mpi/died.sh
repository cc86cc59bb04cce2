#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a job in which one rank of each machine dies and the others continue:
# `tests/mpi/died.sh LAUNCH MPI RANKS PROGRAM`, in UMMAP_TEST_FOLDER.
folder=${UMMAP_TEST_FOLDER:?} machines=($MACHINES)
died=${#machines[@]}
"$@" > "$folder/out" 2>&1
survivors=$(find "$folder" -maxdepth 1 -name 'came-*' | wc -l)
[ "$survivors" -eq $(($3 - (died ? died : 1))) ] && ! grep -q '\] failed:' "$folder/out" && exit
cat "$folder/out"
echo "died.sh: $survivors ranks got the lock"
exit 1
