# SPDX-License-Identifier: BSD-3-Clause
"""``python3 -m ummap`` prints the versions, engines, drivers and settings of this machine."""
import errno
import os
import sys

import ummap
from ummap import _arguments, _ummap


def _try_to_map(**options: object) -> str:
    try:
        ummap.open("null:1M", "r", **options).close()
        return "yes"
    except OSError as error:
        return f"no: {error.strerror}"


def _try_driver(scheme: str) -> str:
    """Open a file that does not exist: a missing driver is reported before the missing file."""
    try:
        _ummap.store_size(f"{scheme}:/nonexistent/x", False, False, -1)
    except OSError as error:
        no_file = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL)
        if not no_file or "no driver" in error.strerror:
            return f"no: {error.strerror}"
    return "yes"


def _library_paths() -> str:
    with open("/proc/self/maps") as maps:
        names = {line.split(None, 5)[-1].strip() for line in maps if "libummap.so" in line}
    return ", ".join(sorted(names))


def main() -> int:
    """Print the report, and return the exit status."""
    rows = [("ummap", ummap.__version__), ("library", _library_paths()),
            ("python", sys.version.split()[0])]
    if "memmap" in ummap.__all__:
        import numpy

        rows.append(("numpy", numpy.__version__))
    else:
        rows.append(("numpy", "no: ummap.memmap and ummap.load are missing"))
    rows += [(f"engine {name}", _try_to_map(engine=name)) for name in ("segv", "sigbus", "uffd")]
    rows.append(("kernel=True", _try_to_map(kernel=True)))
    rows += [(f"driver {name}", _try_driver(name)) for name in ("uring", "posix", "pmem")]
    limit, memory = ummap.limit(), _arguments.usable_memory() / 2**20
    text = os.environ.get("UMMAP_MEM_LIMIT", "80%") if limit is None else f"{limit / 2**20:.0f} MiB"
    rows.append(("limit", f"{text} of {memory:.0f} MiB"))
    for name in sorted(os.environ):
        if name.startswith("UMMAP_"):
            rows.append((name, os.environ[name]))
    for name, text in rows:
        print(f"{name:16} {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
