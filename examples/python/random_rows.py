# SPDX-License-Identifier: BSD-3-Clause
"""Random rows of a file four times as large as memory, as a training loop or a lookup reads them.

The kernel reads 128 KiB around each row that is touched, unless it is told MADV_RANDOM, and then one row after the other. The
line that solves it: advice="random", with which segments are as large as a row and a list of rows is loaded at once.
"""
import mmap
import os
import sys

import compare
import numpy as np
import ummap

SIZE = 4 * compare.MEMORY
PATH = os.path.join(compare.FOLDER, "ummap-example-rows")


def rows_of(row, count):
    return np.random.default_rng(row).integers(0, SIZE // row, count)


def read(a, row, count):
    """In groups of 256, as batches."""
    rows = rows_of(row, count)
    return int(sum(a[rows[at : at + 256]].sum(dtype="i8") for at in range(0, count, 256)))


def numpys(row, count, random):
    a = np.memmap(PATH, "i8", "r", shape=(SIZE // row, row // 8))
    if random:
        a._mmap.madvise(mmap.MADV_RANDOM)
    return read(a, row, count)


def ours(row, count):
    return read(ummap.memmap(PATH, "i8", "r", shape=(SIZE // row, row // 8), limit=compare.MEMORY, advice="random"), row, count)


def main():
    compare.make(PATH, SIZE)
    rows, bars = [("rows a second", "numpy.memmap", "MADV_RANDOM", "ummap.memmap")], []
    for row, count in ((1 << 10, 1024), (64 << 10, 512)):
        got = compare.in_turns({
            "numpy": lambda: compare.measure("numpys", row, count, 0, in_group=True, path=PATH),
            "random": lambda: compare.measure("numpys", row, count, 1, in_group=True, path=PATH),
            "ours": lambda: compare.measure("ours", row, count, path=PATH),
        })
        speed = [count / compare.median(got[name]) for name in ("numpy", "random", "ours")]
        rows.append((f"rows of {row >> 10} KiB", *(f"{s:.0f}" for s in speed)))
        for name, s in zip(("numpy.memmap", "with MADV_RANDOM", "ummap.memmap"), speed):
            bars.append((f"{row >> 10} KiB, {name}", round(s)))
    compare.table(f"Random rows, {SIZE >> 20} MiB in {compare.MEMORY >> 20} MiB of memory", rows, "random_rows.csv")
    compare.picture("Random rows of a file 4 times the memory", "rows a second", bars, "random_rows.png")


if __name__ == "__main__":
    if not compare.run({"numpys": numpys, "ours": ours}):
        sys.exit(main())
