#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A job one rank of which dies on each machine, while the others go on: `tests/mpi/died.sh LAUNCH mpich RANKS PROGRAM`, in
# UMMAP_TEST_FOLDER.
folder=${UMMAP_TEST_FOLDER:?} machines=($MACHINES)
died=${#machines[@]}
"$@" > "$folder/out" 2>&1
came=$(find "$folder" -maxdepth 1 -name 'came-*' | wc -l)
[ "$came" -eq $(($3 - (died ? died : 1))) ] && ! grep -q '\] failed:' "$folder/out" && exit
cat "$folder/out"
echo "died.sh: $came ranks got the lock"
exit 1
