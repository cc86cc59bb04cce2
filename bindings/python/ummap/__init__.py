# SPDX-License-Identifier: BSD-3-Clause
"""Files larger than memory, in a line: numpy.memmap on libummap, which does the paging itself.

Three problems, and the line that solves each:

- Rows at random, of a file larger than memory, are slow, because the kernel reads 128 KiB around each:
  ``a = ummap.memmap(path, "f4", "r", shape=(n, 256), advice="random")``, and ``a[rows]`` loads them all together.
- One pass over a large file fills memory and pushes everything else out of it:
  ``a = ummap.memmap(path, "f4", "r", advice="sequential", limit="256M")``
- Pass after pass over somewhat more than memory reads all of it each time:
  ``a = ummap.memmap(path, "f4", "r", policy="lifo", limit="4G")``

`memmap` is for arrays, `load` for files of numpy.save, `open` for bytes; `limit` bounds the memory of all of them, and `stat`
counts. ``python -m ummap`` shows what there is on this machine.
"""
from __future__ import annotations

import os as _os
import sys as _sys
from typing import Optional as _Optional, Union as _Union

from . import _open, _ummap
from ._open import Mapping
from ._open import open_bytes as open  # noqa: A001 - as in mmap, io, gzip

__version__: str = _ummap.version
__all__ = ["Mapping", "limit", "open", "stat"]

if hasattr(_ummap, "Array"):
    from ._memmap import load, memmap

    __all__ += ["load", "memmap"]
else:

    def __getattr__(name: str) -> None:
        if name in ("load", "memmap"):
            raise AttributeError(f"ummap.{name} needs numpy, which this Python ({_sys.executable}) does not have")
        raise AttributeError(f"module 'ummap' has no attribute {name!r}")


def limit(size: _Union[int, str, None] = None) -> _Optional[int]:
    """Set how many bytes of memory all mappings of this process have together, and return it.

    Parameters
    ----------
    size : int or str
        Bytes, ``"4G"``, or a part of the machine's memory, ``"50%"``; None: only returns what it is. It has to be set before
        the first mapping is made. Processes that are started afterwards have it, too, and share it: it is for all processes
        of a user on the machine (UMMAP_MEM_LIMIT in ummap(7)).

    Returns
    -------
    int or None
        The limit in bytes; None where it is a part of the memory, which is 80% if nobody has set anything else.

    Raises
    ------
    ValueError
        if size is no size, or not from four pages to the machine's memory, or a part that is not above 0% and at most 100%.
    RuntimeError
        if there were mappings already, and it is another limit than they have.

    Examples
    --------
    >>> import subprocess, sys
    >>> program = "import ummap; print(ummap.limit('256M')); ummap.limit('1 pound')"
    >>> done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    >>> print(done.stdout + done.stderr.splitlines()[-1])
    268435456
    ValueError: limit is "1 pound": it must be bytes, or a number with K, M, G or T, such as "4G"
    """
    text = _os.environ.get("UMMAP_MEM_LIMIT") or "80%"
    now = _open.limit_of(text, "UMMAP_MEM_LIMIT")
    if size is None:
        return now if isinstance(now, int) else None
    wanted = _open.limit_of(size, "limit")
    new = str(wanted) if isinstance(wanted, int) else f"{wanted:g}%"
    if (_open.began or _ummap.stat()["budget_bytes"]) and wanted != now:
        raise RuntimeError(f"the limit is {text} since the first mapping was made: set it before, or give mappings a limit of "
                           "their own")
    _os.environ["UMMAP_MEM_LIMIT"] = new
    return wanted if isinstance(wanted, int) else None


def stat() -> dict:
    """Return the counters of all mappings of this process together, as a dictionary; umstat(3) says what each counts.

    >>> import ummap
    >>> sorted(ummap.stat())[:3]
    ['readahead_hits', 'readahead_loads', 'readahead_waste']
    """
    return _ummap.stat()
