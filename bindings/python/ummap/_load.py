# SPDX-License-Identifier: BSD-3-Clause
"""The function ummap.load, which maps files of numpy.save."""
import io
import os
from contextlib import contextmanager
from typing import Any, Iterator, Optional

import numpy as np

from ._arguments import PAGE_BYTES, Options, Size, is_uri, parse_mode
from ._memmap import memmap
from ._open import open as open_bytes

_DEFAULT_MAX_HEADER_BYTES = 10000


@contextmanager
def _open_for_header(file: Any) -> Iterator[Any]:
    """Open a path or a URI as a file object, from which numpy reads the header."""
    if is_uri(file):
        with open_bytes(file, limit=64 * PAGE_BYTES, segment=PAGE_BYTES) as mapping:
            with io.BufferedReader(mapping.file()) as f:
                yield f
    else:
        with open(os.fspath(file), "rb") as f:
            yield f


def _private_function(name: str) -> Any:
    """Return a function of numpy that reads or writes headers of all versions."""
    if hasattr(np.lib.format, name):
        return getattr(np.lib.format, name)
    from numpy.lib import _format_impl  # its place since numpy 2.3

    return getattr(_format_impl, name)


def read_npy_header(file: Any, max_header_size: int = _DEFAULT_MAX_HEADER_BYTES) -> tuple:
    """Return the shape, the order and the dtype that the header of a file object tells.

    The position is then that of the elements. A damaged header may raise any exception, because
    numpy evaluates it.
    """
    formats = np.lib.format
    readers = {(1, 0): formats.read_array_header_1_0, (2, 0): formats.read_array_header_2_0}
    more = {} if max_header_size == _DEFAULT_MAX_HEADER_BYTES else {
        "max_header_size": max_header_size}
    version = formats.read_magic(file)
    if version in readers:
        shape, is_fortran, descr = readers[version](file, **more)
    else:
        # numpy has no public reader for version 3.
        read = _private_function("_read_array_header")
        shape, is_fortran, descr = read(file, version, **more)
    if min(shape, default=0) < 0:
        raise ValueError(f"its shape is {shape}")
    return shape, "F" if is_fortran else "C", descr


def _read_header(file: Any, max_header_size: int) -> tuple:
    """Return the shape, the order, the dtype and the offset of the data.

    Raise ValueError if the store is not an array of numpy.save.
    """
    with _open_for_header(file) as f:
        try:
            if f.read(4) == b"PK\3\4":
                raise ValueError("it is an archive of numpy.savez. Try ummap.formats.load")
            f.seek(0)
            return *read_npy_header(f, max_header_size), f.tell()
        except OSError:
            raise
        except Exception as error:
            raise ValueError(f"cannot map '{file}' as an array of numpy.save: {error}") from None


def _write_header(file: Any, shape: Any, order: str, descr: Any) -> int:
    """Create a store that has a header only, and return the size of the header in bytes."""
    fields = dict(descr=np.lib.format.dtype_to_descr(descr), fortran_order=order == "F",
                  shape=shape)
    header = io.BytesIO()
    _private_function("_write_array_header")(header, fields, None)
    with open_bytes(file, "w+", size=header.tell()) as mapping:
        mapping[:] = header.getvalue()
    return header.tell()


def load(file: Any, mmap_mode: Optional[str] = None, *, dtype: Any = None, shape: Any = None,
         order: str = "C", max_header_size: int = _DEFAULT_MAX_HEADER_BYTES, limit: Size = None,
         segment: Size = None, policy: Optional[str] = None, advice: Optional[str] = None,
         writers: bool = False, kernel: bool = False, engine: Optional[str] = None,
         on_full: Optional[str] = None, node_cache: bool = False,
         tiers: Optional[str] = None) -> memmap:
    """Map an array in the format of `numpy.save` (.npy), as `numpy.load` does with `mmap_mode`.

    Parameters
    ----------
    file : str or path
        The path of the file, or the URI of a store such as ``"wal+uring:/data/a.npy"``.
    mmap_mode : {None, 'r', 'r+', 'c', 'w+'}
        'r' or None: read only. None does not read the array into memory, as it does in
        `numpy.load`. 'r+': read and write an existing file. 'c': copy on write: changes never reach
        the file. 'w+': create the file, or replace it, with a header for `dtype` and `shape`; the
        elements are zeros.
    dtype : data-type
        The type that the elements must have. None: the type that the file has, and float64 with
        'w+'.
    shape : int or tuple
        The shape that the array must have. None: the shape that the file has. 'w+' needs a shape.
    order : {'C', 'F'}
        Row-major or column-major order, for 'w+'. Other modes take the order of the file.
    max_header_size : int
        The largest header that is read, in bytes, as for `numpy.load`.
    limit, segment, policy, advice, writers, kernel, engine, on_full, node_cache, tiers
        As for `memmap`.

    Returns
    -------
    memmap
        The array. Its attribute `offset` is the size of the header.

    Raises
    ------
    ValueError
        if the file is not an array of `numpy.save`, has another dtype or shape, ends too early, or
        has Python objects, which only `numpy.load` can read.
    OSError
        as for `memmap`.

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
    ValueError: cannot map '...a.npy': its elements are float64, not float32
    >>> a.close()
    >>> with ummap.load(path, "w+", dtype="int32", shape=(1000, 1000), limit="1M") as a:
    ...     a[7] = 5
    >>> int(np.load(path)[7, 999])
    5
    """
    mode = parse_mode("r" if mmap_mode is None else mmap_mode)
    options = Options(limit, segment, policy, advice, writers, kernel, engine, on_full,
                      node_cache, tiers)
    file = file if is_uri(file) or isinstance(file, os.PathLike) else os.fsdecode(file)
    if shape is not None:
        shape = shape if isinstance(shape, (tuple, list)) else (shape,)
        shape = tuple(n.__index__() for n in shape)
    if mode == "w+":
        descr = np.dtype(np.float64 if dtype is None else dtype)
        if shape is None:
            raise ValueError("shape must be given with mmap_mode 'w+'")
        if order not in ("C", "F"):
            raise ValueError(f"order must be 'C' or 'F' (got {order!r})")
        if min(shape, default=0) < 0:
            raise ValueError(f"shape is {shape}: negative dimensions are not allowed")
        if not descr.hasobject:
            offset = _write_header(file, shape, order, descr)
        mode = "r+"
    else:
        found, order, descr, offset = _read_header(file, max_header_size)
        if dtype is not None and np.dtype(dtype) != descr:
            raise ValueError(f"cannot map '{file}': its elements are {descr}, not "
                             f"{np.dtype(dtype)}")
        if shape is not None and shape != found:
            raise ValueError(f"cannot map '{file}': its shape is {found}, not {shape}")
        shape = found
    if descr.hasobject:
        raise ValueError(f"cannot map '{file}': its elements are Python objects. Try numpy.load "
                         "with allow_pickle=True")
    return memmap(file, descr, mode, offset, shape, order, **vars(options))


load.__module__ = "ummap"
