# SPDX-License-Identifier: BSD-3-Clause
"""Stores, which are files or URIs, and the function ummap.open."""
import gc
import io
import os
import shutil
import tempfile
import urllib.parse
from dataclasses import replace
from errno import EBUSY, EOPNOTSUPP
from pathlib import Path
from typing import Any, Iterator, Optional

from . import _ummap
from ._arguments import (PAGE_BYTES, Options, Size, choose_segment_bytes, default_segment_bytes,
                         is_uri, parse_advice, parse_engine, parse_limit, parse_mode, parse_on_full,
                         parse_size, pin_bytes)
from ._mapping import Mapping, find_mapping, has_mapping_of, has_mappings, register, set_token


def _quote(path: str) -> str:
    return urllib.parse.quote(os.fsencode(path), safe="/")


def _is_same_file(path: Any, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except (OSError, TypeError, ValueError):
        return False


class Store:
    """An opened store: its size and its name. It makes mappings of its ranges.

    `store` is a path, a file object or a URI. `filename` is the name as numpy.memmap gives it.
    """

    def __init__(self, store: Any, mode: str) -> None:
        self.mode = mode
        self.file: Any = None
        self.fd = -1
        self.path: Optional[str] = None
        self._is_file_owner = False
        if is_uri(store):
            self.filename: Any = store
            self.uri: Optional[str] = store
            is_new = mode == "w+"
            self.size = _ummap.store_size(store, mode in ("r+", "w+"), is_new,
                                          0 if is_new else -1)
            return
        self.uri = None
        if hasattr(store, "read"):
            self.file = store
        else:
            self.file = io.open(os.fspath(store), ("r" if mode == "c" else mode) + "b")
            self._is_file_owner = True
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
        if path is not None and _is_same_file(path, self.fd):
            self.path = os.path.abspath(path)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Mappings of the store stay."""
        if self._is_file_owner:
            self.file.close()

    def extend(self, size: int) -> None:
        """Make a writable file at least `size` bytes long. The library does it for URIs."""
        if self.mode in ("w+", "r+") and self.size < size and self.file is not None:
            self.file.flush()
            os.ftruncate(self.fd, size)
            self.size = size

    def check_range(self, offset: int, size: int) -> None:
        """Raise ValueError for an empty range, and for one that a read-only store does not have."""
        if size <= 0:
            raise ValueError(f"cannot map '{self.filename}': the file has {self.size} bytes, and "
                             f"the mapping begins at byte {offset}. An empty file or an empty "
                             "range cannot be mapped")
        if self.mode in ("r", "c") and offset + size > self.size:
            raise ValueError(f"cannot map '{self.filename}' to byte {offset + size}: the end of "
                             f"the mapping is greater than file size, {self.size} bytes")

    def map(self, offset: int, size: int, options: Options, row: int = 0) -> Mapping:
        """Map `size` bytes from `offset` on, which is a multiple of the page size.

        `row` is the size of an array's row in bytes, or 0.
        """
        limit = parse_limit(options.limit, "limit")
        segment = choose_segment_bytes(options.segment, limit, options.advice, row)
        flags = _ummap.WRITERS if options.writers else 0
        flags |= _ummap.KERNEL if options.kernel else 0
        flags |= _ummap.NODE if options.node_cache else 0
        arguments = dict(segment=segment, policy=options.policy, limit=limit,
                         engine=parse_engine(options.engine),
                         on_full=parse_on_full(options.on_full), tiers=options.tiers)
        try:
            mapping = self._map_first_uri(size, offset, flags, arguments)
        except OSError as error:
            if error.errno != EBUSY:
                raise
            if not has_mappings():
                raise self._explain_busy(error) from None
            # An unreachable array in a reference cycle may hold the lock on these bytes.
            gc.collect()
            try:
                mapping = self._map_first_uri(size, offset, flags, arguments)
            except OSError as second:
                if second.errno != EBUSY:
                    raise
                raise self._explain_busy(second) from None
        mapping._segment = pin_bytes(segment or default_segment_bytes(),
                                     limit or mapping.stat()["budget_bytes"])
        register(mapping, dict(store=self.uri if self.uri is not None else self.path,
                               mode=self.mode, offset=offset, size=size,
                               options=replace(options, segment=segment or None)))
        if options.advice is not None:
            mapping._advise(parse_advice(options.advice))
        return mapping

    def _explain_busy(self, error: OSError) -> OSError:
        """Return an error with the words of this package, and the mapping that is in the way."""
        text = str(error.strerror).replace("UMMAP_WRITERS", "writers=True")
        store = self.uri if self.uri is not None else self.path
        if store is not None and has_mapping_of(store):
            text += (f". This process has a mapping of '{store}', which lasts until its last "
                     "array, view or buffer is gone")
        return OSError(error.errno, text)

    def _candidate_uris(self) -> Iterator[str]:
        """Yield the URIs to try, the preferred one first."""
        if self.uri is not None:
            yield self.uri
            return
        path = _quote(self.path if self.path is not None else f"/proc/self/fd/{self.fd}")
        driver = os.environ.get("UMMAP_DRIVER")
        if driver:
            head, mark, keys = driver.partition("?")
            yield f"{head.rstrip(':')}:{path}{mark}{keys}"
            return
        yield f"uring:{path}"
        yield f"posix:{path}"

    def _map_first_uri(self, size: int, offset: int, flags: int, arguments: dict) -> Mapping:
        uris = list(self._candidate_uris())
        for uri in uris:
            try:
                return self._map_uri(uri, size, offset, flags, arguments)
            except OSError as error:
                # The kernel may lack io_uring, or refuse it.
                if error.errno != EOPNOTSUPP or uri is uris[-1]:
                    raise
        raise AssertionError

    def _map_uri(self, uri: str, size: int, offset: int, flags: int, arguments: dict) -> Mapping:
        name = self.filename if self.filename is not None else uri
        changes_folder = None
        is_writer = self.mode in ("r+", "w+")
        if self.mode == "c":
            # Changes that do not fit into memory go to a temporary file, which has no name as soon
            # as the mapping exists.
            changes_folder = tempfile.mkdtemp(prefix="ummap-",
                                              dir=os.environ.get("TMPDIR") or "/var/tmp")
            key = f"cow.path={_quote(os.path.join(changes_folder, 'changes'))}"
            uri = f"cow+{uri}{'&' if '?' in uri else '?'}{key}"
        if changes_folder or (is_writer and self.uri is not None and offset + size > self.size):
            flags |= _ummap.CREATE
        try:
            return Mapping(uri, size, offset, self.mode != "r", is_writer, flags,
                           fd=-1 if changes_folder else self.fd, name=name, **arguments)
        finally:
            if changes_folder:
                shutil.rmtree(changes_folder)


def _map_store(store: Any, mode: str, offset: int, size: int, options: Options) -> Mapping:
    with Store(store, mode) as opened:
        return opened.map(offset, size, options)


def reopen(token: tuple, arguments: dict) -> Mapping:
    """Return the mapping that a pickle names, or open an equal one if this process has it not."""
    mapping = find_mapping(token)
    if mapping is not None:
        return mapping
    rest = dict(arguments)
    store, mode = rest.pop("store"), rest.pop("mode")
    if not is_uri(store):
        store = Path(store)
    try:
        mapping = _map_store(store, "r+" if mode == "w+" else mode, **rest)
    except OSError as error:
        # Another process has the mapping for writing. An exception here would end a worker of
        # multiprocessing without a message.
        if error.errno != EBUSY or mode == "r":
            raise
        mapping = _map_store(store, "r", **rest)
    set_token(mapping, token)
    return mapping


def open(store: Any, mode: str = "r", offset: int = 0, size: Size = None,  # noqa: A001
         *, limit: Size = None, segment: Size = None, policy: Optional[str] = None,
         advice: Optional[str] = None, writers: bool = False, kernel: bool = False,
         engine: Optional[str] = None, on_full: Optional[str] = None,
         node_cache: bool = False, tiers: Optional[str] = None, grows: bool = False) -> Any:
    """Map a file, or the store that a URI names, as bytes.

    Parameters
    ----------
    store : str, path or file object
        A path, an open file, or a URI such as ``"wal+uring:/data/a"`` (ummap-drivers(7)).
    mode : {'r', 'r+', 'w+', 'c'}
        As for `ummap.memmap`.
    offset : int
        The first byte of the store that is mapped: a multiple of the page size.
    size : int or str
        The number of bytes, ``1 << 30`` or ``"1G"``. None: all bytes to the end of the store. A
        writable mapping makes a shorter file longer.
    limit, segment, policy, advice, writers, kernel, engine, on_full, node_cache, tiers
        As for `ummap.memmap`.
    grows : bool
        True: return a file object (`io.RawIOBase`) instead, which can become longer and shorter.
        `mode` is then 'r', 'r+', 'w+', or 'a', which creates a missing file and begins at its end.
        `flush` and `close` make all changes durable, with the filter wal+ in one commit. With
        wal+, 'w+' keeps the former contents until then. `offset`, `size`, `advice`, `writers`,
        `kernel` and `node_cache` cannot be given.

    Returns
    -------
    Mapping
        The mapped bytes. The mapping ends by ``close``, at the end of a ``with`` block, or when the
        last reference to it goes.

    Raises
    ------
    ValueError
        if an argument is invalid, or a read-only store does not have the range.
    TypeError
        if a size is neither a number nor a string.
    OSError
        if the store cannot be opened or mapped with these arguments. ``errno`` is set, and the
        text is the library's error message.

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
    >>> import os
    >>> uri = "wal+posix:" + os.path.join(tempfile.mkdtemp(), "log")
    >>> with ummap.open(uri, "a", grows=True) as f:
    ...     f.write(b"one line\\n"), f.seek(0), f.read()
    (9, 0, b'one line\\n')
    """
    if grows:
        from ._growing import GrowingFile

        if offset or size is not None or advice is not None or writers or kernel or node_cache:
            raise ValueError("offset, size, advice, writers, kernel and node_cache cannot be given "
                             "with grows=True")
        return GrowingFile(store, mode, Options(limit, segment, policy, None, False, False, engine,
                                                on_full, False, tiers))
    mode = parse_mode(mode)
    options = Options(limit, segment, policy, advice, writers, kernel, engine, on_full,
                      node_cache, tiers)
    if offset < 0 or offset % PAGE_BYTES:
        raise ValueError(f"offset is {offset}: it must be a multiple of the page size, "
                         f"{PAGE_BYTES} bytes")
    number = None if size is None else parse_size(size, "size")
    with Store(store, mode) as opened:
        if number is None:
            number = opened.size - offset
        opened.check_range(offset, number)
        opened.extend(offset + number)
        return opened.map(offset, number, options)


open.__module__ = "ummap"
