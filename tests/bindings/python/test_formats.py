# SPDX-License-Identifier: BSD-3-Clause
"""ummap.formats: arrays of NumPy, safetensors and GGUF, from paths and a server, and damage."""
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import unittest
import urllib.parse
import urllib.request
import warnings
import zipfile
from contextlib import suppress

import numpy as np
import ummap
import ummap.formats
from folder import InFolder

try:
    import h5py
except ImportError:
    h5py = None

FUZZ_CASES = 20000 if os.environ.get("UMMAP_TEST_LONG") else 1500
PLUGINS = pathlib.Path(ummap.__file__).resolve().parents[2] / "plugins"
SERVER = pathlib.Path(__file__).parents[2] / "http/s3-server"


def safetensors_of(tensors, metadata=None):
    """Return a file of safetensors: an independent writer."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (kind, array) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def gguf_string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def gguf_of(values, tensors, alignment=32):
    """Return a file of GGUF. Values: name to (type, packed value). Tensors: name to (type, shape in
    elements, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    for name, (kind, packed) in values.items():
        head += gguf_string(name) + struct.pack("<I", kind) + packed
    data = b""
    for name, (kind, shape, content) in tensors.items():
        data += bytes(-len(data) % alignment)
        head += gguf_string(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *shape[::-1]) + struct.pack("<IQ", kind, len(data))
        data += content
    return head + bytes(-len(head) % alignment) + data


class Formats(InFolder):
    def store(self, content, name="data"):
        path = os.path.join(self.folder.name, name)
        with open(path, "wb") as f:
            f.write(content)
        return path

    def refused(self, content, words, name=None):
        path = self.store(content)
        with self.assertRaisesRegex(ValueError, words):
            arrays = ummap.formats.load(path)
            arrays[name]


class Import(unittest.TestCase):
    def test_import_of_the_package_is_enough(self):
        program = "import ummap; print(ummap.formats.load.__module__)"
        out = subprocess.check_output([sys.executable, "-c", program], text=True)
        self.assertEqual(out, "ummap.formats\n")


class Numpy(Formats):
    def test_npy(self):
        for array in (np.arange(5000.0).reshape(50, 100), np.array(7), np.zeros((0, 3)),
                      np.asfortranarray(np.arange(6).reshape(2, 3)),
                      np.zeros(3, [("a", "<f4"), ("é", "u1")])):
            np.save(self.path + ".npy", array)
            mapped = ummap.formats.load(self.path + ".npy", limit="1M")
            self.assertIsInstance(mapped, ummap.memmap)
            self.assertEqual((mapped.dtype, mapped.shape), (array.dtype, array.shape))
            self.assertEqual(mapped.tobytes("A"), array.tobytes("A"))
            mapped.close()

    def make_archive(self, save):
        path = self.path + ".npz"
        data = dict(a=np.arange(100000.0).reshape(1000, 100), b=np.arange(7, dtype="u1"),
                    f=np.asfortranarray(np.arange(12).reshape(3, 4)))
        save(path, **data)
        return path, data

    def test_npz(self):
        path, data = self.make_archive(np.savez)
        arrays = ummap.formats.load(path, advice="random", limit="1M")
        self.assertEqual(sorted(arrays), ["a", "b", "f"])
        for name, array in data.items():
            self.assertIsInstance(arrays[name], ummap.memmap)
            np.testing.assert_array_equal(arrays[name], array)
        np.testing.assert_array_equal(arrays["a"][[3, 999, 500]], data["a"][[3, 999, 500]])
        with self.assertRaises(KeyError):
            arrays["c"]
        self.assertLessEqual(arrays["a"].stat()["resident_bytes"], 1 << 20)

    def test_npz_compressed(self):
        path, data = self.make_archive(np.savez_compressed)
        with ummap.formats.load(path) as arrays:
            for name, array in data.items():
                self.assertIs(type(arrays[name]), np.ndarray)
                np.testing.assert_array_equal(arrays[name], array)

    def test_changes(self):
        path, _ = self.make_archive(np.savez)
        with ummap.formats.load(path, "c") as arrays:
            arrays["b"][0] = 9
            self.assertEqual(arrays["b"][0], 9)
        self.assertEqual(np.load(path)["b"][0], 0)
        with self.assertRaisesRegex(ValueError, "checksums"):
            ummap.formats.load(path, "r+")
        path = self.store(safetensors_of({"t": ("U8", np.arange(9, dtype="u1"))}))
        with ummap.formats.load(path, "r+") as arrays:
            arrays["t"][0] = 9
        self.assertEqual(ummap.formats.load(path)["t"].tolist(), [9, *range(1, 9)])
        with self.assertRaisesRegex(ValueError, "would empty"):
            ummap.formats.load(path, "w+")

    def test_views_outlive_the_dictionary(self):
        path, data = self.make_archive(np.savez)
        with ummap.formats.load(path) as arrays:
            view = arrays["a"][10:20]
        np.testing.assert_array_equal(view, data["a"][10:20])
        self.assertEqual(len(arrays), 0)

    def test_objects(self):
        np.save(self.path + ".npy", np.array([{}, 1], object), allow_pickle=True)
        with self.assertRaisesRegex(ValueError, "Python objects"):
            ummap.formats.load(self.path + ".npy")
        np.savez(self.path + ".npz", a=np.array([{}], object))
        with self.assertRaisesRegex(ValueError, "array 'a'.*Python objects"):
            ummap.formats.load(self.path + ".npz")["a"]

    def test_same_name_twice(self):
        with self.assertWarns(UserWarning), zipfile.ZipFile(self.path, "w") as z:
            z.writestr("a.npy", b"1")
            z.writestr("a.npy", b"2")
        with self.assertRaisesRegex(ValueError, "'a' appears twice"):
            ummap.formats.load(self.path)


class Safetensors(Formats):
    def test_types(self):
        tensors = {kind: (kind, np.arange(6).astype(form).reshape(2, 3)) for kind, form in
                   dict(F64="f8", F32="f4", F16="f2", I64="i8", I32="i4", I16="i2", I8="i1",
                        U64="u8", U32="u4", U16="u2", U8="u1", BOOL="?", C64="c8").items()}
        tensors["scalar"] = "F32", np.array(5, "f4")
        tensors["empty"] = "F32", np.zeros((0, 4), "f4")
        tensors["BF16"] = "BF16", np.arange(4, dtype="u2")
        path = self.store(safetensors_of(tensors, {"format": "np"}), "a.safetensors")
        arrays = ummap.formats.load(path)
        self.assertEqual(arrays.metadata, {"format": "np"})
        self.assertEqual(list(arrays), list(tensors))
        np.testing.assert_array_equal(arrays["BF16"].view("u2"), np.arange(4))
        for name, (_, array) in tensors.items():
            self.assertEqual(arrays[name].shape, array.shape)
            if name != "BF16":
                self.assertEqual(arrays[name].dtype, array.dtype)
                np.testing.assert_array_equal(arrays[name], array)

    def test_refusals(self):
        def header(text, size=None):
            return struct.pack("<Q", len(text) if size is None else size) + text.encode()

        def tensor(dtype="F32", shape=(2,), offsets=(0, 8)):
            return header(json.dumps({"t": {"dtype": dtype, "shape": shape,
                                            "data_offsets": offsets}})) + bytes(8)

        self.refused(b"x", "at byte 0|from byte 0")
        self.refused(b"\0" * 20, "none of the formats")
        self.refused(header("{}", 1 << 60) + bytes(100), "none of the formats")
        self.refused(header("{,}"), "Expecting")
        self.refused(header("{" * 100000), "cannot map")
        self.refused(header('{"t": 1}'), "has no dtype", "t")
        self.refused(tensor("F7"), "'F7' is unknown", "t")
        self.refused(tensor(shape=(3,)), "does not have 8 bytes", "t")
        self.refused(tensor(offsets=(8, 16)), "reaches from byte", "t")
        self.refused(tensor(offsets=(8, 0)), "does not have", "t")
        self.refused(tensor(offsets=(-8, 0)), "lists of numbers", "t")
        self.refused(tensor(shape=(1 << 62, 1 << 62)), "does not have", "t")
        self.refused(tensor(shape=(1 << 63, 0), offsets=(0, 0)), "cannot map", "t")
        self.refused(tensor(shape=(2.0,)), "lists of numbers", "t")


class GGUF(Formats):
    def content(self):
        words = b"".join(map(gguf_string, ["a", "bc", ""]))
        nested = struct.pack("<IQ", 9, 1) + struct.pack("<IQ3i", 5, 3, 1, 2, 3)
        values = {"general.architecture": (8, gguf_string("test")),
                  "general.alignment": (4, struct.pack("<I", 64)),
                  "words": (9, struct.pack("<IQ", 8, 3) + words), "nested": (9, nested),
                  "rate": (12, struct.pack("<d", 0.5)), "on": (7, b"\1")}
        tensors = {"f": (0, (2, 3), np.arange(6, dtype="f4").tobytes()),
                   "q": (8, (2, 64), bytes(range(136))),
                   "b": (30, (3,), bytes(6))}
        return gguf_of(values, tensors, 64)

    def test_values_and_tensors(self):
        arrays = ummap.formats.load(self.store(self.content()))
        self.assertEqual(arrays.metadata, {
            "general.architecture": "test", "general.alignment": 64, "words": ["a", "bc", ""],
            "nested": [[1, 2, 3]], "rate": 0.5, "on": True})
        np.testing.assert_array_equal(arrays["f"], np.arange(6).reshape(2, 3))
        np.testing.assert_array_equal(arrays["q"], np.arange(136).reshape(2, 68))
        self.assertEqual(arrays["b"].view("u2").tolist(), [0, 0, 0])

    def test_refusals(self):
        self.refused(b"GGUF" + struct.pack(">I", 3) + bytes(40), "version 50331648")
        self.refused(b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "must end before")
        self.refused(b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "must end before")
        self.refused(gguf_of({"x": (13, b"")}, {}), "type 13 of a value")
        deep = struct.pack("<IQ", 9, 1) * 50
        self.refused(gguf_of({"x": (9, deep)}, {}), "type 9 of a value")
        self.refused(gguf_of({"general.alignment": (4, bytes(4))}, {}), "alignment is 0")
        self.refused(gguf_of({}, {"t": (99, (1,), b"")}), "type 99 is unknown", "t")
        self.refused(gguf_of({}, {"t": (8, (2, 31), b"")}), "no whole blocks", "t")
        self.refused(gguf_of({}, {"t": (0, (1,) * 40, bytes(4))}), "40 dimensions")
        self.refused(gguf_of({}, {"t": (0, (1 << 40, 1 << 40), b"")}), "file ends", "t")


class Damage(Formats):
    """Damaged files raise ValueError, or show arrays inside the file: no other exception."""

    def damage(self, content, rng):
        content = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            if not content:
                break
            at = rng.randrange(min(len(content), 600))
            kind = rng.randrange(4)
            if kind == 0:
                content[at] = rng.randrange(256)
            elif kind == 1:
                content[at:at + 8] = struct.pack("<Q", rng.choice(
                    [0, 1, 255, 1 << 31, 1 << 32, 1 << 62, (1 << 63) - 1, (1 << 64) - 1]))
            elif kind == 2:
                del content[at:at + rng.randint(1, 40)]
            else:
                del content[rng.randrange(len(content) + 1):]
        return bytes(content)

    def read_all(self, path):
        arrays = ummap.formats.load(path, limit="1M", segment="4K")
        for array in arrays.values() if isinstance(arrays, ummap.formats.Arrays) else [arrays]:
            self.assertLessEqual(array.nbytes, 1 << 20)
            array.tobytes()

    def test_fuzz(self):
        np.save(self.path + ".npy", np.arange(100.0).reshape(10, 10))
        np.savez(self.path + ".npz", a=np.arange(5), b=np.ones((2, 3)))
        seeds = [pathlib.Path(self.path + end).read_bytes() for end in (".npy", ".npz")]
        seeds.append(safetensors_of({"a": ("F32", np.ones((4, 4), "f4")),
                                     "b": ("I8", np.ones(3, "i1"))}, {"x": "y"}))
        seeds.append(GGUF.content(self))
        seed = int(os.environ.get("UMMAP_TEST_SEED", random.randrange(1 << 30)))
        rng = random.Random(seed)
        opened = 0
        # numpy evaluates headers as Python.
        warnings.simplefilter("ignore")
        for case in range(FUZZ_CASES):
            path = self.store(self.damage(rng.choice(seeds), rng))
            with self.subTest(seed=seed, case=case), suppress(ValueError):
                self.read_all(path)
                opened += 1
        self.assertGreater(opened, FUZZ_CASES // 100)


@unittest.skipUnless(list(PLUGINS.glob("ummap-driver-s3.so")), "the driver s3 is not built")
class Server(Formats):
    """The same files in an object of S3, by a process that has only the variables."""

    def setUp(self):
        super().setUp()
        self.server = subprocess.Popen([sys.executable, SERVER, self.folder.name],
                                       stdout=subprocess.PIPE)
        self.port = int(self.server.stdout.readline())

    def tearDown(self):
        self.server.kill()
        self.server.wait()
        self.server.stdout.close()
        super().tearDown()

    def put(self, path, key):
        query = urllib.parse.urlencode(dict(load=path), safe="/") + f"&as=public/{key}"
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}/control?{query}").read()
        return f"s3:public/{key}?endpoint=http://127.0.0.1:{self.port}&credentials=none"

    def run_program(self, program, *arguments):
        environment = dict(os.environ, UMMAP_DRIVER_PATH=str(PLUGINS))
        subprocess.run([sys.executable, "-c", program, *arguments], env=environment, check=True,
                       timeout=100)

    def test_formats(self):
        np.savez(self.path + ".npz", a=np.arange(1 << 20).reshape(1024, 1024))
        archive = self.put(self.path + ".npz", "a.npz")
        tensors = self.put(self.store(safetensors_of({"t": ("U8", np.arange(9, dtype="u1"))})), "t")
        self.run_program("""if True:
            import sys, numpy as np, ummap.formats
            a = ummap.formats.load(sys.argv[1], advice="random")["a"]
            assert a[[7, 1000], 5].tolist() == [7 * 1024 + 5, 1000 * 1024 + 5]
            assert a.stat()["read_bytes"] < a.nbytes / 4, a.stat()["read_bytes"]
            assert ummap.formats.load(sys.argv[2])["t"].tolist() == list(range(9))
            """, archive, tensors)

    @unittest.skipUnless(h5py, "h5py is not installed")
    def test_hdf5(self):
        with h5py.File(self.path, "w") as f:
            f["numbers"] = np.arange(100000).reshape(1000, 100)
        self.run_program("""if True:
            import sys, numpy as np, h5py, ummap
            with h5py.File(ummap.open(sys.argv[1]).file()) as f:
                data = f["numbers"]
                assert data[7, 5] == 705
                where = data.dtype, "r", data.id.get_offset(), data.shape
            a = ummap.memmap(sys.argv[1], *where)
            assert (a == np.arange(100000).reshape(1000, 100)).all()
            """, self.put(self.path, "a.h5"))


if __name__ == "__main__":
    unittest.main()
