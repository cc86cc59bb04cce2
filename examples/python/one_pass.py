# SPDX-License-Identifier: BSD-3-Clause
"""One pass over a large file while the page cache holds another file that other programs need.

The kernel fills all free memory with the pass, and evicts the pages of the other file. The solution
is advice="sequential" and a limit: the pass has its own memory, half of the cgroup's here, and does
not use the page cache.
"""
import os
import sys

import compare
import numpy as np
import ummap

FILE_BYTES = 8 * compare.MEMORY_BYTES
PATH = os.path.join(compare.FOLDER, "ummap-example-pass")
OTHER_PATH = os.path.join(compare.FOLDER, "ummap-example-other")
OTHER_BYTES = compare.MEMORY_BYTES // 4
BLOCK_ELEMENTS = 1 << 19


def make_pass(a, writes):
    """Return the sum of the array. With `writes`, also store to each element."""
    total = 0
    for at in range(0, len(a), BLOCK_ELEMENTS):
        block = a[at : at + BLOCK_ELEMENTS]
        total += int(block.sum())
        if writes:
            block += 0
    if writes:
        a.flush()
    return total


def cache_other_file():
    """Read the other file into the page cache. The pages count as memory of this cgroup."""
    with open(OTHER_PATH, "rb") as f:
        while f.read(1 << 20):
            pass


def run_numpy(writes):
    cache_other_file()
    return make_pass(np.memmap(PATH, "i8", "r+" if writes else "r"), writes)


def run_ummap(writes):
    cache_other_file()
    a = ummap.memmap(PATH, "i8", "r+" if writes else "r", limit=compare.MEMORY_BYTES // 2,
                     advice="sequential")
    return make_pass(a, writes)


def measure(function, writes):
    """Measure a variant in a cgroup. The key "left" is the part of the other file that is left."""
    compare.drop_cached_pages(OTHER_PATH)
    measured = compare.measure(function, writes, in_group=True, path=PATH)
    measured["left"] = compare.count_cached_bytes(OTHER_PATH) / OTHER_BYTES
    return measured


def main():
    compare.make_file(PATH, FILE_BYTES)
    compare.make_file(OTHER_PATH, OTHER_BYTES)
    rows, bars = [("one pass", "numpy.memmap", "ummap.memmap")], []
    for writes, what in ((0, "read"), (1, "read and write")):
        measured = compare.measure_in_turns({"numpy": lambda: measure("run_numpy", writes),
                                             "ummap": lambda: measure("run_ummap", writes)})
        speed = [(FILE_BYTES >> 20) / compare.median(measured[name]) for name in ("numpy", "ummap")]
        left = [compare.median(measured[name], "left") * 100 for name in ("numpy", "ummap")]
        rows.append((f"{what}, MiB/s", *(f"{s:.0f}" for s in speed)))
        rows.append((f"{what}, left of the other file, %", *(f"{p:.0f}" for p in left)))
        for name, s in zip(("numpy.memmap", "ummap.memmap"), speed):
            bars.append((f"{what}, {name}", round(s)))
    title = f"One pass over {FILE_BYTES >> 20} MiB in {compare.MEMORY_BYTES >> 20} MiB of memory"
    compare.print_table(title, rows, "one_pass.csv")
    compare.draw_bars("One pass over a file 8 times the memory", "MiB/s", bars, "one_pass.png")


if __name__ == "__main__":
    if not compare.run_if_measured({"run_numpy": run_numpy, "run_ummap": run_ummap}):
        sys.exit(main())
