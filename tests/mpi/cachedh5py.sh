#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs cachedhdf5.sh with h5py: `tests/mpi/cachedh5py.sh LAUNCH MPI RANKS PROGRAM`.
launch=$1 mpi=$2 max=$3
# There is no such program in the build: tests/run then names a command.
build=${4%/commands/*}
# Debian has h5py for Open MPI only. h5py chooses its build by this variable.
export H5PY_ALWAYS_USE_MPI=1
if [ "$mpi" != openmpi ] || ! /usr/bin/python3 -c '
import h5py, mpi4py, sys
sys.exit(not h5py.get_config().mpi)' 2> /dev/null; then
	echo "cachedh5py.sh: there is no parallel h5py for $mpi (python3-h5py-mpi)"
	exit 77
fi
if ldd "$build/libummap.so" | grep -q 'lib[at]san'; then
	echo "cachedh5py.sh: Python cannot load a library that was built with a sanitizer"
	exit 77
fi
library=$(realpath "$build/libummap-mpi-openmpi.so")
export OPENMPI_PRELOAD="${OPENMPI_PRELOAD:+$OPENMPI_PRELOAD }$library"
exec "${0%/*}/cachedhdf5.sh" "$launch" "$mpi" "$max" "${0%/*}/cachedh5py.py"
