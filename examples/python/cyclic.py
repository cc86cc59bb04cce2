# SPDX-License-Identifier: BSD-3-Clause
"""Pass after pass over data one and a half times as large as memory: the weights of a model, the lists of an index.

The kernel throws away what was used longest ago, which is what comes next: each pass reads all of it. The line that solves it:
policy="lifo", with which what is in memory stays there, and only the rest is read again.
"""
import os
import sys

import compare
import numpy as np
import ummap

SIZE = compare.MEMORY * 3 // 2
PATH = os.path.join(compare.FOLDER, "ummap-example-cyclic")
PASSES = 6
BLOCK = 1 << 17


def go_through(a, read):
    """The first pass fills memory; seconds and bytes are those of the others."""
    import time

    for i in range(PASSES + 1):
        if i == 1:
            start, before = time.perf_counter(), read()
        total = sum(int(a[at : at + BLOCK].sum()) for at in range(0, len(a), BLOCK))
    return total, time.perf_counter() - start, (read() - before) / PASSES / SIZE


def numpys():
    return go_through(np.memmap(PATH, "i8", "r"), compare.bytes_read)


def ours():
    a = ummap.memmap(PATH, "i8", "r", limit=compare.MEMORY, policy="lifo", segment="256K")
    return go_through(a, lambda: a.stat()["read_bytes"])


def side(function, **how):
    got = compare.measure(function, path=PATH, **how)
    total, got["seconds"], got["part"] = got["result"]
    got["result"] = total
    return got


def main():
    compare.make(PATH, SIZE)
    got = compare.in_turns({"numpy": lambda: side("numpys", in_group=True), "ours": lambda: side("ours")})
    speed = [PASSES * (SIZE >> 20) / compare.median(got[name]) for name in ("numpy", "ours")]
    part = [compare.median(got[name], "part") for name in ("numpy", "ours")]
    rows = [("passes over 1.5 times the memory", "numpy.memmap", "ummap.memmap"), ("MiB/s", *(f"{s:.0f}" for s in speed)),
            ("read in each pass, part of the file", *(f"{p:.2f}" for p in part))]
    compare.table(f"{PASSES} passes over {SIZE >> 20} MiB in {compare.MEMORY >> 20} MiB of memory", rows, "cyclic.csv")
    compare.picture("Pass after pass over 1.5 times the memory", "MiB/s",
                    list(zip(("numpy.memmap", "ummap.memmap"), map(round, speed))), "cyclic.png")


if __name__ == "__main__":
    if not compare.run({"numpys": numpys, "ours": ours}):
        sys.exit(main())
