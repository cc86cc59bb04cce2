# SPDX-License-Identifier: BSD-3-Clause
"""Functions that the three examples share: files, memory limits, measurements, tables, diagrams.

The environment variables EXAMPLE_DIR, EXAMPLE_MEMORY (bytes) and EXAMPLE_TURNS set the folder of
the files, the memory of both variants, and the number of measurements.

numpy.memmap gets its memory from a cgroup if this user may make one. Otherwise it has all of the
machine's memory, and the table's title contains a note. ummap.memmap gets a limit. Each measurement
is a process of its own, and begins with no page of the file in memory. This process calls a
function of the example by its name: `python example.py --run FUNCTION ARGUMENT...`
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
MEMORY_BYTES = int(os.environ.get("EXAMPLE_MEMORY", 64 << 20))
TURNS = int(os.environ.get("EXAMPLE_TURNS", 5))
# The part of a cgroup's memory that Python and numpy themselves use.
PYTHON_BYTES = 24 << 20
CGROUP_LIMITS = {"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"}


def make_file(path, size):
    """Make a file of `size` bytes in which each int64 is its own index, and return the path."""
    if not os.path.exists(path) or os.path.getsize(path) != size:
        with open(path, "wb") as f:
            for at in range(0, size // 8, 1 << 20):
                np.arange(at, min(at + (1 << 20), size // 8), dtype="i8").tofile(f)
    return path


def drop_cached_pages(path):
    """Remove the pages of a file from the page cache."""
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def count_cached_bytes(path):
    """Return the bytes of a file that are in the page cache, as counted by fincore(1)."""
    command = ["fincore", "-b", "-n", "-o", "RES", path]
    done = subprocess.run(command, capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 else 0


def make_cgroup():
    """Make a memory cgroup, version 1 or 2, and return its folder. Return None without the right.

    The cgroup has MEMORY_BYTES for the file, and PYTHON_BYTES.
    """
    for folder, name in CGROUP_LIMITS.items():
        path = os.path.join(folder, f"ummap-example-{os.getpid()}")
        try:
            os.mkdir(path)
        except OSError:
            continue
        try:
            with open(os.path.join(path, name), "w") as f:
                f.write(str(MEMORY_BYTES + PYTHON_BYTES))
            return path
        except OSError:
            os.rmdir(path)
    return None


def can_make_cgroup():
    cgroup = make_cgroup()
    if cgroup:
        os.rmdir(cgroup)
    return cgroup is not None


def join_cgroup(cgroup):
    with open(os.path.join(cgroup, "cgroup.procs"), "w") as f:
        f.write(str(os.getpid()))


def count_read_bytes():
    """Return the bytes that this process has read from storage."""
    with open("/proc/self/io") as f:
        return int(dict(line.split(": ") for line in f)["read_bytes"])


def measure(function, *args, in_group=False, path=None):
    """Call a function of the example in a new process, and return a dictionary.

    The keys are "seconds", "read" (bytes from storage) and "result" (the function's return value).
    """
    if path:
        drop_cached_pages(path)
    cgroup = make_cgroup() if in_group else None
    join = (lambda: join_cgroup(cgroup)) if cgroup else None
    command = [sys.executable, sys.argv[0], "--run", function, *map(str, args)]
    try:
        out = subprocess.run(command, stdout=subprocess.PIPE, check=True, preexec_fn=join,
                             text=True).stdout
    finally:
        if cgroup:
            os.rmdir(cgroup)
    return json.loads(out)


def run_if_measured(functions):
    """In a process that `measure` has started, call the function and print the dictionary.

    Return whether this is such a process. `functions` maps names to functions.
    """
    if len(sys.argv) < 3 or sys.argv[1] != "--run":
        return False
    before, start = count_read_bytes(), time.perf_counter()
    result = functions[sys.argv[2]](*(int(a) if a.isdigit() else a for a in sys.argv[3:]))
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "read": count_read_bytes() - before, "result": result}))
    return True


def measure_in_turns(variants, turns=TURNS):
    """Call the variants one after the other, `turns` times, and return {name: [measurement, ...]}.

    All measurements must have the same result.
    """
    measured = {name: [] for name in variants}
    for _ in range(turns):
        for name, measure_variant in variants.items():
            measured[name].append(measure_variant())
    results = {json.dumps(one["result"]) for runs in measured.values() for one in runs}
    assert len(results) == 1, f"the results differ: {results}"
    return measured


def median(measurements, key="seconds"):
    return statistics.median(one[key] for one in measurements)


def print_table(title, rows, path):
    """Print rows, of which the first has the names of the columns, and write them as CSV."""
    note = "" if can_make_cgroup() else ("  (no cgroup: numpy.memmap has all of the machine's "
                                         "memory)")
    print(title + note)
    for row in rows:
        print("  " + f"{row[0]:<44}" + "".join(f"{cell:>16}" for cell in row[1:]))
    with open(path, "w", newline="") as f:
        csv.writer(f, lineterminator="\n").writerows(rows)


def draw_bars(title, axis, rows, png):
    """Draw a diagram by gnuplot if it is installed. Rows are pairs of a name and a number."""
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
plot $data using ($2/2):0:($2/2):(0.35):ytic(1) with boxxyerror notitle, \\
    $data using 2:0:2 with labels left offset 0.5,0 notitle
"""
    try:
        subprocess.run(["gnuplot"], input=script, text=True, check=True)
    except FileNotFoundError:
        print("  (no diagram: gnuplot is not installed)")
