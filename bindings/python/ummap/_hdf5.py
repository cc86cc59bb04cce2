# SPDX-License-Identifier: BSD-3-Clause
"""The function ummap.h5py_file, which opens HDF5 files that survive a crash."""
from typing import Any

from ._arguments import Options
from ._growing import GrowingFile

_MODES = {"r": "r", "r+": "r+", "a": "a", "w": "w+", "w-": "a", "x": "a"}


class _HDF5File(GrowingFile):
    """The file object of an HDF5 file, which commits only if HDF5 has written the whole file.

    HDF5 then calls `truncate` before `flush`. A flush of one dataset writes only a part of the
    file, and so does an exception or the end of the process before the file is closed.
    """

    _is_whole = False

    def truncate(self, size: Any = None) -> int:
        self._is_whole = True
        return super().truncate(size)

    def _commit(self) -> None:
        if self._is_whole:
            self._is_whole = False
            super()._commit()


def h5py_file(uri: Any, mode: str = "r", *, limit: Any = None, segment: Any = None,
              policy: Any = None, engine: Any = None, **options: Any) -> Any:
    """Open an HDF5 file in the store that a URI names, as `h5py.File`.

    Each `flush` and `close` of the file makes all changes durable. With the filter wal+, it is one
    commit: after a crash at any moment, the file opens with the contents of the last flush.

    Parameters
    ----------
    uri : str or path
        A URI such as ``"wal+uring:/data/run.h5"`` (ummap-drivers(7)), or a path.
    mode : {'r', 'r+', 'w', 'w-', 'x', 'a'}
        As for `h5py.File`. With wal+, 'w' keeps the former contents until the first flush.
    limit, segment, policy, engine
        As for `ummap.memmap`. The default segment has 64 KiB.
    options
        Other arguments of `h5py.File`, such as ``libver="latest"``.

    Returns
    -------
    h5py.File
        The file. Its mode for one writer and several readers (SWMR) needs the C library
        (ummap-hdf5(7)).

    Raises
    ------
    FileExistsError
        if the file exists, in the modes 'x' and 'w-'.
    OSError
        as for `ummap.open` and `h5py.File`.

    Examples
    --------
    >>> import os, tempfile, ummap
    >>> uri = "wal+posix:" + os.path.join(tempfile.mkdtemp(), "run.h5")
    >>> with ummap.h5py_file(uri, "w") as f:  # doctest: +SKIP
    ...     f["numbers"] = [1, 2, 3]
    ...     f.flush()
    """
    import h5py

    class File(h5py.File):
        """An h5py.File that closes the file object below it."""

        def close(self) -> None:
            super().close()
            raw.close()

    if mode not in _MODES:
        raise ValueError(f"mode must be one of {list(_MODES)!r} (got {mode!r})")
    raw = _HDF5File(uri, _MODES[mode], Options(limit, segment, policy, engine=engine))
    try:
        if mode in ("x", "w-") and raw.seek(0, 2) > 0:
            raise FileExistsError(f"cannot create '{uri}': it exists")
        return File(raw, mode, **options)
    except BaseException:
        raw.close()
        raise


h5py_file.__module__ = "ummap"
