# SPDX-License-Identifier: BSD-3-Clause
# arrays.py LIBRARY FOLDER [SEED] - puts arrays of random shapes, types and chunks. Compares parts
# of them with slices of numpy, and all of them with h5py, h5dump and the files of their chunks,
# also after the container has moved.
import ctypes as c
import math
import os
import random
import subprocess
import sys

import h5py
import numpy as np

library = c.CDLL(sys.argv[1])
library.umobject_errormsg.restype = c.c_char_p
seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
chance = random.Random(seed)
types = ['i1', 'u1', 'i2', 'u2', 'i4', 'u4', 'i8', 'u8', 'f4', 'f8', 'f16']


class Attr(c.Structure):
    _fields_ = [('struct_size', c.c_size_t), ('flags', c.c_uint), ('keep', c.c_uint),
                ('devices', c.POINTER(c.c_char_p)), ('ndevices', c.c_uint)]


class Shape(c.Structure):
    _fields_ = [('type', c.c_int), ('rank', c.c_uint), ('dims', c.c_uint64 * 32),
                ('chunk', c.c_uint64 * 32)]


def good(result):
    assert result == 0, library.umobject_errormsg().decode(errors='replace')


def create(path, devices):
    names = (c.c_char_p * len(devices))(*[d.encode() for d in devices])
    container = c.c_void_p()
    attr = Attr(c.sizeof(Attr), 1, 2, names, len(devices))
    good(library.umobject_open(path.encode(), c.byref(attr), c.byref(container)))
    return container


def put(container, name, array, chunk):
    shape = Shape(types.index(array.dtype.str[1:]) + 1, array.ndim)
    shape.dims[:array.ndim] = array.shape
    shape.chunk[:array.ndim] = chunk
    data = array.ctypes.data_as(c.c_void_p)
    good(library.umobject_put_array(container, name, c.byref(shape), data))


def get(container, name, start, count, dtype):
    array = np.empty(count, dtype)
    many = c.c_uint64 * max(1, len(start))
    data = array.ctypes.data_as(c.c_void_p)
    good(library.umobject_get(container, name, many(*start), many(*count), data))
    return array


def any_array():
    rank = chance.choice([0, 1, 1, 2, 2, 3, 4, 5, 7, 32])
    most = {1: 5000, 2: 90, 3: 30}.get(rank, 5)
    dims = [1 if rank > 7 and d > 3 else chance.randint(1, most) for d in range(rank)]
    bits = np.frombuffer(chance.randbytes(8 * math.prod(dims)), 'u8') % 251
    return bits.astype(chance.choice(types)).reshape(dims)


def any_chunk(dims):
    chunk = [chance.choice([0, 1, d, d + 5, max(1, d // 2), max(1, d // 3)]) for d in dims]
    while math.prod(-(-d // (k or d)) for d, k in zip(dims, chunk)) > 200:
        chunk = [2 * k for k in chunk]
    return chunk


def cut(container, name, array, chunk):
    for _ in range(10):
        start = [chance.randint(0, d) for d in array.shape]
        count = [chance.randint(0, d - s) for d, s in zip(array.shape, start)]
        part = tuple(slice(s, s + n) for s, n in zip(start, count))
        got = get(container, name, start, count, array.dtype)
        case = (name, array.dtype, array.shape, chunk, start, count)
        assert np.array_equal(got, array[part]), case


def show(path, array):
    with h5py.File(path, 'r') as file:
        data = file['data'][()]
        case = (path, data.dtype, array.dtype)
        assert data.dtype == array.dtype and np.array_equal(data, array), case
        chunks = [s.file_name for s in file['data'].virtual_sources()]
    dump = subprocess.run(['h5dump', '-H', path], capture_output=True, text=True, check=True).stdout
    assert 'VIRTUAL' in dump or 'data' in dump
    total = 0
    for name in chunks:
        with h5py.File(os.path.join(os.path.dirname(path), name.replace('%%', '%')), 'r') as file:
            total += file['data'].size
    assert total == array.size, path


def main():
    box, moved = os.path.join(sys.argv[2], 'box'), os.path.join(sys.argv[2], 'moved')
    container = create(box, ['data', 'a%b/', '../beside'])
    arrays = {}
    for i in range(40):
        name = f'n{i}'
        arrays[name] = any_array()
        chunk = any_chunk(arrays[name].shape)
        put(container, name.encode(), arrays[name], chunk)
        cut(container, name.encode(), arrays[name], chunk)
    for name in list(arrays)[:10]:
        arrays[name] = any_array()
        put(container, name.encode(), arrays[name], any_chunk(arrays[name].shape))
    # The library must map any name to a name of a file.
    for i in range(60):
        length = chance.choice([1, 2, 7, 90, 239, 240, 4096])
        name = bytes(chance.randint(1, 255) for _ in range(length))
        put(container, name, np.arange(3, dtype='i4'), [0])
    library.umobject_close(container)
    os.mkdir(moved)
    os.rename(box, os.path.join(moved, 'other'))
    os.rename(os.path.join(sys.argv[2], 'beside'), os.path.join(moved, 'beside'))
    for name, array in arrays.items():
        show(os.path.join(moved, 'other', 'h5', name + '.h5'), array)
    for name in os.listdir(os.path.join(moved, 'other', 'h5')):
        with h5py.File(os.path.join(moved, 'other', 'h5', name), 'r') as file:
            assert file['data'].size > 0
    print(f'{len(arrays)} arrays, seed {seed}')


main()
