# SPDX-License-Identifier: BSD-3-Clause
"""Stores and how they are opened: paths, file objects, URIs, sizes in words, modes. What memmap and open have in common."""
from __future__ import annotations

import atexit
import gc
import itertools
import os
import re
import shutil
import sys
import tempfile
import urllib.parse
import weakref
from contextlib import contextmanager
from errno import EBUSY, EOPNOTSUPP
from typing import Any, Iterator, Optional, Union

from . import _ummap

Size = Union[int, str, None]

MODES = ["r", "c", "r+", "w+"]
_MODE_NAMES = {"readonly": "r", "copyonwrite": "c", "readwrite": "r+", "write": "w+"}
_ENGINES = {None: 0, "auto": 1, "segv": 2, "uffd": 3, "sigbus": 4}
ADVICE = {"normal": 0, "random": 1, "sequential": 2, "willneed": 3, "dontneed": 4}
PAGE = os.sysconf("SC_PAGESIZE")
_SEGMENT = 2 << 20
# A limit has room for so many segments where no size of them was asked for.
_SEGMENTS = 32
_URI = re.compile(r"[a-z][a-z0-9-]*(\+[a-z][a-z0-9-]*)*:")


def mode_of(mode: str) -> str:
    """The short name of a mode; ValueError, in numpy's words, if it is none."""
    mode = _MODE_NAMES.get(mode, mode)
    if mode not in MODES:
        raise ValueError(f"mode must be one of {MODES + list(_MODE_NAMES)!r} (got {mode!r})")
    return mode


def size_of(size: Size, what: str) -> int:
    """Bytes of 4096, "64K", "64KiB", "1.5G"; 0 for None. ValueError if it is none of these."""
    if size is None:
        return 0
    if isinstance(size, str):
        try:
            size = _ummap.parse_size(size.strip())
        except ValueError:
            raise ValueError(f'{what} is "{size}": it must be bytes, or a number with K, M, G or T, such as "4G"') from None
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        raise TypeError(f'{what} must be bytes or a string such as "4G", not {size!r}')
    size = size.__index__()
    if size <= 0:
        raise ValueError(f"{what} is {size}: it must be more than 0 bytes")
    return size


def limit_of(size: Size, what: str) -> Union[int, float]:
    """The limit of a process: bytes, or (a float) per cent of the memory. ValueError if the library would not take it."""
    if isinstance(size, str) and size.strip().endswith("%"):
        try:
            return _ummap.parse_percent(size.strip())
        except ValueError:
            raise ValueError(f'{what} is "{size}": a part of the memory is more than 0% and at most 100%') from None
    number, memory = size_of(size, what), os.sysconf("SC_PHYS_PAGES") * PAGE
    if not 4 * PAGE <= number <= memory:
        raise ValueError(f"{what} is {number}: it must be from {4 * PAGE}, four pages, to the {memory} of this machine's memory")
    return number


def advice_of(advice: str) -> int:
    """The number of an advice; ValueError if there is none of this name."""
    if advice not in ADVICE:
        raise ValueError(f"advice must be one of {list(ADVICE)!r} (got {advice!r})")
    return ADVICE[advice]


def segment_default() -> int:
    """What a mapping that asks for none gets."""
    return size_of(os.environ.get("UMMAP_SEG_SIZE") or _SEGMENT, "UMMAP_SEG_SIZE")


def segment_for(segment: Size, limit: int, advice: Optional[str], row: int) -> int:
    """The segment size: what was asked for; for random access, of a row; and such that the limit has room for some."""
    if segment is not None:
        return size_of(segment, "segment")
    most = segment_default()
    wanted = most
    if advice == "random" and row:
        wanted = min(most, 1 << (row - 1).bit_length())
    if limit:
        wanted = min(wanted, 1 << max(limit // _SEGMENTS, 1).bit_length() - 1)
    return 0 if wanted == most else max(wanted, PAGE)


# Whether there was a mapping: from then on, the limit of the process stays. The budget that umstat(3) tells is none for a moment where
# other processes have all of the memory that they share.
began = False


class Mapping(_ummap.Mapping):
    """Bytes of a store, in memory as far as they are used: what `ummap.open` returns.

    It has the buffer protocol, so that ``memoryview(m)``, ``re.search(pattern, m)`` or ``numpy.frombuffer(memoryview(m))`` see
    all of it without reading it. ``m[i]`` is a byte, ``m[i:j]`` are bytes, which are read (or, for an assignment, written) by
    a call that raises OSError where storage fails; an access through a memoryview is a SIGBUS then, as with mmap.

    A forked child sees the file as it was when it was forked, through a mapping of the kernel's that has no limit, and what it
    stores there is its own; other calls raise OSError (ENXIO) there. A mapping of another store cannot be used in the child.
    """

    recipe: dict
    token: tuple

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self)} bytes"
        return f"<ummap.Mapping of {self.name!r}, {state}>"

    def __enter__(self) -> "Mapping":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on, fewer at the end, and all where `size` is -1. OSError where storage fails."""
        _check_offset(offset)
        return self[offset : offset + size if size >= 0 else None]

    def write(self, offset: int, data: Any) -> int:
        """Store bytes at `offset`, and return how many. They reach the store by `flush`, or when memory is needed.

        Raises ValueError where they would reach beyond the end.
        """
        size = memoryview(data).nbytes
        _check_offset(offset)
        self[offset : offset + size] = data
        return size

    def flush(self) -> None:
        """Write all changes and make them durable. Raises OSError if storage fails; what was not written stays in memory."""
        self._sync()

    def advise(self, advice: str, offset: int = 0, size: int = -1) -> None:
        """Say how the bytes will be used.

        "normal", "random" and "sequential" hold for the whole mapping, from now on. "willneed" starts to load the range, and
        "dontneed" writes its changes and lets go of its memory. Raises ValueError and OSError.
        """
        self._advise(advice_of(advice), offset, size)

    def prefetch(self, offset: int = 0, size: int = -1, *, wait: bool = False) -> None:
        """Load a range in the background, or with `wait` now: then OSError is raised where storage fails."""
        _check_offset(offset)
        size = len(self) - offset if size < 0 else size
        if size > 0:
            self._rows(offset, 1, size, _ZERO)
        if wait:
            self._load(offset, size)

    @contextmanager
    def pin(self, offset: int = 0, size: int = -1, *, write: Optional[bool] = None) -> Iterator[memoryview]:
        """Keep a range in memory for the block, as a memoryview, so that the kernel and devices can be given it.

        write: whether they store there; None: if the mapping is writable. Pins count against the limit. Raises OSError where
        storage fails (ENOMEM: more than the limit).
        """
        size = len(self) - offset if size < 0 else size
        self._pin(offset, size, self.writable if write is None else write)
        try:
            view = memoryview(self)[offset : offset + size]
            try:
                yield view
            finally:
                view.release()
        finally:
            self._unpin(offset, size)

    def file(self) -> "Any":
        """Return a raw file object (io.RawIOBase) that reads and writes the bytes of the mapping: for what wants a file."""
        from ._file import MappingFile

        return MappingFile(self)


_ZERO = bytes(8)


def _check_offset(offset: int) -> None:
    if offset < 0:
        raise ValueError(f"offset is {offset}: it must not be negative")



_all: "weakref.WeakSet[Mapping]" = weakref.WeakSet()
_live: "weakref.WeakValueDictionary[tuple, Mapping]" = weakref.WeakValueDictionary()
_numbers = itertools.count()
_worker_end: Any = None


def _flush_all() -> None:
    """Before the process ends: what is only in memory would be lost, as it would not be with numpy.memmap."""
    for mapping in list(_all):
        if mapping._own and mapping.recipe["mode"] in ("r+", "w+"):
            try:
                mapping._sync()
            except OSError as error:
                size = mapping.stat()["waiting_bytes"]
                print(f"ummap: {mapping.name}: changes are lost ({size} bytes): {error}", file=sys.stderr)


def _before_fork() -> None:
    """A child sees the files, so what was changed is to be there."""
    for mapping in list(_all):
        if mapping._own and mapping.recipe["mode"] in ("r+", "w+"):
            try:
                mapping._sync(0, -1, False, False)
            except OSError as error:
                print(f"ummap: {mapping.name}: the child does not see all changes: {error}", file=sys.stderr)


def _in_child() -> None:
    global _worker_end
    _worker_end = None
    for mapping in list(_all):
        mapping._in_child()


atexit.register(_flush_all)
os.register_at_fork(before=_before_fork, after_in_child=_in_child)


def _end_of_worker() -> None:
    """Processes of multiprocessing end without atexit, but by the finalizers that are registered while they run."""
    global _worker_end
    util = sys.modules.get("multiprocessing.util")
    if util and not (_worker_end and _worker_end.still_active()):
        _worker_end = util.Finalize(None, _flush_all, exitpriority=100)


def find(token: tuple) -> Optional[Mapping]:
    """The mapping of this process that a pickle names."""
    mapping = _live.get(token)
    return mapping if mapping is not None and mapping._own else None


def is_uri(store: Any) -> bool:
    """Whether it is scheme:..., and not a path; "./a:b" is one."""
    return isinstance(store, str) and _URI.match(store) is not None


def _quoted(path: str) -> str:
    return urllib.parse.quote(os.fsencode(path), safe="/")


def _same_file(path: Any, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except (OSError, TypeError, ValueError):
        return False


class Store:
    """What memmap and open were given, opened: its size, its name, and a mapping of a part of it."""

    def __init__(self, store: Any, mode: str) -> None:
        self.mode = mode
        self.file: Any = None
        self.fd = -1
        self.path: Optional[str] = None
        self._owned = False
        if is_uri(store):
            self.filename: Any = store
            self.uri: Optional[str] = store
            new = mode == "w+"
            self.size = _ummap.store_size(store, mode in ("r+", "w+"), new, new)
            return
        self.uri = None
        if hasattr(store, "read"):
            self.file = store
        else:
            self.file = open(os.fspath(store), ("r" if mode == "c" else mode) + "b")
            self._owned = True
        try:
            self.file.seek(0, 2)
            self.size = self.file.tell()
            self.fd = self.file.fileno()
        except BaseException:
            self.close()
            raise
        name = getattr(self.file, "name", None)
        path = os.fsdecode(name) if isinstance(name, (str, bytes)) else None
        if isinstance(store, os.PathLike) and hasattr(store, "resolve"):
            self.filename = store.resolve()
        else:
            self.filename = os.path.abspath(name) if isinstance(name, str) else None
        if path is not None and _same_file(path, self.fd):
            self.path = os.path.abspath(path)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if self._owned:
            self.file.close()

    def lengthen(self, size: int) -> None:
        """A file gets the bytes that a writable mapping needs; a URI is made as long by the library."""
        if self.mode in ("w+", "r+") and self.size < size and self.file is not None:
            self.file.flush()
            os.ftruncate(self.fd, size)
            self.size = size

    def _uris(self) -> Iterator[str]:
        """The URIs to try, the best first."""
        if self.uri is not None:
            yield self.uri
            return
        path = _quoted(self.path if self.path is not None else f"/proc/self/fd/{self.fd}")
        driver = os.environ.get("UMMAP_DRIVER")
        if driver:
            head, mark, keys = driver.partition("?")
            yield f"{head.rstrip(':')}:{path}{mark}{keys}"
            return
        yield f"uring:{path}"
        yield f"posix:{path}"

    def _open(self, size: int, offset: int, flags: int, options: dict) -> Mapping:
        uris = list(self._uris())
        for uri in uris:
            try:
                return self._open_as(uri, size, offset, flags, options)
            except OSError as error:
                # io_uring may be missing or refused.
                if error.errno != EOPNOTSUPP or uri is uris[-1]:
                    raise
        raise AssertionError

    def _open_as(self, uri: str, size: int, offset: int, flags: int, options: dict) -> Mapping:
        name = self.filename if self.filename is not None else uri
        scratch = None
        writes = self.mode in ("r+", "w+")
        if self.mode == "c":
            # Changes go to a file without a name, where memory has no room for them.
            scratch = tempfile.mkdtemp(prefix="ummap-", dir=os.environ.get("TMPDIR") or "/var/tmp")
            key = f"cow.path={_quoted(os.path.join(scratch, 'changes'))}"
            uri = f"cow+{uri}{'&' if '?' in uri else '?'}{key}"
        if scratch or (writes and self.uri is not None and offset + size > self.size):
            flags |= _ummap.CREATE
        try:
            return Mapping(uri, size, offset, self.mode != "r", writes, flags, fd=-1 if scratch else self.fd, name=name, **options)
        finally:
            if scratch:
                shutil.rmtree(scratch)

    def map(self, offset: int, size: int, *, limit: Size = None, segment: Size = None, policy: Optional[str] = None,
            advice: Optional[str] = None, writers: bool = False, kernel: bool = False, engine: Optional[str] = None,
            row: int = 0) -> Mapping:
        """Map [offset, offset + size); offset is a multiple of the page's size."""
        global began
        if engine not in _ENGINES:
            raise ValueError(f"engine must be one of {list(_ENGINES)!r} (got {engine!r})")
        number = None if advice is None else advice_of(advice)
        budget = size_of(limit, "limit")
        flags = (_ummap.WRITERS if writers else 0) | (_ummap.KERNEL if kernel else 0)
        options = dict(segment=segment_for(segment, budget, advice, row), policy=policy, limit=budget, engine=_ENGINES[engine])
        try:
            mapping = self._open(size, offset, flags, options)
        except OSError as error:
            if error.errno != EBUSY or not _all:
                raise
            # Who has the bytes may be an array that nobody has any more, but for a cycle.
            gc.collect()
            mapping = self._open(size, offset, flags, options)
        began = True
        mapping._segment = options["segment"] or segment_default()
        mapping.recipe = dict(store=self.uri if self.uri is not None else self.path, mode=self.mode, offset=offset, size=size,
                              limit=limit, segment=options["segment"] or None, policy=policy, advice=advice, writers=writers,
                              kernel=kernel, engine=engine)
        mapping.token = (os.getpid(), next(_numbers), os.urandom(8))
        _all.add(mapping)
        _live[mapping.token] = mapping
        if number is not None:
            mapping._advise(number)
        if self.mode in ("r+", "w+"):
            _end_of_worker()
        return mapping


def _map_again(store: Any, mode: str, offset: int, size: int, **options: Any) -> Mapping:
    with Store(store, mode) as opened:
        return opened.map(offset, size, **options)


def reopen(token: tuple, recipe: dict) -> Mapping:
    """The mapping that a pickle was made of, or one like it: in another process, or where it has ended."""
    mapping = find(token)
    if mapping is not None:
        return mapping
    options = dict(recipe)
    store, mode = options.pop("store"), options.pop("mode")
    if not is_uri(store):
        from pathlib import Path

        store = Path(store)
    try:
        mapping = _map_again(store, "r+" if mode == "w+" else mode, **options)
    except OSError as error:
        # Another process writes to it. What cannot be read from its pipe ends a worker of multiprocessing, and nobody is told.
        if error.errno != EBUSY or mode == "r":
            raise
        mapping = _map_again(store, "r", **options)
    mapping.token = token
    _live[token] = mapping
    return mapping


def open_bytes(store: Any, mode: str = "r", offset: int = 0, size: Optional[int] = None, *, limit: Size = None,
               segment: Size = None, policy: Optional[str] = None, advice: Optional[str] = None, writers: bool = False,
               kernel: bool = False, engine: Optional[str] = None) -> Mapping:
    """Map a file, or the store that a URI names, as bytes.

    Parameters
    ----------
    store : str, path or file object
        A path, an open file, or a URI such as ``"wal+uring:/data/a"`` (ummap-drivers(7)).
    mode : {'r', 'r+', 'w+', 'c'}
        As for `ummap.memmap`.
    offset : int
        Where the mapping begins in the store, in bytes: a multiple of the page's size.
    size : int
        How many bytes; None: up to the end of the store. A writable mapping makes a shorter file longer.
    limit, segment, policy, advice, writers, kernel, engine
        As for `ummap.memmap`.

    Returns
    -------
    Mapping
        It is closed by ``close``, by the end of a ``with`` block, or when nobody has it any more.

    Raises
    ------
    ValueError
        for arguments that are wrong by themselves, or a range that is not in the store.
    OSError
        with the library's sentence: the store cannot be opened like this.

    Examples
    --------
    >>> import ummap, tempfile
    >>> with tempfile.NamedTemporaryFile() as f:
    ...     with ummap.open(f.name, "w+", size=10000) as m:
    ...         m[100:105] = b"hello"
    ...         m.flush()
    ...     with ummap.open(f.name, limit="1M") as m:
    ...         len(m), m[100:105], m[0]
    (10000, b'hello', 0)
    """
    mode = mode_of(mode)
    if offset < 0 or offset % PAGE:
        raise ValueError(f"offset is {offset}: it must be a multiple of the page's {PAGE} bytes")
    with Store(store, mode) as opened:
        if size is None:
            size = opened.size - offset
        check_length(opened, offset, size)
        opened.lengthen(offset + size)
        return opened.map(offset, size, limit=limit, segment=segment, policy=policy, advice=advice, writers=writers,
                          kernel=kernel, engine=engine)


def check_length(opened: Store, offset: int, size: int) -> None:
    """ValueError where a mapping would have no bytes, or would leave what cannot become longer."""
    if size <= 0:
        raise ValueError(f"cannot map an empty file, or an empty part of one: {opened.filename} has {opened.size} bytes, and "
                         f"byte {offset} is where the mapping begins")
    if opened.mode in ("r", "c") and offset + size > opened.size:
        raise ValueError(f"the mapping ends at byte {offset + size}, which is greater than file size: {opened.filename} has "
                         f"{opened.size} bytes")
