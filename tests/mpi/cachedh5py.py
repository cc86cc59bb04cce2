#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The program cachedhdf5 in Python, with h5py: the same arguments and the same files.

The ranks do not import the package ummap. The library of ummap-mpi(7) is preloaded.
"""
import os
import signal
import sys

import numpy as np
from mpi4py import MPI
import h5py

ROWS = 3000  # elements of a version

comm = MPI.COMM_WORLD
first, end = (ROWS * r // comm.size for r in (comm.rank, comm.rank + 1))


def version_values(version):
    x = np.uint64(version << 32) | np.arange(ROWS, dtype="u8")
    x = (x ^ x >> np.uint64(31)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(29)) * np.uint64(0xC2B2AE3D27D4EB4F)
    x = x ^ x >> np.uint64(32)
    return (x >> np.uint64(34)).astype("i4")


def add_version(file, version):
    """Writes a dataset, which the next flush makes durable."""
    # Contiguous and chunked datasets take turns.
    data = file.create_dataset(f"v{version}", (ROWS,), "i4", chunks=(512,) if version % 2 else None)
    with data.collective:
        data[first:end] = version_values(version)[first:end]


def flushed_versions(path):
    try:
        with open(path, "rb") as f:
            return int.from_bytes(f.read(4), "little")
    except FileNotFoundError:
        return 0


def run(folder, argument):
    acknowledged = os.path.join(folder, "acknowledged")
    flushed = flushed_versions(acknowledged)
    comm.Barrier()
    file = h5py.File(os.path.join(folder, "run.h5"), "r+" if flushed else "w",
                     driver="mpio", comm=comm)
    for version in range(1, flushed + 1):
        assert np.array_equal(file[f"v{version}"][:], version_values(version)), version
    if argument == "check":
        file.close()
        if flushed == 0:
            sys.exit(1)
        return
    last = flushed + int(argument)
    for version in range(flushed + 1, last + 1):
        add_version(file, version)
        file.flush()
        comm.Barrier()
        if comm.rank == 0:
            with open(acknowledged, "wb") as f:
                f.write(version.to_bytes(4, "little"))
    add_version(file, last + 1)
    comm.Barrier()
    os.kill(os.getpid(), signal.SIGKILL)


try:
    run(*sys.argv[1:])
except BaseException as error:
    if not isinstance(error, SystemExit):
        print(f"[{comm.rank}] failed: {error!r}", flush=True)
    comm.Abort(1)
