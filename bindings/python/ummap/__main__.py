# SPDX-License-Identifier: BSD-3-Clause
"""python -m ummap: what there is on this machine."""
from __future__ import annotations

import errno
import os
import sys

import ummap
from ummap import _open, _ummap


def _opens(**options: object) -> str:
    try:
        with _open.Store("null:1M", "r") as store:
            store.map(0, 1 << 20, **options).close()
        return "yes"
    except OSError as error:
        return f"no: {error.strerror}"


def _driver(scheme: str) -> str:
    """A driver that is not there says so before it looks for the store."""
    try:
        _ummap.store_size(f"{scheme}:/nonexistent/x", False, False, False)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL) and "no driver" not in error.strerror:
            return "yes"
        return f"no: {error.strerror}"
    return "yes"


def _library() -> str:
    with open("/proc/self/maps") as maps:
        names = {line.split(None, 5)[-1].strip() for line in maps if "libummap.so" in line}
    return ", ".join(sorted(names))


def main() -> int:
    memory = os.sysconf("SC_PHYS_PAGES") * _open.PAGE
    rows = [("ummap", ummap.__version__), ("library", _library()), ("python", sys.version.split()[0])]
    if hasattr(ummap, "memmap"):
        import numpy

        rows.append(("numpy", numpy.__version__))
    else:
        rows.append(("numpy", "no: there is no memmap, only open"))
    rows += [(f"engine {name}", _opens(engine=name)) for name in ("segv", "sigbus", "uffd")]
    rows.append(("kernel=True", _opens(kernel=True)))
    rows += [(f"driver {name}", _driver(name)) for name in ("uring", "posix", "pmem")]
    limit = ummap.limit()
    rows.append(("limit", f"{'80%' if limit is None else f'{limit / 2**20:.0f} MiB'} of {memory / 2**20:.0f} MiB"))
    for name in sorted(os.environ):
        if name.startswith("UMMAP_"):
            rows.append((name, os.environ[name]))
    for name, text in rows:
        print(f"{name:16} {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
