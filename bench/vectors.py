# SPDX-License-Identifier: BSD-3-Clause
"""Searches for the nearest vectors in an index of lists that is larger than memory.

`vectors.py make FOLDER` makes an index of 390 MiB: 1,024 lists of the vectors near one center.
`vectors.py search FOLDER [METHOD]` looks for the 10 nearest of 500 vectors in the 8 lists with the
nearest centers, and prints the sum of their numbers. METHOD is how the program reads the index:
    mapped      numpy.memmap (default)
    advised     numpy.memmap, with MADV_WILLNEED for the lists of the next queries
    prefetched  ummap.memmap, with prefetch() of the lists of the next queries
"""
import mmap
import sys

import numpy as np

LISTS, LENGTH, COLUMNS = 1024, 780, 128
QUERIES, PROBES, FOUND = 500, 8, 10
AHEAD = 4  # queries whose lists are announced


def make(folder):
    rng = np.random.default_rng(1)
    centers = rng.standard_normal((LISTS, COLUMNS), "f4")
    with open(folder + "/vectors", "wb") as file:
        for center in centers:
            noise = rng.standard_normal((LENGTH, COLUMNS), "f4")
            file.write((center + np.float32(0.7) * noise).tobytes())
    np.save(folder + "/centers.npy", centers)


def open_vectors(path, method):
    shape = (LISTS * LENGTH, COLUMNS)
    if method == "prefetched":
        import ummap
        return ummap.memmap(path, "f4", "r", shape=shape)
    return np.memmap(path, "f4", "r", shape=shape)


def announce(vectors, method, lists):
    if method == "prefetched":
        vectors.prefetch(*[slice(i * LENGTH, (i + 1) * LENGTH) for i in lists])
    elif method == "advised":
        size = LENGTH * COLUMNS * 4
        for i in lists:
            start = i * size // mmap.PAGESIZE * mmap.PAGESIZE
            vectors._mmap.madvise(mmap.MADV_WILLNEED, start, (i + 1) * size - start)


def nearest(vectors, query, lists):
    """Returns the numbers of the nearest vectors of the lists."""
    numbers = np.concatenate([np.arange(i * LENGTH, (i + 1) * LENGTH) for i in lists])
    distances = np.concatenate([((vectors[i * LENGTH:(i + 1) * LENGTH] - query) ** 2).sum(axis=1)
                                for i in lists])
    return numbers[np.argpartition(distances, FOUND)[:FOUND]]


def search(folder, method):
    rng = np.random.default_rng(2)
    centers = np.load(folder + "/centers.npy")
    queries = centers[rng.integers(LISTS, size=QUERIES)]
    queries = queries + np.float32(0.7) * rng.standard_normal(queries.shape, "f4")
    distances = (centers ** 2).sum(axis=1) - 2 * queries @ centers.T
    probes = np.argpartition(distances, PROBES, axis=1)[:, :PROBES]
    vectors = open_vectors(folder + "/vectors", method)
    total = 0
    for i, query in enumerate(queries):
        if i % AHEAD == 0:
            announce(vectors, method, probes[i:i + 2 * AHEAD].ravel())
        total += int(nearest(vectors, query, probes[i]).sum())
    print(total)


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    search(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "mapped")
