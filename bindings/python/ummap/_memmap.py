# SPDX-License-Identifier: BSD-3-Clause
"""The class ummap.memmap: numpy.memmap on libummap."""
import operator
import os
import pickle
import warnings
from contextlib import contextmanager
from typing import Any, Iterator, Optional

import numpy as np

from . import _ummap
from ._arguments import PAGE_BYTES, Options, Size, check_offset, parse_advice, parse_mode
from ._mapping import Flush, Mapping, flush
from ._open import Store, reopen

# Rows smaller than this are copied by numpy: the library's call costs more than the copy.
_MIN_LIBRARY_ROW_BYTES = 512
# The number of small rows whose pages are loaded together.
_SMALL_ROWS_PER_LOAD = 16384
# The bytes that one write of tofile hands to the kernel.
_TOFILE_WRITE_BYTES = 8 << 20
# The first bytes of a file of numpy.save.
_NPY_MAGIC = b"\x93NUMPY"
# The header of a file of numpy.save has at least this size.
_MIN_NPY_HEADER_BYTES = 64


class memmap(_ummap.Array):
    """An array in a file, which may be larger than memory: `numpy.memmap` with a memory limit.

    The arguments are those of `numpy.memmap`, in the same order, and then keywords. The array is
    used as numpy's is: the class is a subclass of ndarray, views keep the mapping alive, and the
    mapping ends with the last view. Segments of the file are read into memory when they are used
    first, and leave memory when the limit is reached.

    Parameters
    ----------
    filename : str, path or file object
        A path, an open file, or the URI of a store such as ``"wal+uring:/data/a"``
        (ummap-drivers(7)). A str that begins with a scheme and a colon is a URI. Write
        ``"./name:x"`` for a file with such a name. An open file is opened again, by its path or
        through /proc, so this process needs the permission to open it.
    dtype : data-type
        The type of the elements. Default: uint8.
    mode : {'r+', 'r', 'w+', 'c'}
        'r': read only. 'r+': read and write an existing file. 'w+': create the file, or empty it.
        'c': copy on write: changes belong to this array and never reach the file. Changes that do
        not fit into memory go to a temporary file in $TMPDIR or /var/tmp. No other mapping may
        write to the file while a mapping with mode 'c' exists (OSError, EBUSY).
    offset : int
        The byte of the file at which the array begins.
    shape : int or tuple
        The shape of the array. Default: one dimension, to the end of the file. A writable array
        makes a shorter file longer.
    order : {'C', 'F'}
        Row-major or column-major order.
    limit : int or str
        The memory that this array may use: bytes (``1 << 30``), a size with a unit (``"64M"``,
        ``"64MiB"``, ``"0.5G"``) or a percentage of the memory of the machine, or of the cgroup if
        that is less (``"50%"``). Default: the limit of the process, see `ummap.limit`.
    segment : int or str
        The unit in which the file is read and written, in bytes: a power of two, and at least the
        page size. "auto": the library finds how much it reads at a time, see ummap-concepts(7).
        Default: the value of UMMAP_SEG_SIZE; if that is not set, "auto". A default in bytes is
        reduced to 1/32 of `limit`, and with advice='random' to a row.
    policy : str
        The eviction policy, which chooses the segment that leaves memory: "s3fifo" (the default),
        "fifo", "lifo", "plru", "prnd", "wiro-f" or "wiro-l" (ummap_open(3)). "s3fifo" first
        evicts segments that were used only once. "lifo" with advice='random' suits repeated passes
        over more data than fits into the limit: one part of the data stays in memory, and each
        pass reads only the rest again. Without that advice, readahead undoes most of the effect.
    advice : {'normal', 'random', 'sequential'}
        The expected use. 'normal': readahead when accesses are in order. 'random': small segments
        without readahead. 'sequential': more readahead, and segments leave memory soon after their
        use.
    writers : bool
        Allow other mappings with the same flag to write to the same file: each writes only the
        bytes that were stored to. Without the flag, a second writable mapping of the same bytes is
        refused (OSError, EBUSY).
    kernel : bool
        Allow system calls to use any part of the array, also through plain ndarrays: see Notes.
        OSError if this process has no right to userfaultfd(2) (EPERM), or if the kernel is older
        than Linux 6.8 (EOPNOTSUPP).
    engine : {'auto', 'segv', 'sigbus', 'uffd'}
        The way in which the library learns of accesses: ummap-engines(7).
    on_full : {'wait', 'sigbus'}
        The effect of a store when writes to the file fail, for example on a full disk, and the
        memory for changes is used up. 'wait': the thread waits until successful writes have
        made room. Python handles Ctrl-C only when that store is complete, because the thread waits
        inside of NumPy.
        Free space, or end the process by another signal. 'sigbus': the process gets SIGBUS.
        Default: UMMAP_ON_FULL, or else 'wait'.
    node_cache : bool
        Share the memory of the array with all processes of this user that map the same bytes of
        the same file with this argument: together they read the file once, and `limit` of the first
        of them counts for all. For mode 'r' and files without filters (ummap-node(7)). System
        calls that take the array as plain bytes raise OSError (EOPNOTSUPP): give them a copy.
    tiers : str
        The tiers of UMMAP_TIERS that the array may be in, "hbm,dram" (ummap-tiers(7)). Default:
        all.

    Attributes
    ----------
    filename : str, path or None
        The absolute path of the file, or the URI. None for a file without a name.
    offset : int
        The argument `offset`.
    mode : str
        The argument `mode`.

    Raises
    ------
    ValueError
        if an argument is invalid, or if the array does not fit into a read-only file.
    TypeError
        if a size is neither a number nor a string, or the shape has numbers that are not whole.
    OSError
        if the store cannot be opened or mapped with these arguments. ``errno`` is set, and the
        text is the library's error message.

    Warns
    -----
    UserWarning
        if the file was written by `numpy.save`, and the array would begin with its header, or if
        mode 'w+' makes a file without a header whose name ends with .npy. Use `ummap.load` for
        such files.

    Notes
    -----
    *Errors of storage.* If storage fails while an expression reads the array, the process gets
    SIGBUS, as with numpy.memmap. These raise OSError instead: `read`, `prefetch` with
    ``wait=True``, `pin`, an index that is a list of rows, and buffers for system calls. Bytes
    behind the end of a file that became shorter are zeros.

    *System calls.* ``a.tofile(f)``, ``numpy.save(f, a)``, ``os.write(fd, a)``, ``f.readinto(a)``
    and other calls that take an array of this class as plain bytes work: its memory is pinned
    during the call. An array that is larger than a quarter of the limit is not pinned (tofile and
    numpy.save write it in parts): give the call a slice, or use ``kernel=True``. Use
    ``kernel=True`` or `pin` as well for ``numpy.asarray(a)`` and for memoryviews, because the
    library cannot pin their memory.

    *Processes.* A pickled array is opened again by its path, with the same limit, so an array can
    be sent to forked and spawned processes of multiprocessing. A writable array is read-only
    (mode 'r') in the other process while the first process has it, unless it has `writers`. An
    array that a forked child inherits is a private mapping of the file by the kernel, without a
    limit. It shows all changes before the fork, and in pages that the child has not accessed yet
    also what the parent writes later. The child keeps its own stores to itself, and `flush` raises
    OSError there. A child inherits no array of mode 'c' and no array whose store is not a file:
    ``a[0]`` raises OSError (ENXIO) in the child, and other accesses to the memory are SIGSEGV. A
    pickle of an array of mode 'c' is a copy.

    *Reference cycles.* An array in a reference cycle, for example an array that has a view of
    itself as an attribute, ends when Python's garbage collector finds the cycle. Its file is
    locked until then: `close` the array, or call ``gc.collect()``. A view that is a plain ndarray
    (``a.rows = numpy.asarray(a)``) hides the cycle from the collector.

    *Threads and signals.* The calls of this class release the global interpreter lock while they
    read or write. Ctrl-C interrupts them.

    Examples
    --------
    >>> import ummap, tempfile, numpy as np
    >>> f = tempfile.NamedTemporaryFile()
    >>> a = ummap.memmap(f.name, "float32", "w+", shape=(1000, 256), limit="64K")
    >>> a[:] = np.arange(1000)[:, None]
    >>> a.flush()
    >>> a[[3, 999, 500], 0]
    array([  3., 999., 500.], dtype=float32)
    >>> a.stat()["resident_bytes"] <= 65536
    True
    >>> a.close()
    >>> a[0]
    Traceback (most recent call last):
    ValueError: this array is closed
    """

    __array_priority__ = -100.0
    _mmap: Optional[Mapping] = None
    _keeps_subclass = False
    filename: Any = None
    offset: Optional[int] = None
    mode: Optional[str] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._keeps_subclass = True

    def __new__(cls, filename: Any, dtype: Any = np.uint8, mode: str = "r+", offset: int = 0,
                shape: Any = None, order: str = "C", *, limit: Size = None, segment: Size = None,
                policy: Optional[str] = None, advice: Optional[str] = None, writers: bool = False,
                kernel: bool = False, engine: Optional[str] = None,
                on_full: Optional[str] = None, node_cache: bool = False,
                tiers: Optional[str] = None) -> "memmap":
        mode = parse_mode(mode)
        options = Options(limit, segment, policy, advice, writers, kernel, engine, on_full,
                          node_cache, tiers)
        if mode == "w+" and shape is None:
            raise ValueError("shape must be given with mode 'w+'")
        descr = np.dtype(dtype)
        if descr.hasobject:
            raise ValueError(f"dtype is {descr}: a file cannot hold Python objects")
        check_offset(offset)
        if shape is not None:
            dimensions = shape if isinstance(shape, (tuple, list)) else (shape,)
            shape = tuple(operator.index(n) for n in dimensions)
            if min(shape, default=0) < 0:
                raise ValueError(f"shape is {shape}: negative dimensions are not allowed")
        with Store(filename, mode) as opened:
            _warn_of_npy_header(opened, offset)
            shape, size = _resolve_shape(opened, descr, offset, shape)
            start = offset - offset % PAGE_BYTES
            opened.extend(offset + size)
            size = size + offset - start if size else opened.size - start
            opened.check_range(start, size)
            others = shape[1:] if order == "C" else shape[:-1]
            row = descr.itemsize * int(np.prod(others, dtype=np.int64))
            mapping = opened.map(start, size, options, row)
        return array_over(cls, mapping, descr, shape, None, offset - start, opened.filename,
                          offset, mode, order)

    def __array_wrap__(self, arr: Any, context: Any = None, *more: Any) -> Any:
        arr = super().__array_wrap__(arr, context, *more)
        if self is arr or type(self) is not memmap:
            return arr
        return arr[()] if arr.shape == () else arr.view(np.ndarray)

    # ---- Positions in the mapping ----

    def _mapping(self) -> Mapping:
        if self._mmap is None:
            raise ValueError("this array has no mapping: it is a copy in memory")
        return self._mmap

    def _byte_range(self) -> tuple:
        """Return the offset and the size of the array's bytes in the mapping, including gaps."""
        if self.size == 0:
            return 0, 0
        first = self.__array_interface__["data"][0] - self._mapping()._address
        ends = [(n - 1) * s for n, s in zip(self.shape, self.strides)]
        low = first + sum(e for e in ends if e < 0)
        return low, sum(abs(e) for e in ends) + self.itemsize

    def _view_of(self, index: Any) -> "memmap":
        """Return the view that numbers and slices select, without touching its memory."""
        if index is None:
            return self
        index = index if isinstance(index, tuple) else (index,)
        if not all(i is None or i is Ellipsis or isinstance(i, slice) or _is_number(i)
                   for i in index):
            raise TypeError(f"a part of the array is given by numbers and slices, not by {index!r}")
        if not any(i is Ellipsis for i in index):
            index += (Ellipsis,)
        return np.ndarray.__getitem__(self, index)

    def _row_numbers(self, index: Any) -> Any:
        """Return the rows that an index selects, as int64 numbers from 0 on.

        Returns None if the index selects something else, or if numpy refuses it.
        """
        rows = np.asarray(index)
        if rows.ndim != 1 or self.ndim == 0:
            return None
        if rows.dtype == bool:
            return np.flatnonzero(rows) if rows.size == self.shape[0] else None
        if rows.size == 0 and isinstance(index, list):
            rows = rows.astype(np.int64)
        if rows.dtype.kind not in "iu":
            return None
        count = self.shape[0]
        if rows.size == 0:
            return rows.astype(np.int64)
        rows = rows.astype(np.int64, copy=False)
        if rows.min() < -count or rows.max() >= count:
            return None
        if rows.min() < 0:
            rows = np.where(rows < 0, rows + count, rows)
        return np.ascontiguousarray(rows)

    def _checked_row_numbers(self, index: Any) -> Any:
        rows = self._row_numbers(index)
        if rows is None:
            raise IndexError(f"rows are numbers from 0 to {len(self) - 1}, not {index!r}")
        return rows

    def _row_layout(self) -> tuple:
        """Return the offset of row 0 in the mapping, the stride of rows, and a row's size.

        The size is 0 if a row has gaps.
        """
        row = np.ndarray.__getitem__(self, (0, Ellipsis))
        first, size = row._byte_range() if row.size else (0, 0)
        return first, self.strides[0], size if row.flags.c_contiguous else 0

    def _load_rows(self, index: Any) -> Any:
        """Return copies of rows, which are loaded together, or None if numpy's index is as fast."""
        mapping = self._mmap
        can_load = mapping is not None and mapping._is_own and self.size
        rows = self._row_numbers(index) if can_load else None
        if rows is None or rows.size < 2:
            return None
        first, stride, size = self._row_layout()
        if not size or self._is_in_memory(mapping):
            return None
        out = np.empty((rows.size,) + self.shape[1:], self.dtype)
        if size >= _MIN_LIBRARY_ROW_BYTES:
            mapping._read_rows(first, stride, size, rows, out.reshape(-1).view(np.uint8))
        else:
            for at in range(0, rows.size, _SMALL_ROWS_PER_LOAD):
                group = rows[at : at + _SMALL_ROWS_PER_LOAD]
                pages = np.unique((first + group * stride) // PAGE_BYTES)
                mapping._read_rows(0, PAGE_BYTES, 1, pages)
                np.take(self.view(np.ndarray), group, axis=0, mode="clip",
                        out=out[at : at + _SMALL_ROWS_PER_LOAD])
        return out if type(self) is memmap else out.view(type(self))

    @staticmethod
    def _is_in_memory(mapping: Mapping) -> bool:
        counters = mapping.stat()
        return counters["resident_bytes"] >= len(mapping)

    # ---- Calls for the program ----

    def flush(self, wait: bool = True) -> Optional[Flush]:
        """Write all changes of the mapping to the store and make them durable.

        Raises OSError if storage fails. Changes that were not written stay in memory, and another
        call of `flush` tries again.

        With ``wait=False``, the contents of this moment become durable in the background, while
        the program goes on to store: `Mapping.flush` describes the result.

        >>> import ummap, tempfile
        >>> a = ummap.memmap(tempfile.NamedTemporaryFile(), mode="w+", shape=10)
        >>> a[:] = 7
        >>> a.flush()
        >>> a.stat()["dirty_bytes"]
        0
        """
        return None if self._mmap is None else flush(self._mmap, wait)

    def advise(self, advice: str, index: Any = None) -> None:
        """Tell the library how the program will use the array.

        Parameters
        ----------
        advice : {'normal', 'random', 'sequential', 'willneed', 'dontneed'}
            'normal', 'random' and 'sequential' set the readahead of the whole mapping from now on.
            'willneed' starts to load a part in the background. 'dontneed' writes the changes of a
            part and frees its memory; no data is lost.
        index
            The part: numbers and slices. None: the whole array.

        Raises
        ------
        ValueError
            if the advice is unknown.
        TypeError
            if `index` is something else.
        OSError
            if storage fails.

        Examples
        --------
        >>> import ummap, tempfile
        >>> a = ummap.memmap(tempfile.NamedTemporaryFile(), "i8", "w+", shape=(100, 512))
        >>> a.advise("sequential")
        >>> a.advise("dontneed", slice(0, 50))
        """
        number = parse_advice(advice)
        offset, size = self._view_of(index)._byte_range()
        self._mapping()._advise(number, offset, size)

    def prefetch(self, *what: Any, wait: bool = False) -> None:
        """Load the parts of the array that the program uses next, in the background.

        Parameters
        ----------
        *what
            Lists or arrays of row numbers, numbers, slices, or tuples of these. Without arguments,
            the whole array. The first parts are loaded first, as far as the limit has room, and
            the rest is ignored.
        wait : bool
            Return after all parts were loaded.

        Raises
        ------
        IndexError
            if a row is not in the array.
        TypeError
            if an argument is something else.
        OSError
            with `wait`, if storage fails.

        Examples
        --------
        >>> import ummap, tempfile
        >>> f = tempfile.NamedTemporaryFile()
        >>> a = ummap.memmap(f, "i8", "w+", shape=(100, 512), advice="random")
        >>> a.prefetch([7, 3, 90], slice(20, 30))
        >>> a.prefetch(slice(0, 50), wait=True)
        >>> a.stat()["read_errors"]
        0
        """
        mapping = self._mapping()
        for index in what or (None,):
            if not isinstance(index, (list, np.ndarray)):
                offset, size = self._view_of(index)._byte_range()
                mapping.prefetch(offset, size, wait=wait)
                continue
            rows = self._checked_row_numbers(index)
            if rows.size and self.size:
                first, size = np.ndarray.__getitem__(self, (0, Ellipsis))._byte_range()
                mapping._read_rows(first, self.strides[0], size, rows)
                for number in rows if wait else ():
                    mapping._load(first + int(number) * self.strides[0], size)

    def read(self, index: Any = None) -> Any:
        """Return a copy of a part of the array, and raise OSError if storage fails.

        The result is that of ``numpy.array(a[index])``, in which a failure of storage is SIGBUS.

        Parameters
        ----------
        index
            Numbers and slices, or a list or a one-dimensional array of row numbers. None: the
            whole array.

        Returns
        -------
        numpy.ndarray
            The copy.

        Raises
        ------
        IndexError
            if a row is not in the array.
        TypeError
            if `index` is something else.
        OSError
            if storage fails.

        Examples
        --------
        >>> import ummap, tempfile
        >>> a = ummap.memmap(tempfile.NamedTemporaryFile(), "i4", "w+", shape=(10, 3))
        >>> a.read([0, 9]).shape, a.read((slice(2, 4), 1)).shape
        ((2, 3), (2,))
        """
        mapping = self._mapping()
        if isinstance(index, (list, np.ndarray)):
            rows = self._checked_row_numbers(index)
            first, stride, size = self._row_layout() if self.size else (0, 0, 0)
            out = np.empty((rows.size,) + self.shape[1:], self.dtype)
            if size:
                mapping._read_rows(first, stride, size, rows, out.reshape(-1).view(np.uint8))
            else:
                for at, number in enumerate(rows):
                    out[at] = self.read(int(number))
            return out
        part = self._view_of(index)
        out = np.empty(part.shape, part.dtype)
        if part.size:
            part._copy_to(out)
        return out

    def _copy_to(self, out: Any) -> None:
        """Copy the array while it is pinned, in halves if it is too large to be pinned."""
        mapping = self._mapping()
        offset, size = self._byte_range()
        if self.flags.c_contiguous:
            copy = out if out.flags.c_contiguous else np.empty(self.shape, self.dtype)
            mapping._copy(offset, copy.reshape(-1).view(np.uint8))
            if copy is not out:
                out[...] = copy
        elif size <= mapping._max_copy_bytes:
            with self.pin(write=False):
                out[...] = self.view(np.ndarray)
        else:
            axis = int(np.argmax(np.abs(self.strides) * (np.array(self.shape) > 1)))
            part, target = np.ndarray.swapaxes(self, 0, axis), out.swapaxes(0, axis)
            half = len(part) // 2
            for piece in (slice(half), slice(half, None)):
                np.ndarray.__getitem__(part, piece)._copy_to(target[piece])

    @contextmanager
    def pin(self, index: Any = None, *, write: Optional[bool] = None) -> Iterator["memmap"]:
        """Keep a part of the array in memory for a ``with`` block, which gets the part.

        System calls and devices may use a pinned part with every engine, also through
        ``numpy.asarray(part)``. Pinned bytes count against the limit.

        Parameters
        ----------
        index
            The part: numbers and slices. None: the whole array.
        write : bool
            Whether the block stores to the part. None: whether the array is writable.

        Raises
        ------
        TypeError
            if `index` is something else.
        OSError
            if storage fails, or if the part does not fit into the limit (ENOMEM).

        Examples
        --------
        >>> import ummap, tempfile, numpy as np
        >>> a = ummap.memmap(tempfile.NamedTemporaryFile(), "u1", "w+", shape=100000)
        >>> with a.pin(slice(0, 6)) as part, open("/proc/version", "rb", buffering=0) as f:
        ...     f.readinto(np.asarray(part))
        6
        >>> bytes(a[:5])
        b'Linux'
        """
        mapping = self._mapping()
        part = self._view_of(index)
        offset, size = part._byte_range()
        if size == 0:
            yield part
            return
        mapping._pin(offset, size, part.flags.writeable if write is None else write)
        try:
            yield part
        finally:
            mapping._unpin(offset, size)

    def stat(self) -> dict:
        """Return the counters of the mapping since it was opened, as a dictionary.

        The keys are the names of umstat(3): ``read_bytes``, ``resident_bytes``, ``budget_bytes``
        and so on. Values are bytes or numbers of events.

        >>> import ummap
        >>> a = ummap.memmap("mem:1M", "f4", shape=100, limit="1M")
        >>> a.stat()["budget_bytes"]
        1048576
        """
        return self._mapping().stat()

    def tofile(self, fid: Any, sep: str = "", format: str = "%s") -> None:
        """Write the array to a file, as ndarray.tofile does, in parts that fit into the limit.

        Parameters
        ----------
        fid : file object, str or path
            The file.
        sep, format : str
            As for ndarray.tofile: a separator between elements makes a text file.

        Raises
        ------
        OSError
            if the array cannot be read, or the file cannot be written.

        Examples
        --------
        >>> import ummap, tempfile
        >>> a = ummap.memmap("mem:1M", "f4", shape=100)
        >>> f = tempfile.TemporaryFile()
        >>> a.tofile(f)
        >>> f.tell()
        400
        """
        plain = self.view(np.ndarray)
        if self._mmap is None or sep or not self.flags.c_contiguous or not self.size:
            plain.tofile(fid, sep, format)
            return
        if not hasattr(fid, "write"):
            with open(os.fspath(fid), "wb") as file:
                self.tofile(file)
            return
        flat = np.ndarray.reshape(self, -1)
        is_own = self._mmap._is_own
        budget = self._mmap.stat()["budget_bytes"] if is_own else _TOFILE_WRITE_BYTES
        step = max(1, min(_TOFILE_WRITE_BYTES, budget // 4) // self.itemsize)
        for at in range(0, flat.size, step):
            part = np.ndarray.__getitem__(flat, slice(at, at + step))
            if is_own:
                with part.pin(write=False):
                    part.view(np.ndarray).tofile(fid)
            else:
                part.view(np.ndarray).tofile(fid)

    # ---- Pickles and the end of an array ----

    def __reduce_ex__(self, protocol: Any) -> Any:
        mapping = self._mmap
        if mapping is None or self.mode == "c" or not mapping._is_own:
            return np.array(self).__reduce_ex__(protocol)
        if mapping._reopen_arguments["store"] is None:
            raise pickle.PicklingError("cannot pickle an array of a file without a name. Pickle a "
                                       "copy, numpy.array(a), or open the file by its path")
        if self.mode != "r":
            mapping._sync(0, -1, False, False)
        first = self.__array_interface__["data"][0] - mapping._address
        return _unpickle, (type(self), mapping._token, mapping._reopen_arguments, self.dtype,
                           self.shape, self.strides, first,
                           (self.filename, self.offset, self.mode))

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(2)

    # The state of an array without memory, for __setstate__.
    _closed_state = (1, (0,), np.dtype([("closed", "V1")]), False, b"")

    def _flush_before_close(self) -> bool:
        """Make changes durable, as the first step of close. Return whether there is a mapping."""
        mapping = self._mmap
        if mapping is not None and mapping._is_own:
            if mapping._reopen_arguments["mode"] in ("r+", "w+"):
                mapping._sync()
        return mapping is not None

    def _finish_close(self, is_unshared: bool) -> None:
        """Turn the array into a closed one, as the last step of close.

        `is_unshared` tells that no other object used the memory of this array, which is gone.
        """
        try:
            if is_unshared and self._mmap is not None:
                self._mmap.close()
        except BufferError:
            pass
        finally:
            self.__dict__.clear()
            self.__class__ = _Closed


def _is_number(index: Any) -> bool:
    """Return whether an index is one number, and neither a truth value nor an array."""
    is_integer = hasattr(index, "__index__") and not isinstance(index, (bool, np.bool_))
    return is_integer and getattr(index, "ndim", 0) == 0


def _has_npy_magic(opened: Store) -> bool:
    """Return whether a store is a file of numpy.save, as far as that is known without mapping it.

    The name decides for a URI.
    """
    if opened.uri is not None:
        return opened.uri.partition("?")[0].endswith(".npy")
    try:
        return os.pread(opened.fd, len(_NPY_MAGIC), 0) == _NPY_MAGIC
    except OSError:
        return False


def _warn_of_npy_header(opened: Store, offset: int) -> None:
    """Warn if the header of a file of numpy.save would become the first elements of the array."""
    name = opened.filename
    if opened.mode == "w+" and str(name).partition("?")[0].endswith(".npy"):
        warnings.warn(f"'{name}' gets raw data without a header, and numpy.load cannot read it. "
                      f"Try ummap.load('{name}', 'w+', dtype=..., shape=...)", stacklevel=3)
    elif opened.mode != "w+" and offset < _MIN_NPY_HEADER_BYTES and _has_npy_magic(opened):
        warnings.warn(f"'{name}' is a file of numpy.save: the array would begin with its header. "
                      f"Try ummap.load('{name}')", stacklevel=3)


def _resolve_shape(opened: Store, descr: Any, offset: int, shape: Any) -> tuple:
    """Return the shape and its bytes. Raise ValueError if the store does not fit to them."""
    if shape is None:
        if descr.itemsize == 0:
            raise ValueError(f"dtype {descr} has no bytes: shape must be given")
        rest = opened.size - offset
        if rest < 0:
            raise ValueError(f"offset is {offset}, which is greater than file size: "
                             f"'{opened.filename}' has {opened.size} bytes")
        if rest % descr.itemsize:
            raise ValueError("Size of available data is not a multiple of the data-type size.")
        return (rest // descr.itemsize,), rest
    size = descr.itemsize
    for n in shape:
        size *= n
    if opened.mode in ("r", "c") and offset + size > opened.size:
        raise ValueError(f"shape {shape} of {descr} needs {size} bytes from byte {offset} on, "
                         f"which is greater than file size: '{opened.filename}' has "
                         f"{opened.size} bytes")
    return shape, size


def _unpickle(cls: Any, token: tuple, arguments: dict, dtype: Any, shape: tuple, strides: tuple,
              first: int, attributes: tuple) -> Any:
    return array_over(cls, reopen(token, arguments), dtype, shape, strides, first, *attributes)


def array_over(cls: Any, mapping: Mapping, dtype: Any, shape: tuple, strides: Any, first: int,
               filename: Any, offset: int, mode: str, order: str = "C") -> Any:
    """Return an array whose elements begin at byte `first` of a mapping."""
    array = np.ndarray.__new__(cls, shape, dtype, memoryview(mapping), first, strides, order)
    array._mmap = mapping
    array.filename, array.offset = filename, offset
    array.mode = mode if mapping.writable else "r"
    return array


def _raise_closed(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise ValueError("this array is closed")


class _Closed(memmap):
    """The class of a closed array, whose methods raise ValueError."""

    __getitem__ = __setitem__ = __len__ = __iter__ = _raise_closed
    __array_ufunc__ = __array_function__ = __reduce_ex__ = _raise_closed
    flush = advise = prefetch = read = pin = stat = tofile = tobytes = _raise_closed
    copy = view = sum = mean = reshape = _raise_closed

    def _flush_before_close(self) -> bool:
        return False

    def _finish_close(self, is_unshared: bool) -> None:
        pass

    def __repr__(self) -> str:
        return "<ummap.memmap, closed>"

    __str__ = __repr__


memmap.__module__ = "ummap"
