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
from typing import Union as _Union

from . import _open, _ummap
from ._open import Mapping
from ._open import open_bytes as open  # noqa: A001 - as in mmap, io, gzip

__version__: str = _ummap.version
__all__ = ["Mapping", "limit", "open", "stat"]

if hasattr(_ummap, "Array"):
    from ._memmap import load, memmap

    __all__ += ["load", "memmap"]


def limit(size: _Union[int, str, None] = None) -> int:
    """Set how many bytes of memory all mappings of this process have together, and return it.

    Parameters
    ----------
    size : int or str
        Bytes, ``"4G"``, or a part of the machine's memory, ``"50%"``; None: only returns what it is. It has to be set before
        the first mapping is made. Processes that are started afterwards have it, too, and share it: it is for all processes
        of a user on the machine (UMMAP_MEM_LIMIT in ummap(7)).

    Returns
    -------
    int
        The limit in bytes; before the first mapping 0 where it is not known yet, which is 0.8 of the memory or a percentage.

    Raises
    ------
    ValueError
        if size is no size.
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
    started = _ummap.stat()["budget_bytes"]
    if size is None:
        text = _os.environ.get("UMMAP_MEM_LIMIT", "%")
        return started or (0 if text.endswith("%") else _open.size_of(text, "UMMAP_MEM_LIMIT"))
    if isinstance(size, str) and size.strip().endswith("%"):
        text, wanted = size.strip(), 0
    else:
        wanted = _open.size_of(size, "limit")
        text = str(wanted)
    if not started:
        _ummap.set_limit(text)
        _os.environ["UMMAP_MEM_LIMIT"] = text
        return wanted
    if wanted != started:
        raise RuntimeError(f"the limit is {started} bytes since the first mapping was made: set it before, or give mappings a "
                           "limit of their own")
    return started


def stat() -> dict:
    """Return the counters of all mappings of this process together, as a dictionary; umstat(3) says what each counts.

    >>> import ummap
    >>> sorted(ummap.stat())[:3]
    ['ahead_hits', 'ahead_loads', 'ahead_waste']
    """
    return _ummap.stat()
