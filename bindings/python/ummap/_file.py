# SPDX-License-Identifier: BSD-3-Clause
"""A file object over a mapping."""
from __future__ import annotations

import io
from typing import Any

from ._open import Mapping


class MappingFile(io.RawIOBase):
    """Reads and writes the bytes of a mapping, which stays open when this is closed. It cannot become longer.

    >>> import ummap, tempfile
    >>> f = tempfile.NamedTemporaryFile()
    >>> with ummap.open(f.name, "w+", size=4096) as m:
    ...     with m.file() as g:
    ...         g.write(b"abc"), g.seek(1), g.read(2)
    (3, 1, b'bc')
    """

    def __init__(self, mapping: Mapping) -> None:
        self._mapping = mapping
        self._at = 0

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return self._mapping.writable

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._checkClosed()
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._mapping)}.get(whence)
        if begin is None:
            raise ValueError(f"whence is {whence}: it must be 0, 1 or 2")
        at = offset + begin
        if at < 0:
            raise ValueError(f"seek to byte {at}")
        self._at = at
        return at

    def tell(self) -> int:
        self._checkClosed()
        return self._at

    def _span(self, size: int) -> int:
        return max(0, min(size, len(self._mapping) - self._at))

    def readinto(self, buffer: Any) -> int:
        self._checkClosed()
        view = memoryview(buffer).cast("B")
        size = self._span(view.nbytes)
        if size:
            self._mapping._copy(self._at, view[:size])
        self._at += size
        return size

    def write(self, data: Any) -> int:
        self._checkClosed()
        view = memoryview(data).cast("B")
        if not self._mapping.writable:
            raise io.UnsupportedOperation("the mapping is read-only: open it with mode 'r+'")
        size = self._span(view.nbytes)
        if view.nbytes and not size:
            raise OSError(28, f"the mapping ends at byte {len(self._mapping)}, and does not grow")
        if size:
            self._mapping._copy(self._at, view[:size], True)
        self._at += size
        return size

    def truncate(self, size: Any = None) -> int:
        self._checkClosed()
        size = self._at if size is None else size
        if size != len(self._mapping):
            raise io.UnsupportedOperation(f"the mapping has {len(self._mapping)} bytes, and keeps its size")
        return size

    def flush(self) -> None:
        """Make changes durable."""
        if not self.closed and self._mapping.writable and not self._mapping.closed:
            self._mapping.flush()
