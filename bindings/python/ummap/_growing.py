# SPDX-License-Identifier: BSD-3-Clause
"""The file object of ummap.open with `grows`."""
import errno
import os
import urllib.parse
from contextlib import suppress
from typing import Any, Optional

from . import _ummap
from ._arguments import (PAGE_BYTES, Options, is_uri, parse_engine, parse_limit, parse_on_full,
                         parse_segment)
from ._file import MappingFile
from ._mapping import Mapping, register

_MODES = ("r", "r+", "w+", "a")
# The addresses that a writable file reserves take no memory.
_RESERVED_BYTES = 1 << 40
_MIN_RESERVED_BYTES = 1 << 20
# Programs write small pieces in many places, and a commit writes whole segments.
_SEGMENT_BYTES = 64 << 10
_ZEROS = bytes(_SEGMENT_BYTES)


def _uri_of(path: Any) -> str:
    return "posix:" + urllib.parse.quote(os.path.abspath(os.fsencode(path)), safe="/")


def _find_file(uri: str) -> Any:
    """Return the identity of the file at the path of a URI, or None."""
    path = os.fsencode(uri.partition(":")[2].partition("?")[0])
    try:
        status = os.stat(urllib.parse.unquote_to_bytes(path))
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


class GrowingFile(MappingFile):
    """A raw file object over a mapping whose store becomes as long as the file.

    The mapping reserves addresses behind the end of the file. The file ends at `_size`; behind it,
    the mapping may contain what was cut off, up to `_used`.
    """

    # Whether __init__ has made the mapping.
    _is_open = False

    def __init__(self, store: Any, mode: str, options: Options) -> None:
        if mode not in _MODES:
            raise ValueError(f"mode must be one of {list(_MODES)!r} with grows=True "
                             f"(got {mode!r})")
        self._failure: Any = None
        self._name = store if is_uri(store) else _uri_of(store)
        self._is_writer = mode != "r"
        creates = mode in ("a", "w+")
        stored = _ummap.store_size(self._name, self._is_writer, creates, -1)
        super().__init__(self._map(stored, options))
        self._file = _find_file(self._name)
        self._stored = self._used = stored
        self._size = 0 if mode == "w+" else stored
        self._position = self._size if mode == "a" else 0
        self._is_open = True

    @property
    def name(self) -> str:
        """Return the URI of the store."""
        return self._name

    def _map(self, stored: int, options: Options) -> Mapping:
        size = max(_RESERVED_BYTES, 4 * stored) if self._is_writer else max(stored, 1)
        while True:
            try:
                return self._map_size(size, options)
            except OSError as error:
                # Addresses may be scarce (RLIMIT_AS).
                if error.errno != errno.ENOMEM or size // 2 < max(stored, _MIN_RESERVED_BYTES):
                    raise
                size //= 2

    def _map_size(self, size: int, options: Options) -> Mapping:
        """Return a mapping that ends without a sync: only `flush` and `close` commit."""
        flags = _ummap.CREATE | _ummap.GROWS if self._is_writer else 0
        segment = parse_segment(options.segment, "segment") or _SEGMENT_BYTES
        mapping = Mapping(self._name, size, 0, self._is_writer, False, flags, segment,
                          options.policy, parse_limit(options.limit, "limit"),
                          parse_engine(options.engine), -1,
                          parse_on_full(options.on_full or "sigbus"), options.tiers, self._name)
        mapping._segment = max(segment, PAGE_BYTES)
        register(mapping, dict(store=self._name, mode="a", offset=0, size=size, options=options))
        return mapping

    def _end(self) -> int:
        return self._size

    def _clear_gap(self, end: int) -> None:
        """Store zeros from the end of the file to `end`, where the mapping has other bytes."""
        if end > len(self._mapping):
            raise OSError(errno.EFBIG, f"cannot make '{self._name}' {end} bytes long: "
                          f"{len(self._mapping)} bytes of addresses are reserved. Close the file "
                          "and open it again")
        end = min(end, self._used)
        for at in range(self._size, end, len(_ZEROS)):
            self._mapping._copy(at, _ZEROS[:end - at], True)

    def write(self, data: Any) -> int:
        """Store data at the position, and return the bytes stored.

        Raises OSError if storage fails. From then on, no commit is made.
        """
        self._checkClosed()
        self._check_writable()
        view = memoryview(data).cast("B")
        end = self._position + view.nbytes
        if view.nbytes:
            try:
                self._clear_gap(self._position)
                self._mapping._copy(self._position, view, True)
            except (OSError, ValueError) as error:
                self._failure = error
                raise
            self._used = max(self._used, end)
            self._size = max(self._size, end)
            self._position = end
        return view.nbytes

    def truncate(self, size: Optional[int] = None) -> int:
        """Make the file `size` bytes long, by default up to the position, and return the size."""
        self._checkClosed()
        self._check_writable()
        size = self._position if size is None else size
        self._clear_gap(size)
        self._size = size
        return size

    def flush(self) -> None:
        """Make all changes durable, with wal+ in one commit. Raises OSError if storage fails."""
        if self._is_writer and self._mapping._is_own:
            self._commit()

    def _commit(self) -> None:
        if self._failure is not None:
            raise OSError(errno.EIO, f"cannot commit changes of '{self._name}': an earlier write "
                          f"has failed: {self._failure}. Close the file and open it again")
        if self._size > self._stored:
            self._mapping._lengthen(self._size)
            self._stored = self._size
        self._mapping._sync(0, max(self._used, 1))

    def close(self) -> None:
        """Make all changes durable, end the mapping, and cut off bytes behind the end."""
        if self.closed or not self._is_open:
            return
        try:
            super().close()
        finally:
            self._mapping.close()
        if (self._is_writer and max(self._stored, self._used) > self._size
                and _find_file(self._name) == self._file):
            # Some stores cannot become shorter. The URI may name another file by now.
            with suppress(OSError):
                _ummap.store_size(self._name, True, False, self._size)
