# SPDX-License-Identifier: BSD-3-Clause
"""One pass over a large file, while another file, which somebody else needs, is in the page cache.

The kernel fills all memory that there is with the pass, and pushes the other file out. The line that solves it:
advice="sequential" and a limit, with which the pass has memory of its own, half of the group's here, past the page cache.
"""
import os
import sys

import compare
import numpy as np
import ummap

SIZE = 8 * compare.MEMORY
PATH = os.path.join(compare.FOLDER, "ummap-example-pass")
OTHER = os.path.join(compare.FOLDER, "ummap-example-other")
OTHER_SIZE = compare.MEMORY // 4
BLOCK = 1 << 19


def go_through(a, write):
    total = 0
    for at in range(0, len(a), BLOCK):
        block = a[at : at + BLOCK]
        total += int(block.sum())
        if write:
            block += 0
    if write:
        a.flush()
    return total


def warm():
    """The other file, read into the page cache, and charged to the group that this process is in."""
    with open(OTHER, "rb") as f:
        while f.read(1 << 20):
            pass


def numpys(write):
    warm()
    a = np.memmap(PATH, "i8", "r+" if write else "r")
    return go_through(a, write), 0, 0


def ours(write):
    warm()
    a = ummap.memmap(PATH, "i8", "r+" if write else "r", limit=compare.MEMORY // 2, advice="sequential")
    return go_through(a, write), 0, 0


def side(function, write):
    """Both sides in a group of the same memory; what is left of the other file, afterwards."""
    compare.forget(OTHER)
    got = compare.measure(function, write, in_group=True, path=PATH)
    got["left"] = compare.cached(OTHER) / OTHER_SIZE
    return got


def main():
    compare.make(PATH, SIZE)
    compare.make(OTHER, OTHER_SIZE)
    rows, bars = [("one pass", "numpy.memmap", "ummap.memmap")], []
    for write, what in ((0, "read"), (1, "read and write")):
        got = compare.in_turns({"numpy": lambda: side("numpys", write), "ours": lambda: side("ours", write)})
        speed = [(SIZE >> 20) / compare.median(got[name]) for name in ("numpy", "ours")]
        left = [compare.median(got[name], "left") * 100 for name in ("numpy", "ours")]
        rows.append((f"{what}, MiB/s", *(f"{s:.0f}" for s in speed)))
        rows.append((f"{what}, left of the other file, %", *(f"{p:.0f}" for p in left)))
        for name, s in zip(("numpy.memmap", "ummap.memmap"), speed):
            bars.append((f"{what}, {name}", round(s)))
    compare.table(f"One pass over {SIZE >> 20} MiB in {compare.MEMORY >> 20} MiB of memory", rows, "one_pass.csv")
    compare.picture("One pass over a file 8 times the memory", "MiB/s", bars, "one_pass.png")


if __name__ == "__main__":
    if not compare.run({"numpys": numpys, "ours": ours}):
        sys.exit(main())
