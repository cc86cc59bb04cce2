# SPDX-License-Identifier: BSD-3-Clause
"""memmap: numpy.memmap on libummap."""
from __future__ import annotations

import operator
import os
import pickle
from contextlib import contextmanager
from typing import Any, Iterator, Optional

import numpy as np

from . import _ummap
from ._open import PAGE, Mapping, Size, Store, advice_of, check_length, mode_of, reopen

# Below this, copying a row costs less than asking where it is.
_SMALL_ROW = 512
# Rows of which the library is told at once, where they are small.
_SMALL_GROUP = 16384
# What is handed to the kernel at a time.
_PIECE = 8 << 20


class memmap(_ummap.Array):
    """An array in a file, of which no more is in memory than it may.

    Takes the arguments of `numpy.memmap` in their order, and is used like it: a subclass of ndarray, whose views keep the
    mapping alive, and which ends with the last of them. What is read comes in segments, and the memory for it has a limit.

    Parameters
    ----------
    filename : str, path or file object
        A path, an open file, or a URI of a store such as ``"wal+uring:/data/a"`` (ummap-drivers(7)). A str that begins with
        a scheme and a colon is a URI; a file of such a name is ``"./name:x"``. An open file is opened once more, by its path
        or through /proc, for which this process needs the right.
    dtype : data-type
        Of the elements. Default: uint8.
    mode : {'r+', 'r', 'w+', 'c'}
        'r': read only; 'r+': read and write what is there; 'w+': make the file, or empty it; 'c': changes are this array's own
        and never get to the file (they may be more than memory: the rest is in a file without a name, in $TMPDIR or /var/tmp).
        No other mapping may write to the file meanwhile (OSError, EBUSY).
    offset : int
        Where the array begins in the file, in bytes.
    shape : int or tuple
        Default: one dimension, up to the end of the file. A writable array makes a shorter file longer.
    order : {'C', 'F'}
        Row-major or column-major.
    limit : int or str
        How many bytes of this array are in memory at most, ``1 << 30`` or ``"1G"``. Default: what `ummap.limit` says for all.
    segment : int or str
        What is read and written at a time: a power of two from the page's size on. Default: for random access a row of the
        array, otherwise 2 MiB, and at most a 32nd of the limit.
    policy : str
        Which segment leaves memory first: "s3fifo" (the default: what was used once), "fifo", "lifo", "plru", "prnd", "wiro-f",
        "wiro-l" (ummap_open(3)). For passes over more than memory, "lifo" keeps what it has, instead of reading all of it again
        in each pass.
    advice : {'normal', 'random', 'sequential'}
        How it will be used. 'random': small segments, nothing read ahead. 'sequential': far ahead, and dropped behind.
    writers : bool
        Other mappings write to the same file, too, with the same flag: only bytes that were stored are written. Without it a
        second writable mapping of the same bytes is refused (OSError, EBUSY).
    kernel : bool
        System calls may be given any part of it, also by code that knows only plain arrays: see Notes. OSError where this
        process has no right to userfaultfd(2) (EPERM), and on kernels before Linux 6.8 (EOPNOTSUPP).
    engine : {'auto', 'segv', 'sigbus', 'uffd'}
        How accesses are noticed: ummap(7).

    Attributes
    ----------
    filename, offset, mode
        As for numpy.memmap; of a URI, filename is the URI.

    Raises
    ------
    ValueError
        for arguments that do not fit each other or the file, as numpy.memmap does.
    OSError
        with the library's sentence, and errno: the store cannot be opened or mapped like this.

    Notes
    -----
    *Errors.* Where storage fails to load what an expression touches, the process gets SIGBUS, as with numpy.memmap. `read`,
    `prefetch` with ``wait=True``, `pin`, a list of rows as an index, and buffers for the kernel raise OSError instead.
    Bytes behind the end of a file that became shorter are zeros.

    *The kernel.* ``a.tofile(f)``, ``numpy.save(f, a)``, ``os.write(fd, a)``, ``f.readinto(a)`` and whatever takes an array of
    this class as plain bytes work: the memory is pinned meanwhile. Arrays of more than a quarter of the limit are not pinned
    (tofile and save write them in parts): give a slice, or use ``kernel=True``. So do for ``numpy.asarray(a)`` and for
    memoryviews, of which the library does not know.

    *Processes.* A pickled array is reopened by its path, with the same limit, so it can be sent to processes of
    multiprocessing, whether they are forked or spawned. One that may be stored to is read-only (mode 'r') in a process that
    reopens it while another one has it, unless it was opened with `writers`. An array that a forked child inherits shows the
    file as it was at the fork, through the kernel and without a limit; what the child stores there is its own, and `flush`
    raises OSError. Of mode 'c' and of stores that are no files a child inherits nothing: ``a[0]`` is an OSError there (ENXIO),
    and what touches the memory otherwise is a SIGSEGV. Pickled, an array of mode 'c' is a copy.

    *Cycles.* An array in a reference cycle, such as one with a view of itself as an attribute,
    ends when Python's garbage collector finds it. Its file is locked until then: `close` the
    array, or call ``gc.collect()``. A view that is a plain ndarray
    (``a.rows = numpy.asarray(a)``) hides the cycle from the collector.

    *Signals.* The global interpreter lock is free while a call of this class loads or writes, and Ctrl-C ends the call.

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
    _keeps_class = False
    filename: Any = None
    offset: Optional[int] = None
    mode: Optional[str] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._keeps_class = True

    def __new__(cls, filename: Any, dtype: Any = np.uint8, mode: str = "r+", offset: int = 0, shape: Any = None, order: str = "C",
                *, limit: Size = None, segment: Size = None, policy: Optional[str] = None, advice: Optional[str] = None,
                writers: bool = False, kernel: bool = False, engine: Optional[str] = None) -> "memmap":
        mode = mode_of(mode)
        if mode == "w+" and shape is None:
            raise ValueError("shape must be given")
        descr = np.dtype(dtype)
        if descr.hasobject:
            raise ValueError(f"a file cannot hold Python objects, which dtype {descr} has")
        if offset < 0:
            raise ValueError(f"offset is {offset}: it must not be negative")
        if shape is not None:
            shape = tuple(operator.index(n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,)))
            if min(shape, default=0) < 0:
                raise ValueError(f"shape is {shape}: negative dimensions are not allowed")
        with Store(filename, mode) as opened:
            shape, size = _fit(opened, descr, offset, shape)
            start = offset - offset % PAGE
            opened.lengthen(offset + size)
            size = size + offset - start if size else opened.size - start
            check_length(opened, start, size)
            row = descr.itemsize * int(np.prod(shape[1:] if order == "C" else shape[:-1], dtype=np.int64))
            mapping = opened.map(start, size, limit=limit, segment=segment, policy=policy, advice=advice, writers=writers,
                                 kernel=kernel, engine=engine, row=row)
        self = np.ndarray.__new__(cls, shape, descr, memoryview(mapping), offset - start, None, order)
        self._mmap, self.filename, self.offset, self.mode = mapping, opened.filename, offset, mode
        return self

    def __array_wrap__(self, arr: Any, context: Any = None, *more: Any) -> Any:
        arr = super().__array_wrap__(arr, context, *more)
        if self is arr or type(self) is not memmap:
            return arr
        return arr[()] if arr.shape == () else arr.view(np.ndarray)

    # ---- Where it is ----

    def _mapping(self) -> Mapping:
        if self._mmap is None:
            raise ValueError("this array has no mapping: it is a copy")
        return self._mmap

    def _extent(self) -> tuple:
        """Where its bytes are in the mapping: offset and size, gaps included."""
        if self.size == 0:
            return 0, 0
        first = self.__array_interface__["data"][0] - self._mapping()._address
        ends = [(n - 1) * s for n, s in zip(self.shape, self.strides)]
        low = first + sum(e for e in ends if e < 0)
        return low, sum(abs(e) for e in ends) + self.itemsize

    def _part(self, index: Any) -> "memmap":
        """A view, by numbers and slices, of which nothing is touched."""
        if index is None:
            return self
        index = index if isinstance(index, tuple) else (index,)
        if not all(i is None or i is Ellipsis or isinstance(i, slice) or _is_number(i) for i in index):
            raise TypeError(f"a part of the array is named by numbers and slices, not by {index!r}")
        return np.ndarray.__getitem__(self, index if any(i is Ellipsis for i in index) else index + (Ellipsis,))

    def _row_numbers(self, index: Any) -> Any:
        """The rows that an index names, as int64 from 0 on; None: it names something else, or not what numpy allows."""
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
        return np.ascontiguousarray(np.where(rows < 0, rows + count, rows) if rows.min() < 0 else rows)

    def _row(self) -> tuple:
        """Where row 0 begins in the mapping, how far it is to the next, and how many bytes it has; 0: it has gaps."""
        row = np.ndarray.__getitem__(self, (0, Ellipsis))
        first, size = row._extent() if row.size else (0, 0)
        return first, self.strides[0], size if row.flags.c_contiguous else 0

    def _rows(self, index: Any) -> Any:
        """Copies of rows, which are loaded together; None where numpy does as well by itself."""
        mapping = self._mmap
        rows = self._row_numbers(index) if mapping is not None and mapping._own and self.size else None
        if rows is None or rows.size < 2:
            return None
        first, stride, size = self._row()
        if not size or self._is_in_memory(mapping):
            return None
        out = np.empty((rows.size,) + self.shape[1:], self.dtype)
        if size >= _SMALL_ROW:
            mapping._rows(first, stride, size, rows, out.reshape(-1).view(np.uint8))
        else:
            for at in range(0, rows.size, _SMALL_GROUP):
                group = rows[at : at + _SMALL_GROUP]
                mapping._rows(0, PAGE, 1, np.unique((first + group * stride) // PAGE))
                np.take(self.view(np.ndarray), group, axis=0, out=out[at : at + _SMALL_GROUP], mode="clip")
        return out if type(self) is memmap else out.view(type(self))

    @staticmethod
    def _is_in_memory(mapping: Mapping) -> bool:
        counters = mapping.stat()
        return counters["resident_bytes"] >= len(mapping)

    # ---- What it can do ----

    def flush(self) -> None:
        """Write all changes of the mapping and make them durable.

        Raises OSError if storage fails: what was not written stays in memory, and can be flushed again.

        >>> import ummap, tempfile
        >>> a = ummap.memmap(tempfile.NamedTemporaryFile(), mode="w+", shape=10)
        >>> a[:] = 7
        >>> a.flush()
        >>> a.stat()["dirty_bytes"]
        0
        """
        if self._mmap is not None:
            self._mmap._sync()

    def advise(self, advice: str, index: Any = None) -> None:
        """Say how the array will be used.

        "normal", "random" and "sequential" hold for the whole mapping, from now on. "willneed" starts to load the part that
        `index` names (numbers and slices; None: all), and "dontneed" writes its changes and lets go of its memory, but loses
        nothing. Raises ValueError for other advice, and OSError.
        """
        number = advice_of(advice)
        offset, size = self._part(index)._extent()
        self._mapping()._advise(number, offset, size)

    def prefetch(self, *what: Any, wait: bool = False) -> None:
        """Load parts of the array in the background, all at once: what will be used next.

        Parameters
        ----------
        *what
            Lists or arrays of row numbers, numbers, slices, or tuples of these; nothing: all. What comes first is loaded
            first, as far as there is memory; the rest is ignored.
        wait : bool
            Return when all was loaded. OSError is then raised where storage fails.

        >>> import ummap, tempfile
        >>> a = ummap.memmap(tempfile.NamedTemporaryFile(), "i8", "w+", shape=(100, 512), advice="random")
        >>> a.prefetch([7, 3, 90], slice(20, 30))
        >>> a.prefetch(slice(0, 50), wait=True)
        >>> a.stat()["read_errors"]
        0
        """
        mapping = self._mapping()
        for index in what or (None,):
            rows = self._row_numbers(index) if isinstance(index, (list, np.ndarray)) else None
            if rows is None:
                if isinstance(index, (list, np.ndarray)):
                    raise IndexError(f"rows are numbers from 0 to {len(self) - 1}, not {index!r}")
                offset, size = self._part(index)._extent()
                mapping.prefetch(offset, size, wait=wait)
            elif rows.size and self.size:
                row = np.ndarray.__getitem__(self, (0, Ellipsis))
                first, size = row._extent()
                mapping._rows(first, self.strides[0], size, rows)
                for number in rows if wait else ():
                    mapping._load(first + int(number) * self.strides[0], size)

    def read(self, index: Any = None) -> Any:
        """Return a copy of the part that `index` names, as ``numpy.array(a[index])`` does, but raise OSError where storage
        fails, which is a SIGBUS there.

        index: numbers and slices, or a list or a one-dimensional array of row numbers; None: all.

        >>> import ummap, tempfile
        >>> a = ummap.memmap(tempfile.NamedTemporaryFile(), "i4", "w+", shape=(10, 3))
        >>> a.read([0, 9]).shape, a.read((slice(2, 4), 1)).shape
        ((2, 3), (2,))
        """
        mapping = self._mapping()
        if isinstance(index, (list, np.ndarray)):
            rows = self._row_numbers(index)
            if rows is None:
                raise IndexError(f"rows are numbers from 0 to {len(self) - 1}, not {index!r}")
            first, stride, size = self._row() if self.size else (0, 0, 0)
            out = np.empty((rows.size,) + self.shape[1:], self.dtype)
            if size:
                mapping._rows(first, stride, size, rows, out.reshape(-1).view(np.uint8))
            else:
                for at, number in enumerate(rows):
                    out[at] = self.read(int(number))
            return out
        part = self._part(index)
        out = np.empty(part.shape, part.dtype)
        if part.size:
            part._copy_to(out)
        return out

    def _copy_to(self, out: Any) -> None:
        """What fits is copied while it is pinned, and the rest by halves."""
        mapping = self._mapping()
        offset, size = self._extent()
        if self.flags.c_contiguous:
            copy = out if out.flags.c_contiguous else np.empty(self.shape, self.dtype)
            mapping._copy(offset, copy.reshape(-1).view(np.uint8))
            if copy is not out:
                out[...] = copy
        elif size <= mapping._at_once:
            with self.pin(write=False):
                out[...] = self.view(np.ndarray)
        else:
            axis = int(np.argmax(np.abs(self.strides) * (np.array(self.shape) > 1)))
            part, there = np.ndarray.swapaxes(self, 0, axis), out.swapaxes(0, axis)
            half = len(part) // 2
            for piece in (slice(half), slice(half, None)):
                np.ndarray.__getitem__(part, piece)._copy_to(there[piece])

    @contextmanager
    def pin(self, index: Any = None, *, write: Optional[bool] = None) -> "Iterator[memmap]":
        """Keep the part that `index` names in memory for a ``with`` block, so that system calls and devices can be given it.

        Parameters
        ----------
        index
            Numbers and slices; None: all.
        write : bool
            Whether they store there. None: if the array is writable.

        The block gets the part as an array. Pins count against the limit; OSError is raised where storage fails, or (ENOMEM)
        where they would be more than the limit.

        >>> import ummap, tempfile, numpy as np
        >>> a = ummap.memmap(tempfile.NamedTemporaryFile(), "u1", "w+", shape=100000)
        >>> with a.pin(slice(0, 6)) as part, open("/proc/version", "rb", buffering=0) as f:
        ...     f.readinto(np.asarray(part))
        6
        >>> bytes(a[:5])
        b'Linux'
        """
        mapping = self._mapping()
        part = self._part(index)
        offset, size = part._extent()
        if size == 0:
            yield part
            return
        mapping._pin(offset, size, part.flags.writeable if write is None else write)
        try:
            yield part
        finally:
            mapping._unpin(offset, size)

    def stat(self) -> dict:
        """Return the counters of the mapping since it was opened, as a dictionary: ``read_bytes``, ``resident_bytes``,
        ``budget_bytes`` and so on. umstat(3) says what each of them counts."""
        return self._mapping().stat()

    def tofile(self, fid: Any, sep: str = "", format: str = "%s") -> None:
        """Write the array to a file, as ndarray.tofile does, a part at a time."""
        plain = self.view(np.ndarray)
        if self._mmap is None or sep or not self.flags.c_contiguous or not self.size:
            plain.tofile(fid, sep, format)
            return
        if not hasattr(fid, "write"):
            with open(os.fspath(fid), "wb") as file:
                self.tofile(file)
            return
        flat = np.ndarray.reshape(self, -1)
        budget = self._mmap.stat()["budget_bytes"] if self._mmap._own else _PIECE
        step = max(1, min(_PIECE, budget // 4) // self.itemsize)
        for at in range(0, flat.size, step):
            part = np.ndarray.__getitem__(flat, slice(at, at + step))
            if self._mmap._own:
                with part.pin(write=False):
                    part.view(np.ndarray).tofile(fid)
            else:
                part.view(np.ndarray).tofile(fid)

    # ---- Processes ----

    def __reduce_ex__(self, protocol: Any) -> Any:
        mapping = self._mmap
        if mapping is None or self.mode == "c" or not mapping._own:
            return np.array(self).__reduce_ex__(protocol)
        if mapping.recipe["store"] is None:
            raise pickle.PicklingError("an array of a file without a name cannot be pickled: pickle numpy.array(a), or give the path")
        if self.mode != "r":
            mapping._sync(0, -1, False, False)
        first = self.__array_interface__["data"][0] - mapping._address
        return _unpickle, (type(self), mapping.token, mapping.recipe, self.dtype, self.shape, self.strides, first,
                           (self.filename, self.offset, self.mode))

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(2)

    # An array without memory, for __setstate__.
    _closed_state = (1, (0,), np.dtype([("closed", "V1")]), False, b"")

    def _save(self) -> bool:
        """The first part of close; whether there is a mapping."""
        mapping = self._mmap
        if mapping is not None and mapping._own and mapping.recipe["mode"] in ("r+", "w+"):
            mapping._sync()
        return mapping is not None

    def _end(self, alone: bool) -> None:
        """The last part of close. Alone: nobody else stood on the memory of this array, and it has none any more."""
        try:
            if alone and self._mmap is not None:
                self._mmap.close()
        except BufferError:
            pass
        finally:
            self.__dict__.clear()
            self.__class__ = _Closed


def _is_number(index: Any) -> bool:
    """Whether it names one row: no truth value, which would be a mask, and no array of numbers, which would be a list."""
    return hasattr(index, "__index__") and not isinstance(index, (bool, np.bool_)) and getattr(index, "ndim", 0) == 0


def _fit(opened: Store, descr: Any, offset: int, shape: Any) -> tuple:
    """The shape, and its bytes, checked against the store."""
    if shape is None:
        if descr.itemsize == 0:
            raise ValueError(f"dtype {descr} has no bytes: shape must be given")
        rest = opened.size - offset
        if rest < 0:
            raise ValueError(f"the array begins at byte {offset}, which is greater than file size: {opened.filename} has "
                             f"{opened.size} bytes")
        if rest % descr.itemsize:
            raise ValueError("Size of available data is not a multiple of the data-type size.")
        return (rest // descr.itemsize,), rest
    size = descr.itemsize
    for n in shape:
        size *= n
    if opened.mode in ("r", "c") and offset + size > opened.size:
        raise ValueError(f"shape {shape} of {descr} needs {size} bytes from byte {offset} on, which is greater than file size: "
                         f"{opened.filename} has {opened.size} bytes")
    return shape, size


def _unpickle(cls: Any, token: tuple, recipe: dict, dtype: Any, shape: tuple, strides: tuple, first: int, shared: tuple) -> Any:
    mapping = reopen(token, recipe)
    array = np.ndarray.__new__(cls, shape, dtype, memoryview(mapping), first, strides)
    array._mmap = mapping
    array.filename, array.offset, array.mode = shared
    if not mapping.writable:
        array.mode = "r"
    return array


def _refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise ValueError("this array is closed")


class _Closed(memmap):
    """What a closed array becomes."""

    __getitem__ = __setitem__ = __len__ = __iter__ = __array_ufunc__ = __array_function__ = __reduce_ex__ = _refuse
    flush = advise = prefetch = read = pin = stat = tofile = tobytes = copy = view = sum = mean = reshape = _refuse

    def _save(self) -> bool:
        return False

    def _end(self, alone: bool) -> None:
        pass

    def __repr__(self) -> str:
        return "<ummap.memmap, closed>"

    __str__ = __repr__


memmap.__module__ = "ummap"


def load(file: Any, mode: str = "r", *, dtype: Any = None, limit: Size = None, segment: Size = None, policy: Optional[str] = None,
         advice: Optional[str] = None, writers: bool = False, kernel: bool = False, engine: Optional[str] = None) -> memmap:
    """Map an array that `numpy.save` has written: `numpy.load` with ``mmap_mode``, as a `memmap`.

    Parameters
    ----------
    file : str or path
        A file in the format npy.
    mode : {'r', 'r+', 'c'}
        As for `memmap`.
    dtype : data-type
        What the elements have to be; None: whatever the file says.
    limit, segment, policy, advice, writers, kernel, engine
        As for `memmap`.

    Raises
    ------
    ValueError
        if it is no such file, has another dtype, ends too early, or has Python objects, which only numpy.load can read.
    OSError
        as `memmap`.

    Examples
    --------
    >>> import ummap, tempfile, os, numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "a.npy")
    >>> np.save(path, np.arange(12.0).reshape(3, 4))
    >>> a = ummap.load(path, limit="1M")
    >>> a.shape, float(a[2, 3])
    ((3, 4), 11.0)
    >>> ummap.load(path, dtype="float32")
    Traceback (most recent call last):
    ValueError: ...a.npy has elements of float64, not float32
    """
    if mode_of(mode) == "w+":
        raise ValueError("mode is 'w+': use numpy.lib.format.open_memmap to write a new file, and load it with 'r+'")
    with open(os.fspath(file), "rb") as f:
        try:
            version = np.lib.format.read_magic(f)
            header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
            if header is None:
                header = lambda f: np.lib.format._read_array_header(f, version)  # noqa: E731 - as open_memmap of numpy
            shape, fortran, descr = header(f)
        except OSError:
            raise
        except Exception as error:  # A damaged header has been code that is wrong in any way.
            raise ValueError(f"{os.fspath(file)} is no array of numpy.save: {error}") from None
        offset = f.tell()
    if dtype is not None and np.dtype(dtype) != descr:
        raise ValueError(f"{os.fspath(file)} has elements of {descr}, not {np.dtype(dtype)}")
    if descr.hasobject:
        raise ValueError(f"{os.fspath(file)} has Python objects, which cannot be mapped: use numpy.load with allow_pickle=True")
    path = file if isinstance(file, os.PathLike) else os.path.abspath(os.fsdecode(file))
    return memmap(path, descr, mode, offset, shape, "F" if fortran else "C", limit=limit, segment=segment, policy=policy,
                  advice=advice, writers=writers, kernel=kernel, engine=engine)
