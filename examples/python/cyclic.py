# SPDX-License-Identifier: BSD-3-Clause
"""Repeated passes over data that is 1.5 times as large as memory, such as the weights of a model.

The kernel evicts the pages that were used longest ago. The next pass needs just these pages first,
so each pass reads all of the file. The solution is policy="lifo": a part of the file stays in
memory, and each pass reads only the rest.
"""
import os
import sys
import time

import compare
import numpy as np
import ummap

FILE_BYTES = compare.MEMORY_BYTES * 3 // 2
PATH = os.path.join(compare.FOLDER, "ummap-example-cyclic")
PASSES = 6
BLOCK_ELEMENTS = 1 << 17


def make_passes(a, count_read_bytes):
    """Sum up the array PASSES + 1 times. The first pass fills memory and is not measured.

    Return the sum, the seconds of all other passes, and the part of the file that a pass reads.
    """
    for i in range(PASSES + 1):
        if i == 1:
            start, before = time.perf_counter(), count_read_bytes()
        blocks = range(0, len(a), BLOCK_ELEMENTS)
        total = sum(int(a[at : at + BLOCK_ELEMENTS].sum()) for at in blocks)
    part = (count_read_bytes() - before) / PASSES / FILE_BYTES
    return total, time.perf_counter() - start, part


def run_numpy():
    return make_passes(np.memmap(PATH, "i8", "r"), compare.count_read_bytes)


def run_ummap():
    a = ummap.memmap(PATH, "i8", "r", limit=compare.MEMORY_BYTES, policy="lifo", segment="256K")
    return make_passes(a, lambda: a.stat()["read_bytes"])


def measure(function, **options):
    measured = compare.measure(function, path=PATH, **options)
    measured["result"], measured["seconds"], measured["part"] = measured["result"]
    return measured


def main():
    compare.make_file(PATH, FILE_BYTES)
    measured = compare.measure_in_turns({"numpy": lambda: measure("run_numpy", in_group=True),
                                         "ummap": lambda: measure("run_ummap")})
    mebibytes = PASSES * (FILE_BYTES >> 20)
    speed = [mebibytes / compare.median(measured[name]) for name in ("numpy", "ummap")]
    part = [compare.median(measured[name], "part") for name in ("numpy", "ummap")]
    rows = [("passes over 1.5 times the memory", "numpy.memmap", "ummap.memmap"),
            ("MiB/s", *(f"{s:.0f}" for s in speed)),
            ("read in each pass, part of the file", *(f"{p:.2f}" for p in part))]
    title = (f"{PASSES} passes over {FILE_BYTES >> 20} MiB in {compare.MEMORY_BYTES >> 20} MiB of "
             "memory")
    compare.print_table(title, rows, "cyclic.csv")
    compare.draw_bars("Repeated passes over 1.5 times the memory", "MiB/s",
                      list(zip(("numpy.memmap", "ummap.memmap"), map(round, speed))), "cyclic.png")


if __name__ == "__main__":
    if not compare.run_if_measured({"run_numpy": run_numpy, "run_ummap": run_ummap}):
        sys.exit(main())
