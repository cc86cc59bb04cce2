# SPDX-License-Identifier: BSD-3-Clause
"""Measures an element, a slice and a new array in Python, with all data in memory: ns, as CSV.

`PYTHONPATH=build/python python3 bench/access.py`. The arrays alternate; medians of 15.
"""
import os
import statistics
import tempfile
import timeit

import numpy as np
import ummap

with tempfile.NamedTemporaryFile(dir=os.environ.get("TMPDIR", "/var/tmp")) as file:
    np.zeros((1024, 1024), "f4").tofile(file.name)
    make = {"numpy.memmap": lambda: np.memmap(file.name, "f4", "r", shape=(1024, 1024)),
            "ummap.memmap": lambda: ummap.memmap(file.name, "f4", "r", shape=(1024, 1024))}
    arrays = {name: new() for name, new in make.items()}
    arrays["ndarray"] = np.zeros((1024, 1024), "f4")
    for a in arrays.values():
        a.sum()
    took = {}
    for _ in range(15):
        for name, a in arrays.items():
            for what, n in (("a[3, 3]", 100000), ("a[1:2]", 50000), ("a.sum()", 200)):
                seconds = timeit.timeit(what, globals={"a": a}, number=n)
                took.setdefault((what, name), []).append(seconds / n * 1e9)
            if name in make:
                seconds = timeit.timeit(make[name], number=50)
                took.setdefault(("make", name), []).append(seconds / 50 * 1e9)
    print("what,array,ns")
    for (what, name), times in sorted(took.items()):
        print(f'"{what}",{name},{statistics.median(times):.0f}')
