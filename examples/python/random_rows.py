# SPDX-License-Identifier: BSD-3-Clause
"""Random rows of a file that is four times as large as memory, as in a training loop or a lookup.

The kernel reads 128 KiB around each row. With MADV_RANDOM it reads the row only, and one row after
the other. The solution is advice="random": segments are as large as a row, and the library reads
all rows of a list at once.
"""
import mmap
import os
import sys

import compare
import numpy as np
import ummap

FILE_BYTES = 4 * compare.MEMORY_BYTES
PATH = os.path.join(compare.FOLDER, "ummap-example-rows")
BATCH_ROWS = 256


def choose_rows(row_bytes, count):
    return np.random.default_rng(row_bytes).integers(0, FILE_BYTES // row_bytes, count)


def sum_rows(a, row_bytes, count):
    """Return the sum of random rows, which are read in batches."""
    rows = choose_rows(row_bytes, count)
    batches = (rows[at : at + BATCH_ROWS] for at in range(0, count, BATCH_ROWS))
    return int(sum(a[batch].sum(dtype="i8") for batch in batches))


def shape_of(row_bytes):
    return FILE_BYTES // row_bytes, row_bytes // 8


def run_numpy(row_bytes, count, is_advised):
    a = np.memmap(PATH, "i8", "r", shape=shape_of(row_bytes))
    if is_advised:
        a._mmap.madvise(mmap.MADV_RANDOM)
    return sum_rows(a, row_bytes, count)


def run_ummap(row_bytes, count):
    a = ummap.memmap(PATH, "i8", "r", shape=shape_of(row_bytes), limit=compare.MEMORY_BYTES,
                     advice="random")
    return sum_rows(a, row_bytes, count)


def measure_numpy(row_bytes, count, is_advised):
    return compare.measure("run_numpy", row_bytes, count, is_advised, in_group=True, path=PATH)


def main():
    compare.make_file(PATH, FILE_BYTES)
    rows, bars = [("rows a second", "numpy.memmap", "MADV_RANDOM", "ummap.memmap")], []
    for row_bytes, count in ((1 << 10, 1024), (64 << 10, 512)):
        measured = compare.measure_in_turns({
            "numpy": lambda: measure_numpy(row_bytes, count, 0),
            "random": lambda: measure_numpy(row_bytes, count, 1),
            "ummap": lambda: compare.measure("run_ummap", row_bytes, count, path=PATH),
        })
        speed = [count / compare.median(measured[name]) for name in ("numpy", "random", "ummap")]
        rows.append((f"rows of {row_bytes >> 10} KiB", *(f"{s:.0f}" for s in speed)))
        for name, s in zip(("numpy.memmap", "with MADV_RANDOM", "ummap.memmap"), speed):
            bars.append((f"{row_bytes >> 10} KiB, {name}", round(s)))
    title = f"Random rows, {FILE_BYTES >> 20} MiB in {compare.MEMORY_BYTES >> 20} MiB of memory"
    compare.print_table(title, rows, "random_rows.csv")
    compare.draw_bars("Random rows of a file 4 times the memory", "rows a second", bars,
                      "random_rows.png")


if __name__ == "__main__":
    if not compare.run_if_measured({"run_numpy": run_numpy, "run_ummap": run_ummap}):
        sys.exit(main())
