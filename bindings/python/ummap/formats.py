# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in files of NumPy, safetensors and GGUF, at a path or at any URI, without reading them.

`load` maps the whole file, reads its header and returns arrays whose elements are loaded when they
are used. It also works for a file on a web server or in S3: only the header and the parts that the
program uses are transferred (ummap-http(7), ummap-s3(7)).
"""
import collections.abc
import io
import json
import math
import struct
import zipfile
from typing import Any, Callable, Iterator

import numpy as np

from ._arguments import parse_mode
from ._load import read_npy_header
from ._mapping import Mapping
from ._memmap import array_over, memmap
from ._open import open as open_bytes

__all__ = ["Arrays", "load"]

_MAX_HEADER_BYTES = 256 << 20
_MAX_DIMENSIONS = 32
_MAX_ARRAY_DEPTH = 4
_MAX_GGUF_ALIGNMENT = 1 << 20
_ZIP_HEADER_BYTES = 30

# numpy has no bfloat16 and no floats of 8 bits, so their elements are raw bytes.
_SAFETENSORS_TYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8",
    "BF16": "V2", "F8_E4M3": "V1", "F8_E5M2": "V1", "F8_E8M0": "V1"}
_GGUF_TYPES = {0: "<f4", 1: "<f2", 24: "i1", 25: "<i2", 26: "<i4", 27: "<i8", 28: "<f8", 30: "V2"}
# Type: elements and bytes of a block.
_GGUF_BLOCKS = {
    2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110),
    22: (256, 82), 23: (256, 136), 29: (256, 56), 34: (256, 54), 35: (256, 66), 39: (32, 17)}
_GGUF_VALUES = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q",
                11: "<q", 12: "<d"}
_GGUF_STRING, _GGUF_ARRAY = 8, 9


class Arrays(collections.abc.Mapping):
    """The arrays of a file by their names, as a read-only dictionary: the result of `load`.

    A mapped array is a `memmap` that shares one mapping, and one limit, with the others. It stays
    valid after this object has gone. An array that the file has in compressed form is a
    `numpy.ndarray`, decoded anew by each access to its name.

    Attributes
    ----------
    metadata : dict
        What the header has besides the arrays: the strings of a safetensors file, and the values
        of a GGUF file.

    Examples
    --------
    >>> import ummap.formats, tempfile, os, numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "a.npz")
    >>> np.savez(path, weights=np.ones((3, 4)), steps=np.arange(5))
    >>> with ummap.formats.load(path) as arrays:
    ...     sorted(arrays), arrays["weights"].shape, int(arrays["steps"][4])
    (['steps', 'weights'], (3, 4), 4)
    """

    def __init__(self, mapping: Mapping) -> None:
        self.metadata: dict = {}
        self._mapping: Any = mapping
        self._name = mapping.name
        self._makers: dict = {}

    def _add(self, name: str, maker: Callable[[], Any]) -> None:
        if name in self._makers:
            raise ValueError(f"the name {name!r} appears twice")
        self._makers[name] = maker

    def __getitem__(self, name: str) -> Any:
        return self._makers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __repr__(self) -> str:
        return f"<ummap.formats.Arrays of {self._name!r}, {len(self)} arrays>"

    def __enter__(self) -> "Arrays":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Make changes durable and forget the arrays. The mapping ends when no array uses it.

        >>> import ummap.formats, tempfile, os, numpy as np
        >>> path = os.path.join(tempfile.mkdtemp(), "a.npz")
        >>> np.savez(path, a=np.ones(3))
        >>> ummap.formats.load(path).close()
        """
        mapping, self._mapping, self._makers = self._mapping, None, {}
        if mapping is not None and mapping._reopen_arguments["mode"] == "r+":
            mapping.flush()


class _Reader:
    """A header in little-endian order, which may claim any lengths."""

    def __init__(self, mapping: Mapping) -> None:
        self.file = io.BufferedReader(mapping.file())
        self._end = min(len(mapping), _MAX_HEADER_BYTES)

    def check(self, size: int) -> None:
        """Raise ValueError unless the header has `size` more bytes."""
        at = self.file.tell()
        if size > self._end - at:
            raise ValueError(f"the header has {size} bytes from byte {at} on, but must end before "
                             f"byte {self._end}")

    def read(self, size: int) -> bytes:
        self.check(size)
        return self.file.read(size)

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.read(struct.calcsize(form)))[0]

    def count(self, item_bytes: int) -> int:
        """Read the number of items that follow, each of which has at least `item_bytes`."""
        count = self.number("<Q")
        self.check(count * item_bytes)
        return count

    def string(self) -> str:
        return self.read(self.count(1)).decode(errors="surrogateescape")


def _array_at(mapping: Mapping, offset: int, shape: tuple, descr: Any, order: str = "C") -> Any:
    size = math.prod(shape) * descr.itemsize
    if offset < 0 or offset + size > len(mapping):
        raise ValueError(f"an array reaches from byte {offset} to byte {offset + size}, but the "
                         f"file ends at byte {len(mapping)}")
    return array_over(memmap, mapping, descr, shape, None, offset, mapping.name, offset,
                      mapping._reopen_arguments["mode"], order)


# ---- NumPy ----

def _read_npy(mapping: Mapping, at: int = 0, size: Any = None) -> Any:
    """Return the array of a file of numpy.save, which may be a part of the mapped file."""
    file = io.BufferedReader(mapping.file())
    file.seek(at)
    shape, order, descr = read_npy_header(file)
    if descr.hasobject:
        raise ValueError("its elements are Python objects. Try numpy.load with allow_pickle=True")
    if size is not None and file.tell() - at + math.prod(shape) * descr.itemsize > size:
        raise ValueError(f"its shape {shape} of {descr} does not fit into {size} bytes")
    return _array_at(mapping, file.tell(), shape, descr, order)


def _npz_member(mapping: Mapping, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    with archive.open(info) as file:
        if info.compress_type != zipfile.ZIP_STORED:
            return np.lib.format.read_array(file, allow_pickle=False)
    header = mapping.read(info.header_offset, _ZIP_HEADER_BYTES)
    name_bytes, extra_bytes = struct.unpack("<HH", header[26:])
    at = info.header_offset + _ZIP_HEADER_BYTES + name_bytes + extra_bytes
    return _read_npy(mapping, at, info.file_size)


def _read_npz(mapping: Mapping) -> Arrays:
    if mapping._reopen_arguments["mode"] == "r+":
        raise ValueError("an archive has checksums, which stores to its arrays would make wrong. "
                         "Try mode 'c'")
    arrays = Arrays(mapping)
    archive = zipfile.ZipFile(io.BufferedReader(mapping.file()))
    for info in archive.infolist():
        if info.filename.endswith(".npy"):
            arrays._add(info.filename[:-4], lambda info=info: _with_reason(
                mapping, f"array {info.filename[:-4]!r}", _npz_member, archive, info))
    return arrays


# ---- safetensors ----

def _is_size(number: Any) -> bool:
    return type(number) is int and number >= 0


def _tensor(mapping: Mapping, start: int, entry: Any) -> Any:
    try:
        kind, shape, offsets = (entry[key] for key in ("dtype", "shape", "data_offsets"))
    except (KeyError, TypeError):
        raise ValueError("it has no dtype, shape and data_offsets") from None
    if not all(map(_is_size, shape + offsets)) or len(offsets) != 2:
        raise ValueError("shape and data_offsets must be lists of numbers")
    if kind not in _SAFETENSORS_TYPES:
        raise ValueError(f"its type {kind!r} is unknown")
    descr = np.dtype(_SAFETENSORS_TYPES[kind])
    if offsets[1] - offsets[0] != math.prod(shape) * descr.itemsize:
        raise ValueError(f"its shape {tuple(shape)} of {kind} does not have "
                         f"{offsets[1] - offsets[0]} bytes")
    return _array_at(mapping, start + offsets[0], tuple(shape), descr)


def _read_safetensors(mapping: Mapping) -> Arrays:
    reader = _Reader(mapping)
    size = reader.number("<Q")
    if size > len(mapping) - 8 or mapping.read(8, 1) != b"{":
        raise ValueError("it has none of the formats npy, npz, safetensors and GGUF")
    header = json.loads(reader.read(size))
    arrays = Arrays(mapping)
    arrays.metadata = header.pop("__metadata__", {})
    for name, entry in header.items():
        arrays._add(name, lambda name=name, entry=entry: _with_reason(
            mapping, f"tensor {name!r}", _tensor, 8 + size, entry))
    return arrays


# ---- GGUF ----

def _gguf_value(reader: _Reader, kind: int, depth: int = 0) -> Any:
    if kind == _GGUF_STRING:
        return reader.string()
    if kind == _GGUF_ARRAY and depth < _MAX_ARRAY_DEPTH:
        kind = reader.number("<I")
        form = _GGUF_VALUES.get(kind)
        if form:
            count = reader.count(struct.calcsize(form))
            return [value for value, in struct.iter_unpack(
                form, reader.read(count * struct.calcsize(form)))]
        return [_gguf_value(reader, kind, depth + 1) for _ in range(reader.count(8))]
    if kind not in _GGUF_VALUES:
        raise ValueError(f"type {kind} of a value is unknown")
    return reader.number(_GGUF_VALUES[kind])


def _gguf_tensor(mapping: Mapping, shape: tuple, kind: int, offset: int) -> Any:
    if kind in _GGUF_TYPES:
        return _array_at(mapping, offset, shape, np.dtype(_GGUF_TYPES[kind]))
    if kind not in _GGUF_BLOCKS:
        raise ValueError(f"its type {kind} is unknown")
    elements, size = _GGUF_BLOCKS[kind]
    if not shape or shape[-1] % elements:
        raise ValueError(f"its shape {shape} has no whole blocks of {elements} elements")
    shape = shape[:-1] + (shape[-1] // elements * size,)
    return _array_at(mapping, offset, shape, np.dtype("u1"))


def _read_gguf(mapping: Mapping) -> Arrays:
    reader = _Reader(mapping)
    reader.read(4)
    version = reader.number("<I")
    if version not in (2, 3):
        raise ValueError(f"version {version} of GGUF is not supported")
    count, values = reader.count(24), reader.count(12)
    arrays, tensors = Arrays(mapping), []
    for _ in range(values):
        name = reader.string()
        arrays.metadata[name] = _gguf_value(reader, reader.number("<I"))
    for _ in range(count):
        name, dimensions = reader.string(), reader.number("<I")
        if dimensions > _MAX_DIMENSIONS:
            raise ValueError(f"tensor {name!r} has {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}Q", reader.read(8 * dimensions))[::-1]
        tensors.append((name, shape, reader.number("<I"), reader.number("<Q")))
    alignment = arrays.metadata.get("general.alignment", 32)
    if not _is_size(alignment) or not 1 <= alignment <= _MAX_GGUF_ALIGNMENT:
        raise ValueError(f"general.alignment is {alignment!r}")
    start = -(-reader.file.tell() // alignment) * alignment
    for name, shape, kind, offset in tensors:
        arrays._add(name, lambda name=name, shape=shape, kind=kind, offset=offset: _with_reason(
            mapping, f"tensor {name!r}", _gguf_tensor, shape, kind, start + offset))
    return arrays


# ---- The call ----

def _with_reason(mapping: Mapping, thing: str, read: Callable, *arguments: Any) -> Any:
    """Return what `read` makes. Raise ValueError if the file is damaged."""
    try:
        return read(mapping, *arguments)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # numpy, json and zipfile raise many exceptions for damaged files.
        raise ValueError(f"cannot map {thing} of '{mapping.name}': {error}") from None


_READERS = {b"\x93NUM": _read_npy, b"PK\3\4": _read_npz, b"PK\5\6": _read_npz,
            b"GGUF": _read_gguf}


def load(file: Any, mode: str = "r", **options: Any) -> Any:
    """Map the arrays of a file in one of the formats .npy, .npz, safetensors and GGUF.

    The contents of the file determine the format, not its name. Only the header is read. Errors in
    it raise ValueError; arrays that reach beyond the end of the file do so when they are used by
    their name.

    Parameters
    ----------
    file : str or path
        A path, or a URI such as ``"https://host/model.safetensors"`` or ``"s3:bucket/a.npz"``
        (ummap-drivers(7)).
    mode : {'r', 'r+', 'c'}
        As for `ummap.memmap`. An .npz archive cannot have the mode 'r+', because it has checksums.
    options
        limit, segment, policy, advice and the other keywords of `ummap.memmap`.

    Returns
    -------
    memmap or Arrays
        For .npy the array, for the other formats a dictionary of arrays. Arrays of an .npz archive
        are mapped if `numpy.savez` wrote it; those of `numpy.savez_compressed` are decoded into
        memory. The elements of types that numpy does not have (BF16, F8_E4M3 and so on) are raw
        bytes: ``a.view("u2")``, or ``a.view(ml_dtypes.bfloat16)`` with the package ml_dtypes. A
        quantized tensor of GGUF is an array of bytes, whose last dimension has the blocks of a row.

    Raises
    ------
    ValueError
        if the file has another format or is damaged.
    OSError
        as for `ummap.memmap`.

    Examples
    --------
    >>> import ummap.formats, tempfile, os, numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "a.npy")
    >>> np.save(path, np.arange(12).reshape(3, 4))
    >>> int(ummap.formats.load(path, limit="1M")[2, 3])
    11
    """
    if parse_mode(mode) == "w+":
        raise ValueError("mode 'w+' would empty the file. Try 'r', 'r+' or 'c'")
    if options.get("advice") == "random":
        options.setdefault("segment", "64K")
    mapping = open_bytes(file, mode, **options)
    read = _READERS.get(mapping.read(0, 4), _read_safetensors)
    return _with_reason(mapping, "the arrays", read)
