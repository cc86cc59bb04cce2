# SPDX-License-Identifier: BSD-3-Clause
"""What the three examples share: a file, the same memory for both sides, a table, a picture.

EXAMPLE_DIR, EXAMPLE_MEMORY (bytes) and EXAMPLE_TURNS change where, how much and how often.

numpy.memmap gets its memory from a cgroup, where this user may make one; otherwise it has all of the machine's, and the table
says so. ummap.memmap gets a limit. Each measurement is a process of its own that begins with nothing of the file in memory.
The functions of an example are called by name in that process: `python example.py --run FUNCTION ARGUMENT...`
"""
import csv
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

FOLDER = os.environ.get("EXAMPLE_DIR", "/var/tmp")
MEMORY = int(os.environ.get("EXAMPLE_MEMORY", 64 << 20))
TURNS = int(os.environ.get("EXAMPLE_TURNS", 5))
# Python and numpy have some of the group's memory themselves, which the file does not get.
SELF = 24 << 20


def make(path, size):
    """A file of `size` bytes, in which each 8 bytes are their own number."""
    if not os.path.exists(path) or os.path.getsize(path) != size:
        with open(path, "wb") as f:
            for at in range(0, size // 8, 1 << 20):
                np.arange(at, min(at + (1 << 20), size // 8), dtype="i8").tofile(f)
    return path


def forget(path):
    """Nothing of the file stays in the page cache."""
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached(path):
    """How much of a file is in the page cache, as fincore(1) says."""
    done = subprocess.run(["fincore", "-b", "-n", "-o", "RES", path], capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 else 0


def group():
    """A memory cgroup of MEMORY bytes and what Python needs, version 1 or 2, or None."""
    for folder, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        path = os.path.join(folder, f"ummap-example-{os.getpid()}")
        try:
            os.mkdir(path)
        except OSError:
            continue
        try:
            with open(os.path.join(path, name), "w") as f:
                f.write(str(MEMORY + SELF))
            return path
        except OSError:
            os.rmdir(path)
    return None


def bytes_read():
    """From storage, by this process."""
    with open("/proc/self/io") as f:
        return int(dict(line.split(": ") for line in f)["read_bytes"])


def measure(function, *args, in_group=False, path=None):
    """Calls a function of the example in a process of its own; seconds, and what it returns."""
    if path:
        forget(path)
    place = group() if in_group else None
    join = (lambda: open(os.path.join(place, "cgroup.procs"), "w").write(str(os.getpid()))) if place else None
    command = [sys.executable, sys.argv[0], "--run", function, *map(str, args)]
    try:
        out = subprocess.run(command, stdout=subprocess.PIPE, check=True, preexec_fn=join, text=True).stdout
    finally:
        if place:
            os.rmdir(place)
    return json.loads(out)


def run(functions):
    """In such a process: calls the function, and prints what measure returns."""
    if len(sys.argv) < 3 or sys.argv[1] != "--run":
        return False
    before, start = bytes_read(), time.perf_counter()
    result = functions[sys.argv[2]](*(int(a) if a.isdigit() else a for a in sys.argv[3:]))
    took = time.perf_counter() - start
    print(json.dumps({"seconds": took, "read": bytes_read() - before, "result": result}))
    return True


def in_turns(sides, turns=TURNS):
    """Runs the sides one after the other, `turns` times: {name: [result, ...]}. All have to return the same result."""
    got = {name: [] for name in sides}
    for _ in range(turns):
        for name, side in sides.items():
            got[name].append(side())
    results = {json.dumps(one["result"]) for all_ in got.values() for one in all_}
    assert len(results) == 1, f"the results differ: {results}"
    return got


def median(runs, key="seconds"):
    return statistics.median(one[key] for one in runs)


def table(title, rows, path):
    """Prints rows, the first of which has the names of columns, and writes them as CSV."""
    print(title if group_works() else f"{title}  (no cgroup: numpy.memmap has all of the machine's memory)")
    for row in rows:
        print("  " + f"{row[0]:<44}" + "".join(f"{cell:>16}" for cell in row[1:]))
    with open(path, "w", newline="") as f:
        csv.writer(f, lineterminator="\n").writerows(rows)


def group_works():
    place = group()
    if place:
        os.rmdir(place)
    return place is not None


def picture(title, axis, rows, png):
    """Bars by gnuplot, if it is there: rows of a name and a number."""
    data = "\n".join(f'"{name}" {value}' for name, value in rows)
    script = f"""
set terminal pngcairo noenhanced size 900,{140 + 50 * len(rows)} font "Sans,11"
set output "{png}"
set title "{title}"
set xlabel "{axis}"
set style fill solid 0.7
set yrange [-0.6:{len(rows) - 0.4}] reverse
set xrange [0:{1.1 * max(number for _, number in rows)}]
set grid xtics
$data << EOD
{data}
EOD
plot $data using ($2/2):0:($2/2):(0.35):ytic(1) with boxxyerror notitle, $data using 2:0:2 with labels left offset 0.5,0 notitle
"""
    try:
        subprocess.run(["gnuplot"], input=script, text=True, check=True)
    except FileNotFoundError:
        print("  (no picture: there is no gnuplot)")
