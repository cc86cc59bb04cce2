# SPDX-License-Identifier: BSD-3-Clause
"""The file object that Mapping.file returns."""
import errno
import io
from typing import Any

from ._mapping import Mapping


class MappingFile(io.RawIOBase):
    """A raw file object that reads and writes the bytes of a mapping.

    The file object cannot make the mapping longer; that of ``ummap.open(..., grows=True)`` can.
    Closing it leaves the mapping open.

    >>> import ummap, tempfile
    >>> f = tempfile.NamedTemporaryFile()
    >>> with ummap.open(f.name, "w+", size=4096) as m:
    ...     with m.file() as g:
    ...         g.write(b"abc"), g.seek(1), g.read(2)
    (3, 1, b'bc')
    """

    def __init__(self, mapping: Mapping) -> None:
        self._mapping = mapping
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return whether the mapping is writable."""
        return self._mapping.writable

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position, as io.RawIOBase.seek does, and return it in bytes."""
        self._checkClosed()
        origins = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._end()}
        if whence not in origins:
            raise ValueError(f"whence is {whence}: it must be 0, 1 or 2")
        position = offset + origins[whence]
        if position < 0:
            raise ValueError(f"cannot seek to byte {position}: the position must not be negative")
        self._position = position
        return position

    def tell(self) -> int:
        """Return the position in bytes."""
        self._checkClosed()
        return self._position

    def _end(self) -> int:
        """Return the end of the file, in bytes."""
        return len(self._mapping)

    def _available(self, size: int) -> int:
        return max(0, min(size, self._end() - self._position))

    def readinto(self, buffer: Any) -> int:
        """Read into a writable buffer, and return the bytes read; 0 at the end of the mapping.

        Raises OSError if storage fails.
        """
        self._checkClosed()
        view = memoryview(buffer).cast("B")
        size = self._available(view.nbytes)
        if size:
            self._mapping._copy(self._position, view[:size])
        self._position += size
        return size

    def _check_writable(self) -> None:
        if not self._mapping.writable:
            raise io.UnsupportedOperation("cannot write: the mapping is read-only. Open it with "
                                          "mode 'r+'")

    def write(self, data: Any) -> int:
        """Store data, and return the bytes stored; fewer if the mapping ends before.

        Raises io.UnsupportedOperation if the mapping is read-only, and OSError if storage fails or
        if the position is at the end of the mapping (ENOSPC).
        """
        self._checkClosed()
        self._check_writable()
        view = memoryview(data).cast("B")
        size = self._available(view.nbytes)
        if view.nbytes and not size:
            raise OSError(errno.ENOSPC, f"cannot write at byte {self._position}: the mapping has "
                          f"{len(self._mapping)} bytes, and does not grow")
        if size:
            self._mapping._copy(self._position, view[:size], True)
        self._position += size
        return size

    def truncate(self, size: Any = None) -> int:
        """Return the size of the mapping if it is `size`. Otherwise raise UnsupportedOperation."""
        self._checkClosed()
        size = self._position if size is None else size
        if size != len(self._mapping):
            raise io.UnsupportedOperation(f"cannot truncate to {size} bytes: the mapping keeps its "
                                          f"size of {len(self._mapping)} bytes")
        return size

    def flush(self) -> None:
        """Make the changes of the mapping durable. Raises OSError if storage fails."""
        if not self.closed and self._mapping.writable and not self._mapping.closed:
            self._mapping.flush()
