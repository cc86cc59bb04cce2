#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a program that wants a folder for its files: `tests/mpi/folder.sh LAUNCH MPI RANKS PROGRAM`.
folder=$(mktemp -d "${TMPDIR:-/var/tmp}/ummap-test-XXXXXX") || exit 2
trap 'rm -rf "$folder"' EXIT
"$@" "$folder"
