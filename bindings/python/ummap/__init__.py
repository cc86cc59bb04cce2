# SPDX-License-Identifier: BSD-3-Clause
"""Files larger than memory as NumPy arrays and as bytes, with a limit on the memory they use.

libummap reads and writes the parts of a file that a program uses, and keeps no more of them in
memory than a limit allows. The package has these names:

- `memmap`: an array in a file, with the arguments of `numpy.memmap`
- `load`: an array in a file of `numpy.save`, as `numpy.load` with `mmap_mode`
- `open`: a file as bytes, a `Mapping`; with ``grows=True`` a file object that can grow
- `formats.load`: the arrays of a file of .npz, safetensors or GGUF
- `h5py_file`: an HDF5 file that survives a crash, an `h5py.File`
- `limit`: the memory limit of this process
- `stat`: the counters of this process

Each call takes a path, or the URI of a store such as ``"wal+uring:/data/a"`` (ummap-drivers(7)).

>>> import ummap, tempfile
>>> f = tempfile.NamedTemporaryFile()
>>> a = ummap.memmap(f.name, "float32", "w+", shape=(4000, 256), limit="1M")
>>> a[3] = 1.5
>>> a.flush()

Three problems of large files have a solution in one line:

- Random rows are slow, because the kernel reads 128 KiB around each row. With advice="random" the
  library reads rows only, and ``a[rows]`` reads all rows of a list together:
  ``a = ummap.memmap(path, "f4", "r", shape=(n, 256), advice="random")``
- One pass over a large file fills the memory of the machine and displaces everything else. A limit
  prevents it:
  ``a = ummap.memmap(path, "f4", "r", advice="sequential", limit="256M")``
- Repeated passes over a file somewhat larger than memory read the whole file each time. The policy
  "lifo" keeps one part of the file in memory. It needs advice="random", without readahead:
  ``a = ummap.memmap(path, "f4", "r", policy="lifo", advice="random", limit="4G")``

``python3 -m ummap`` shows the engines and drivers that work on this machine. Without NumPy, the
package has only `open`, `h5py_file`, `limit` and `stat`.
"""
import importlib as _importlib
import os as _os
import sys as _sys
from typing import Any as _Any, Optional as _Optional, Union as _Union

from . import _arguments, _mapping, _ummap
from ._hdf5 import h5py_file
from ._mapping import Mapping
from ._open import open  # noqa: A001 - as in mmap, io and gzip

__version__: str = _ummap.version
__all__ = ["Mapping", "h5py_file", "limit", "open", "stat"]

if hasattr(_ummap, "Array"):
    from ._load import load
    from ._memmap import memmap

    __all__ += ["load", "memmap"]


def __getattr__(name: str) -> _Any:
    """Import `formats` when it is used, and say why names are missing."""
    if name not in ("formats", "load", "memmap"):
        raise AttributeError(f"module 'ummap' has no attribute {name!r}")
    if not hasattr(_ummap, "Array"):
        raise ImportError(f"cannot use ummap.{name}: numpy is not installed for this Python "
                          f"({_sys.executable})")
    return _importlib.import_module("ummap." + name)


def limit(size: _Union[int, str, None] = None) -> _Optional[int]:
    """Set the memory limit for all mappings of this process together, and return it.

    Processes that this process starts inherit the limit and share it: a limit holds for all
    processes of a user on a machine (UMMAP_MEM_LIMIT in ummap-environment(7)).

    Parameters
    ----------
    size : int or str
        Bytes (``1 << 30``), a size with a unit (``"64M"``, ``"64MiB"``, ``"0.5G"``), or a
        percentage of the memory of the machine, or of the cgroup if that is less (``"50%"``). The
        limit must be set before the first mapping is made. None: return the limit without a change.

    Returns
    -------
    int or None
        The limit in bytes. None if the limit is a percentage of the memory; the default is 80%.

    Raises
    ------
    ValueError
        if `size` is not a size, is less than four pages or more than the machine's memory, or is a
        percentage that is not more than 0% and at most 100%.
    RuntimeError
        if this process has had a mapping, and the limit would change.

    Examples
    --------
    >>> import subprocess, sys
    >>> program = "import ummap; print(ummap.limit('256M')); ummap.limit('1 pound')"
    >>> done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    >>> print(done.stdout + done.stderr.splitlines()[-1])
    268435456
    ValueError: limit is "1 pound": it must be a number of bytes, ...
    """
    text = _os.environ.get("UMMAP_MEM_LIMIT") or "80%"
    now = _arguments.parse_process_limit(text, "UMMAP_MEM_LIMIT")
    if size is None:
        return now if isinstance(now, int) else None
    wanted = _arguments.parse_process_limit(size, "limit")
    if (_mapping.has_mapped or _ummap.stat()["budget_bytes"]) and wanted != now:
        raise RuntimeError(f"cannot change the limit to {size!r}: the limit is {text} since the "
                           "first mapping was made. Set the limit before, or give each mapping a "
                           "limit")
    _os.environ["UMMAP_MEM_LIMIT"] = str(wanted) if isinstance(wanted, int) else f"{wanted:g}%"
    return wanted if isinstance(wanted, int) else None


def stat() -> dict:
    """Return the counters of all mappings of this process together, as a dictionary.

    The keys are the names of umstat(3): ``read_bytes``, ``resident_bytes``, ``budget_bytes`` and
    so on. Values are bytes or numbers of events.

    >>> import ummap
    >>> sorted(ummap.stat())[:3]
    ['budget_bytes', 'commit_bytes', 'dirty_bytes']
    """
    return _ummap.stat()
