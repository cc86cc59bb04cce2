# SPDX-License-Identifier: BSD-3-Clause
"""The class ummap.Mapping, the list of this process's mappings, and the hooks at fork and exit."""
import atexit
import itertools
import os
import sys
import weakref
from contextlib import contextmanager
from typing import Any, Iterator, Optional

from . import _ummap
from ._arguments import check_offset, parse_advice

_ROW_0 = bytes(8)


class Flush:
    """A flush in the background: the result of ``flush(wait=False)``.

    Several threads may call the methods at the same time.

    >>> import ummap
    >>> m = ummap.open("mem:1M", "r+", size=10)
    >>> written = m.flush(wait=False)
    >>> written.result()
    >>> written.done()
    True
    """

    _handle: Optional[int] = None
    _error: Optional[OSError] = None

    def __init__(self, mapping: _ummap.Mapping) -> None:
        self._handle = mapping._begin_sync()

    def done(self) -> bool:
        """Return whether the flush has ended."""
        return _ummap.end_sync(self, False)

    def result(self) -> None:
        """Wait until the flush has ended. Raises OSError if it has failed."""
        _ummap.end_sync(self, True)
        if self._error:
            raise self._error

    def __del__(self) -> None:
        # Ends without a wait, unless the flush is still in progress.
        _ummap.end_sync(self, True)


def flush(mapping: _ummap.Mapping, wait: bool) -> Optional[Flush]:
    """Flush a mapping. Return None, or without `wait` the flush in the background."""
    if not wait:
        return Flush(mapping)
    mapping._sync()
    return None


class Mapping(_ummap.Mapping):
    """The bytes of a store, paged into memory as they are used: the result of `ummap.open`.

    ``m[i]`` is one byte as an int, and ``m[i:j]`` is a bytes object. Assignments to ``m[i]`` and
    ``m[i:j]`` store. All of these raise OSError if storage fails. ``len(m)`` is the size in bytes.

    A mapping has the buffer protocol: ``memoryview(m)``, ``re.search(pattern, m)`` and
    ``numpy.frombuffer(memoryview(m))`` see all bytes without reading them. If storage fails during
    an access through a memoryview, the process gets SIGBUS, as with `mmap.mmap`.

    A mapping ends by `close`, at the end of a ``with`` block, or when the last reference to it
    goes. A mapping opened with mode 'r+' or 'w+' makes its changes durable at its end.

    A forked child has a private mapping of the file by the kernel, without a limit. It shows all
    changes before the fork, and in pages that the child has not accessed yet also what the parent
    writes to the file later. The child keeps its own stores to itself, and its other calls raise
    OSError (ENXIO). A child cannot use a mapping whose store is not a file.

    Attributes
    ----------
    closed : bool
        Whether the mapping has ended.
    writable : bool
        Whether the program may store to the mapping.
    name : str or path
        The path or the URI of the store.

    Examples
    --------
    >>> import ummap
    >>> with ummap.open("mem:1M", "r+", size="1M") as m:
    ...     m[0:5] = b"hello"
    ...     len(m), m[1], m[0:5], m.writable
    (1048576, 101, b'hello', True)
    """

    # The arguments with which another process opens the mapping again, and the token that
    # identifies the mapping in pickles.
    _reopen_arguments: dict
    _token: tuple

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self)} bytes"
        return f"<ummap.Mapping of {self.name!r}, {state}>"

    def __enter__(self) -> "Mapping":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from byte `offset` on.

        The result is shorter if the mapping ends before. A size of -1 means all bytes to the end.

        Raises
        ------
        ValueError
            if `offset` is negative, or the mapping is closed.
        OSError
            if storage fails.

        Examples
        --------
        >>> import ummap
        >>> ummap.open("mem:1M", "r+", size=10).read(8, 100)
        b'\\x00\\x00'
        """
        check_offset(offset)
        return self[offset : offset + size if size >= 0 else None]

    def write(self, offset: int, data: Any) -> int:
        """Store `data`, an object with the buffer protocol, at byte `offset`.

        Returns the number of bytes. The bytes reach the store by `flush`, or when their memory is
        needed for other bytes.

        Raises
        ------
        ValueError
            if `offset` is negative, or the data would reach beyond the end of the mapping.
        TypeError
            if the mapping is read-only.
        OSError
            if a segment must be read first, and storage fails.

        Examples
        --------
        >>> import ummap
        >>> m = ummap.open("mem:1M", "r+", size=10)
        >>> m.write(7, b"abc"), m[6:]
        (3, b'\\x00abc')
        """
        size = memoryview(data).nbytes
        check_offset(offset)
        self[offset : offset + size] = data
        return size

    def flush(self, wait: bool = True) -> Optional[Flush]:
        """Write all changes to the store and make them durable.

        Raises OSError if storage fails. Changes that were not written stay in memory, and another
        call of `flush` tries again.

        With ``wait=False``, the contents of this moment become durable in the background, while
        the program goes on to store. The result is a `Flush` with the methods ``done()`` and
        ``result()``. A mapping has one such flush at a time: another call of `flush` waits for it.

        >>> import ummap
        >>> m = ummap.open("mem:1M", "r+", size=10)
        >>> m[0] = 1
        >>> m.flush()
        >>> m.stat()["dirty_bytes"]
        0
        >>> m[0] = 2
        >>> written = m.flush(wait=False)
        >>> m[0] = 3
        >>> written.result()
        """
        return flush(self, wait)

    def advise(self, advice: str, offset: int = 0, size: int = -1) -> None:
        """Tell the library how the program will use the bytes.

        Parameters
        ----------
        advice : {'normal', 'random', 'sequential', 'willneed', 'dontneed'}
            'normal', 'random' and 'sequential' set the readahead of the whole mapping from now on.
            'willneed' starts to load the range in the background. 'dontneed' writes the changes of
            the range and frees its memory.
        offset, size : int
            The range in bytes. A size of -1 means all bytes to the end.

        Raises
        ------
        ValueError
            if the advice is unknown, or the range is not in the mapping.
        OSError
            if storage fails.

        Examples
        --------
        >>> import ummap
        >>> m = ummap.open("mem:1M", "r+", size="1M")
        >>> m.advise("sequential")
        >>> m.advise("dontneed", 0, 4096)
        """
        self._advise(parse_advice(advice), offset, size)

    def prefetch(self, offset: int = 0, size: int = -1, *, wait: bool = False) -> None:
        """Load a range into memory, in the background or, with `wait`, before the call returns.

        `offset` and `size` are bytes, and a size of -1 means all bytes to the end.

        Raises ValueError if the range is not in the mapping, and with `wait` OSError if storage
        fails.

        >>> import ummap
        >>> ummap.open("mem:1M", "r+", size="1M").prefetch(0, 65536, wait=True)
        """
        check_offset(offset)
        size = len(self) - offset if size < 0 else size
        if size > 0:
            self._read_rows(offset, 1, size, _ROW_0)
        if wait:
            self._load(offset, size)

    @contextmanager
    def pin(self, offset: int = 0, size: int = -1, *,
            write: Optional[bool] = None) -> Iterator[memoryview]:
        """Keep a range in memory for a ``with`` block, which gets it as a memoryview.

        System calls and devices may use a pinned range with every engine. Pinned bytes count
        against the limit.

        Parameters
        ----------
        offset, size : int
            The range in bytes. A size of -1 means all bytes to the end.
        write : bool
            Whether the block stores to the range. None: whether the mapping is writable.

        Raises
        ------
        ValueError
            if the range is not in the mapping.
        OSError
            if storage fails, or if the range does not fit into the limit (ENOMEM).

        Examples
        --------
        >>> import ummap
        >>> m = ummap.open("mem:1M", "r+", size=4096)
        >>> with m.pin(0, 5) as view, open("/proc/version", "rb", buffering=0) as f:
        ...     f.readinto(view)
        5
        >>> m[0:5]
        b'Linux'
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

    def file(self) -> Any:
        """Return a raw file object (`io.RawIOBase`) that reads and writes the mapped bytes.

        Libraries that expect a file object, such as h5py and zipfile, can use it. The file object
        cannot make the mapping longer; that of ``ummap.open(..., grows=True)`` can. Closing the
        file object leaves the mapping open.

        >>> import io, ummap
        >>> m = ummap.open("mem:1M", "r+", size=100)
        >>> m[0:9] = b"one\\ntwo\\n\\n"
        >>> io.BufferedReader(m.file()).readline()
        b'one\\n'
        """
        from ._file import MappingFile

        return MappingFile(self)


Mapping.__module__ = "ummap"

# Whether this process has had a mapping. The process's limit cannot change from then on. The
# counter budget_bytes does not tell: it is 0 while other processes use the whole shared memory.
has_mapped = False
_mappings: "weakref.WeakSet[Mapping]" = weakref.WeakSet()
_mappings_by_token: "weakref.WeakValueDictionary[tuple, Mapping]" = weakref.WeakValueDictionary()
_numbers = itertools.count()
# The finalizer that multiprocessing calls at the end of a worker process.
_worker_finalizer: Any = None


def register(mapping: Mapping, reopen_arguments: dict) -> None:
    """Add a new mapping to the list of this process's mappings."""
    global has_mapped
    has_mapped = True
    mapping._reopen_arguments = reopen_arguments
    mapping._token = (os.getpid(), next(_numbers), os.urandom(8))
    _mappings.add(mapping)
    _mappings_by_token[mapping._token] = mapping
    if _must_write(mapping):
        _flush_at_worker_exit()


def has_mappings() -> bool:
    """Return whether this process has mapping objects, including unreachable ones in a cycle."""
    return bool(_mappings)


def has_mapping_of(store: str) -> bool:
    """Return whether this process has a mapping of a path or a URI."""
    return any(not mapping.closed and mapping._is_own and
               mapping._reopen_arguments["store"] == store for mapping in list(_mappings))


def find_mapping(token: tuple) -> Optional[Mapping]:
    """Return the mapping of this process that a pickle names, or None."""
    mapping = _mappings_by_token.get(token)
    return mapping if mapping is not None and mapping._is_own else None


def set_token(mapping: Mapping, token: tuple) -> None:
    """Give a mapping that was opened for a pickle the token that the pickle contains."""
    mapping._token = token
    _mappings_by_token[token] = mapping


def _must_write(mapping: Mapping) -> bool:
    return mapping._is_own and mapping._reopen_arguments["mode"] in ("r+", "w+")


def _sync_twice(mapping: Mapping) -> None:
    """Flush a mapping, a second time if the first call fails.

    A call returns the error of an earlier write once, although it has written all changes.
    """
    try:
        mapping._sync()
    except OSError:
        mapping._sync()


def _flush_all() -> None:
    """Flush all mappings at the end of the process, because the library drops unwritten changes.

    If changes are lost, the process ends with status 1 where it would end with 0.
    """
    for mapping in list(_mappings):
        if not _must_write(mapping):
            continue
        try:
            _sync_twice(mapping)
        except OSError as error:
            _ummap.fail_at_exit()
            counters = mapping.stat()
            lost = counters["waiting_bytes"] + counters["lost_bytes"]
            # A store that makes new versions may have all changes, but not the version.
            what = f"{lost} bytes of changes" if lost else "the changes"
            # The message of the error says that changes stay in memory, which ends here.
            print(f"ummap: cannot write {what} to '{mapping.name}' at the end of the process; "
                  f"they are lost: {os.strerror(error.errno or 0)}", file=sys.stderr)


def _write_before_fork() -> None:
    """Write all changes to the files, because a child sees the files and not the mappings."""
    for mapping in list(_mappings):
        if _must_write(mapping):
            try:
                mapping._sync(0, -1, False, False)
            except OSError as error:
                print(f"ummap: cannot write '{mapping.name}' before a fork: {error}. The child "
                      "does not see all changes.", file=sys.stderr)


def _enter_child() -> None:
    global _worker_finalizer
    _worker_finalizer = None
    for mapping in list(_mappings):
        mapping._enter_child()


atexit.register(_flush_all)
os.register_at_fork(before=_write_before_fork, after_in_child=_enter_child)


def _flush_at_worker_exit() -> None:
    """Register `_flush_all` with multiprocessing, whose workers end without calling atexit."""
    global _worker_finalizer
    util = sys.modules.get("multiprocessing.util")
    if util and not (_worker_finalizer and _worker_finalizer.still_active()):
        _worker_finalizer = util.Finalize(None, _flush_all, exitpriority=100)
