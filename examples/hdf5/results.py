# SPDX-License-Identifier: BSD-3-Clause
"""A computation that appends its results to an HDF5 file, and continues after a crash.

    python3 results.py FILE STEPS

Each flush is one commit of the filter wal+. Whenever the program is killed, the file has the
results up to the last flush, and the next run computes the rest.
"""
import os
import sys

import ummap

STEPS_PER_FLUSH = 1000

path, steps = sys.argv[1], int(sys.argv[2])
with ummap.h5py_file(f"wal+posix:{os.path.abspath(path)}", "a") as f:
    if "results" not in f:
        f.create_dataset("results", (0,), "f8", maxshape=(None,), chunks=(4096,))
    results = f["results"]
    print(f"{len(results)} results are in the file", flush=True)
    while len(results) < steps:
        at = len(results)
        n = min(STEPS_PER_FLUSH, steps - at)
        results.resize(at + n, 0)
        results[at:] = [i * i for i in range(at, at + n)]
        f.flush()
