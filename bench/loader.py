# SPDX-License-Identifier: BSD-3-Clause
"""Measures a loader: workers that are forked read random rows of one array. CSV on stdout.

`PYTHONPATH=build/python python3 bench/loader.py [MIB [WORKERS]]`. The arrays are numpy.memmap,
numpy.memmap with MADV_RANDOM, ummap.memmap, and ummap.memmap with a node copy; the page cache is
cold. UMMAP_MEM_LIMIT bounds libummap only: a memory cgroup bounds numpy.memmap, too, and must have
room for the programs, whose own memory it counts. `read` is the number of MiB that storage has read
for all workers.
"""
import mmap
import multiprocessing
import os
import sys
import tempfile
import time

import numpy as np
import ummap

MIB = int(sys.argv[1]) if len(sys.argv) > 1 else 64
WORKERS = int(sys.argv[2]) if len(sys.argv) > 2 else 4
COLUMNS = 1024
ROWS = MIB * 256
READS = 5000


def open_array(name, path):
    if name.startswith("numpy"):
        array = np.memmap(path, "f4", "r", shape=(ROWS, COLUMNS))
        if name == "numpy_random":
            array._mmap.madvise(mmap.MADV_RANDOM)
        return array
    return ummap.memmap(path, "f4", "r", shape=(ROWS, COLUMNS), segment="4K",
                        node_cache=name == "node_cache")


def storage_reads():
    with open("/proc/self/io", encoding="ascii") as file:
        return int(next(line for line in file if line.startswith("read_bytes")).split()[1])


def work(name, path, seed, begin, results):
    rows = np.random.default_rng(seed).integers(ROWS, size=READS)
    before = storage_reads()
    array = open_array(name, path)
    begin.wait()
    started = time.perf_counter()
    total = sum(float(array[row].sum()) for row in rows)
    seconds = time.perf_counter() - started
    begin.wait()
    results.put((seconds, storage_reads() - before, total))


def measure(name, path):
    context = multiprocessing.get_context("fork")
    begin, results = context.Barrier(WORKERS), context.Queue()
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    workers = [context.Process(target=work, args=(name, path, seed, begin, results))
               for seed in range(WORKERS)]
    for worker in workers:
        worker.start()
    got = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    print(f"{name},{WORKERS},{WORKERS * READS / max(g[0] for g in got):.0f},"
          f"{sum(g[1] for g in got) >> 20}", flush=True)


with tempfile.NamedTemporaryFile(dir=os.environ.get("TMPDIR", "/var/tmp")) as stored:
    for _ in range(MIB):
        stored.write(np.ones((256, COLUMNS), "f4"))
    stored.flush()
    os.fsync(stored.fileno())
    print("array,workers,rows_per_s,read")
    for array_name in ("numpy.memmap", "numpy_random", "ummap.memmap", "node_cache"):
        measure(array_name, stored.name)
