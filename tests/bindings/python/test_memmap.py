# SPDX-License-Identifier: BSD-3-Clause
"""Tests of ummap.memmap and ummap.load: modes, shapes, rows, errors and the end of arrays."""
import errno
import gc
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import warnings

import numpy as np
import ummap
from folder import InFolder


class Modes(InFolder):
    def test_all_kinds_of_arrays(self):
        rng = np.random.default_rng(7)
        for dtype in ("u1", ">i4", "f8", "c16", "M8[s]", "S5", [("a", "i2"), ("b", "f4")]):
            for shape, order in (((7,), "C"), ((300, 5, 3), "C"), ((4, 300), "F"), ((), "C")):
                with self.subTest(dtype=dtype, shape=shape, order=order):
                    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
                    data = np.frombuffer(rng.bytes(size), dtype).reshape(shape)
                    ours = ummap.memmap(self.path, dtype, "w+", 123, shape, order, limit="1M")
                    ours[...] = data
                    ours.flush()
                    theirs = np.memmap(self.path, dtype, "r", 123, shape, order)
                    self.assertEqual(theirs.tobytes(), data.tobytes())
                    self.assertEqual(ours.strides, theirs.strides)
                    self.assertEqual(ours.tobytes(), data.tobytes())
                    ours.close()
                    self.assertEqual(os.path.getsize(self.path), 123 + data.nbytes)

    def test_copy_on_write(self):
        data = self.make()
        with open(self.path, "rb") as f:
            before = f.read()
        a = ummap.memmap(self.path, "f4", "c", shape=data.shape, limit="128K")
        a += 1
        self.assertTrue((a == data + 1).all())
        a.flush()
        a.close()
        with open(self.path, "rb") as f:
            self.assertEqual(f.read(), before)
        self.assertEqual(os.listdir(self.folder.name), ["data"])

    def test_arrays_without_a_close_are_written(self):
        a = ummap.memmap(self.path, "i4", "w+", shape=5000)
        a[:] = 3
        del a
        self.assertTrue((np.fromfile(self.path, "i4") == 3).all())

    def test_uris(self):
        a = ummap.memmap(f"wal+posix:{self.path}", "i8", "w+", shape=5000)
        a[:] = range(5000)
        self.assertEqual(a.filename, f"wal+posix:{self.path}")
        a.close()
        b = ummap.memmap(f"wal+posix:{self.path}", "i8", "r")
        self.assertEqual((b.shape, int(b[4999])), ((5000,), 4999))
        with ummap.memmap("mem:1M", "f4", shape=100) as m:
            m[:] = 1
            self.assertEqual(m.sum(), 100)

    def test_limit_and_segment(self):
        data = self.make(8192)
        a = ummap.memmap(self.path, "f4", "r", shape=data.shape, limit="1M", segment="64K")
        self.assertTrue((a == data).all())
        self.assertEqual(a.stat()["budget_bytes"], 1 << 20)
        self.assertLessEqual(a.stat()["resident_bytes"], 1 << 20)
        a = ummap.memmap(self.path, "f4", "r", shape=data.shape, advice="random")
        self.assertEqual(a._mmap._segment, 4096)

try:
    ummap.open("uring:/nonexistent/file")
except OSError as error:
    HAS_URING = error.errno != errno.EOPNOTSUPP


class Load(InFolder):
    """ummap.load: files of numpy.save."""

    def setUp(self):
        super().setUp()
        self.path += ".npy"

    def test_modes(self):
        orders = np.arange(24.0).reshape(4, 6), np.asfortranarray(np.arange(24).reshape(4, 6))
        for data in orders:
            np.save(self.path, data)
            for mode in (None, "r", "r+", "c"):
                theirs = np.load(self.path, mmap_mode=mode or "r")
                for load in (lambda: ummap.load(self.path, mode),
                             lambda: ummap.load(file=self.path, mmap_mode=mode)):
                    a = load()
                    self.assertTrue((a == data).all())
                    self.assertEqual(a.flags.f_contiguous, data.flags.f_contiguous)
                    self.assertEqual((a.mode, a.offset, str(a.filename)),
                                     (theirs.mode, theirs.offset, str(theirs.filename)))
                    self.assertEqual(a.flags.writeable, theirs.flags.writeable)
                    a.close()

    def test_stores(self):
        np.save(self.path, np.zeros(5))
        with ummap.load(self.path, mmap_mode="c") as a:
            a[:] = 1
        self.assertEqual(np.load(self.path).tolist(), [0] * 5)
        with ummap.load(pathlib.Path(self.path), mmap_mode="r+", dtype="f8", shape=5) as a:
            a[:] = 2
        self.assertEqual(np.load(self.path).tolist(), [2] * 5)

    def test_uris(self):
        data = np.arange(5000.0).reshape(50, 100)
        np.save(self.path, data)
        for scheme in ("posix:", "wal+posix:") + (("uring:",) if HAS_URING else ()):
            for mode in ("r", "r+", "c"):
                with self.subTest(scheme, mode=mode):
                    with ummap.load(scheme + self.path, mode, limit="64K") as a:
                        self.assertTrue((a == data).all())
                        self.assertEqual(a.filename, scheme + self.path)
        with self.assertRaises(FileNotFoundError):
            ummap.load("posix:" + self.path + "x")
        with self.assertRaises(OSError) as raised:
            ummap.load(f"error+posix:{self.path}?error.op=read&error.times=always&direct=never")
        self.assertEqual(raised.exception.errno, errno.EIO)

    def test_new_files(self):
        table = [("a", "i2"), ("b", "f4", (3,))]
        number = 0
        for dtype, shape, order in (("f4", (3, 50), "C"), (">i8", (50, 3), "F"), (table, 9, "C"),
                                    (None, (), "C"), ("u1", (0, 5), "C"),
                                    ([("ä", "i4")], 7, "C")):
            for prefix in ("", "posix:", "wal+posix:"):
                number += 1
                path = f"{self.folder.name}/{number}.npy"
                with self.subTest(prefix, dtype=dtype):
                    with ummap.load(prefix + path, "w+", dtype=dtype, shape=shape, order=order,
                                    limit="1M") as a:
                        self.assertEqual(a.tobytes(), bytes(a.nbytes))
                        data = np.frombuffer(bytes(i % 100 for i in range(a.nbytes)), a.dtype)
                        data = data.reshape(a.shape)
                        a[...] = data
                    got = ummap.load(prefix + path) if "+" in prefix else np.load(path)
                    self.assertTrue(np.array_equal(got, data))
                    self.assertEqual((got.dtype, got.flags["F" if order == "F" else "C"]),
                                     (np.dtype(dtype), True))

    def test_replaced_files(self):
        np.save(self.path, np.ones(100000))
        for prefix in ("", "posix:"):
            ummap.load(prefix + self.path, "w+", dtype="u1", shape=5).close()
            self.assertEqual(np.load(self.path).tolist(), [0] * 5)

    def test_errors(self):
        def refused(pattern, *args, **kwargs):
            with self.assertRaisesRegex(ValueError, pattern):
                ummap.load(self.path, *args, **kwargs)

        np.save(self.path, np.zeros((4, 6)))
        refused("elements are float64, not int8", dtype="i1")
        refused(r"shape is \(4, 6\), not \(24,\)", shape=24)
        refused("mode must be one of", "x")
        refused("shape must be given", "w+")
        refused("order must be", "w+", shape=4, order="X")
        refused("negative dimensions", "w+", shape=(-1, 4))
        refused("Python objects", "w+", shape=4, dtype=object)
        refused("limit is", "w+", shape=4, limit="much")
        self.assertEqual(np.load(self.path).shape, (4, 6))
        with open(self.path, "r+b") as f:
            f.truncate(150)
        refused("needs 192 bytes .*greater than file size")
        with open(self.path, "wb") as f:
            f.write(b"no array of numpy's at all")
        for store in (self.path, "posix:" + self.path):
            with self.assertRaisesRegex(ValueError, "as an array of numpy.save: the magic string"):
                ummap.load(store)
        np.save(self.path, np.array([{}]), allow_pickle=True)
        refused("Python objects")
        with open(self.path, "wb") as f:
            np.savez(f, a=np.zeros(3))
        refused("archive of numpy.savez")

    @unittest.skipIf(np.lib.NumpyVersion(np.__version__) < "1.24.0", "no max_header_size before")
    def test_large_headers(self):
        np.save(self.path, np.zeros(3, [(f"column{i}", "f4") for i in range(1000)]))
        with self.assertRaisesRegex(ValueError, "max_header_size"):
            ummap.load(self.path)
        for store in (self.path, "posix:" + self.path):
            self.assertEqual(ummap.load(store, max_header_size=1 << 20)["column7"].sum(), 0)

    def test_damaged_headers(self):
        np.save(self.path, np.zeros(3))
        with open(self.path, "rb") as f:
            whole = f.read()
        for old, new in ((b"(3,)", b"(3,("), (b"(3,)", b"(-3,"), (b"'descr'", b"'d\0scr'"),
                         (b"False", b"lambd"), (b"'<f8'", b"'<f9'")):
            with open(self.path, "wb") as f:
                f.write(whole.replace(old, new))
            with self.subTest(new), self.assertRaisesRegex(ValueError, "data.npy"):
                ummap.load(self.path)

    def test_memmap_warns(self):
        """memmap would read the header as data, and writes no header."""
        np.save(self.path, np.zeros(100, "u1"))
        plain = os.path.join(self.folder.name, "plain")
        np.zeros(100).tofile(plain)
        other = os.path.join(self.folder.name, "other")
        os.link(self.path, other)
        for store in (self.path, other, pathlib.Path(self.path), "posix:" + self.path):
            for mode in ("r", "r+", "c"):
                with self.subTest(store, mode=mode):
                    with self.assertWarnsRegex(UserWarning, "header. Try ummap.load") as warned:
                        ummap.memmap(store, mode=mode)
                    self.assertEqual(warned.filename, __file__)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ummap.load(self.path, "r+").close()
            ummap.load("posix:" + self.path).close()
            ummap.memmap(self.path, offset=128).close()
            ummap.memmap(plain).close()
            ummap.open(self.path).close()
        with self.assertWarnsRegex(UserWarning, "raw data without a header"):
            ummap.memmap(self.path, mode="w+", shape=3)


class Rows(InFolder):
    def test_indices(self):
        data = self.make(3000, 160)
        for columns in (160, 7):
            data = self.make(3000, columns)
            a = ummap.memmap(self.path, "f4", "r", shape=data.shape, limit="256K", advice="random")
            rng = np.random.default_rng(3)
            rows = rng.integers(-3000, 3000, 5000)
            for index in (rows, rows.tolist(), rows.astype("i2"), rng.random(3000) < 0.3,
                          rows[:1], [], rows.reshape(50, 100), (rows, 3),
                          (slice(5, 90), [1, 2]), slice(None, None, -7), 5, (3, 4), Ellipsis,
                          None):
                got = a[index]
                self.assertTrue(np.array_equal(got, data[index]), index)
                theirs = np.memmap(self.path, "f4", "r", shape=data.shape)[index]
                kind = ummap.memmap if type(theirs) is np.memmap else type(theirs)
                self.assertEqual(type(got), kind, index)
            for index in ([3000], [0, -3001], rows + 9000, np.ones(4, bool), [0.5, 1.5]):
                with self.assertRaises(IndexError):
                    a[index]

    def test_rows_are_loaded_together(self):
        data = self.make(20000)
        # Page-cache mappings need no loads, so the key excludes them.
        a = ummap.memmap(f"posix:{self.path}?cached=copy", "f4", "r", shape=data.shape, limit="4M",
                         advice="random")
        # On a busy machine each row may be loaded by its own fault. The test then tries again.
        rng, end = np.random.default_rng(1), time.monotonic() + 60
        while a.stat()["readahead_loads"] == 0 and time.monotonic() < end:
            a[rng.permutation(20000)[:500]]
        self.assertGreater(a.stat()["readahead_loads"], 0)

    def test_read_and_prefetch(self):
        data = self.make(5000).reshape(50, 100, 256)
        a = ummap.memmap(self.path, "f4", "r", shape=data.shape, limit="1M")
        for index in (None, 3, (slice(4, 9), 2), (Ellipsis, 5), (3, 4, 5), slice(40, 3, -3),
                      (slice(None), slice(None), 7), [3, -1], slice(3, 3), (None, 2)):
            got = a.read(index)
            self.assertTrue(np.array_equal(got, data if index is None else data[index]), index)
            self.assertFalse(isinstance(got, ummap.memmap))
            a.prefetch(index, wait=True)
            a.prefetch(index)
        for wrong in ([50], [True], "x"):
            with self.assertRaises((IndexError, TypeError)):
                a.read(wrong)
        f = ummap.memmap(self.path, "f4", "r", shape=data.shape, order="F")
        self.assertTrue(np.array_equal(f.read([1, 2]), f[[1, 2]]))
        self.assertTrue(np.array_equal(f.read(), f))

    def test_failed_loads_are_exceptions(self):
        self.make()
        uri = f"error+posix:{self.path}?error.op=read&error.times=always&direct=never"
        a = ummap.memmap(uri, "f4", "r", shape=(1000, 256))
        for call in (a.read, lambda: a.read(3), lambda: a.read((3, 4)), lambda: a.read([1, 2]),
                     lambda: a[[1, 2]], lambda: a.prefetch(wait=True),
                     lambda: a.prefetch([1, 2], wait=True), lambda: a.pin().__enter__(),
                     lambda: os.write(1, a[5]), lambda: bytes(ummap.open(a.filename)[:3])):
            with self.assertRaises(OSError) as raised:
                call()
            self.assertEqual(raised.exception.errno, errno.EIO)
            self.assertGreater(len(raised.exception.strerror), 10)
        a.prefetch()
        a.prefetch([1, 2])

    def test_failed_writes_are_exceptions(self):
        uri = f"error+posix:{self.path}?error.op=write&error.errno=ENOSPC&error.times=2"
        a = ummap.memmap(uri, "f4", "w+", shape=5000)
        a[:] = 1
        with self.assertRaises(OSError) as raised:
            a.flush()
        self.assertEqual(raised.exception.errno, errno.ENOSPC)
        for _ in range(3):
            try:
                a.close()
            except OSError:
                self.assertEqual(a[0], 1)
        self.assertTrue((np.fromfile(self.path, "f4") == 1).all())


class LossAtExit(InFolder):
    def run_program(self, keys, end=""):
        uri = f"error+posix:{self.path}?error.op=write&error.errno=ENOSPC&{keys}"
        program = (f"import ummap, atexit, sys\na = ummap.memmap({uri!r}, 'f4', 'w+', shape=5000)\n"
                   f"a[:] = 1\natexit.register(print, 'later')\n{end}")
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    def test_an_earlier_error_is_no_loss(self):
        done = self.run_program("error.times=1")
        self.assertEqual((done.returncode, done.stdout), (0, "later\n"), done.stderr)
        self.assertNotIn("lost", done.stderr)
        self.assertTrue((np.fromfile(self.path, "f4") == 1).all())

    def test_a_loss_changes_the_status(self):
        done = self.run_program("error.times=always")
        self.assertEqual((done.returncode, done.stdout), (1, "later\n"), done.stderr)
        self.assertIn("at the end of the process; they are lost: No space left", done.stderr)
        self.assertNotIn("kept in memory", done.stderr)

    def test_a_loss_of_a_dropped_array_changes_the_status(self):
        done = self.run_program("error.times=always", "del a")
        self.assertEqual(done.returncode, 1, done.stderr)

    def test_another_status_stays(self):
        self.assertEqual(self.run_program("error.times=always", "sys.exit(3)").returncode, 3)

    def test_on_full(self):
        ummap.memmap(self.path, "f4", "w+", shape=10, on_full="sigbus").close()
        ummap.open(self.path, on_full="wait").close()
        with self.assertRaisesRegex(ValueError, "on_full must be one of"):
            ummap.load(self.path, on_full="never")


class End(InFolder):
    def test_a_view_holds_the_file(self):
        a = ummap.memmap(self.path, "f4", "w+", shape=100)
        self.assertIn(a.stat()["engine"], ("segv", "sigbus", "uffd"))
        view = a[5:]
        a.close()
        with self.assertRaisesRegex(OSError, "writers=True.*This process has a mapping of"):
            ummap.memmap(self.path, "f4", "r+", shape=100)
        del view

    def test_close_ends_at_once(self):
        self.make()
        before = ummap.stat()["mappings"]
        for _ in range(2):
            a = ummap.memmap(self.path, "f4", "r+", shape=(1000, 256))
            a.close()
            self.assertEqual(ummap.stat()["mappings"], before)
            with ummap.memmap(self.path, "f4", "r+", shape=(1000, 256)) as b:
                b[0] = 1
            self.assertEqual(ummap.stat()["mappings"], before)

    def test_closed_arrays_raise(self):
        self.make()
        a = ummap.memmap(self.path, "f4", "r+", shape=(1000, 256))
        a.close()
        a.close()
        for use in (lambda: a[0], lambda: a + 1, lambda: a.sum(), lambda: np.sum(a),
                    lambda: np.dot(a, a), lambda: len(a), lambda: a.flush(), lambda: list(a),
                    lambda: a.tofile("x"), lambda: a.__setitem__(0, 1), lambda: a.read(),
                    lambda: a.prefetch(), lambda: a.stat(), lambda: a.copy(),
                    lambda: a.reshape(-1)):
            with self.assertRaisesRegex(ValueError, "closed"):
                use()
        self.assertIn("closed", repr(a))

    def test_views_outlive_a_close(self):
        self.make()
        before = ummap.stat()["mappings"]
        for view in (lambda a: a[5:7], np.asarray, memoryview,
                     lambda a: np.asarray(a[5:])[::2], lambda a: a.T, np.ravel):
            a = ummap.memmap(self.path, "f4", "r+", shape=(1000, 256))
            kept = view(a)
            a.close()
            a = None
            gc.collect()
            self.assertEqual(ummap.stat()["mappings"], before + 1)
            self.assertEqual(np.asarray(kept).size, np.asarray(kept).ravel().size)
            last = np.float32(np.asarray(kept).flat[-1])
            self.assertEqual(np.array(kept).tobytes()[-4:], last.tobytes())
            del kept
            gc.collect()
            self.assertEqual(ummap.stat()["mappings"], before)

    def test_views_keep_the_mapping(self):
        self.make()
        before = ummap.stat()["mappings"]
        v = ummap.memmap(self.path, "f4", "r", shape=(1000, 256))[900:]
        w = np.asarray(v)[3]
        self.assertEqual((v.filename, v.mode, v.offset), (self.path, "r", 0))
        del v
        self.assertEqual((w[0], ummap.stat()["mappings"]), (903, before + 1))
        del w
        self.assertEqual(ummap.stat()["mappings"], before)

    def test_cycles_are_collected(self):
        """The mapping of an array in a reference cycle ends, and its file can be opened again."""
        def view(a):
            a.part = a[10:]

        def view_of_a_view(a):
            a.part = a[10:].view()[::2]

        def itself(a):
            a.part = a

        def by_a_list(a):
            a.part = [{"rows": a[5]}]

        def by_a_mapping(a):
            a._mmap.array = a

        def by_a_memoryview(a):
            a.part = memoryview(a._mmap)
            a._mmap.array = a

        def two(a):
            b = a[20:]
            a.part, b.part = b, a[3:]

        self.make()
        before = ummap.stat()["mappings"]
        for tie in (view, view_of_a_view, itself, by_a_list, by_a_mapping, by_a_memoryview, two):
            with self.subTest(tie=tie.__name__):
                a = ummap.memmap(self.path, "f4", "r+", shape=(1000, 256))
                a[0] = 17
                tie(a)
                del a
                gc.collect()
                self.assertEqual(ummap.stat()["mappings"], before)
                with ummap.memmap(self.path, "f4", "r+", shape=(1000, 256)) as b:
                    self.assertEqual(b[0, 0], 17)
                    b[0] = 0

    def test_cycles_that_are_in_use_are_not_collected(self):
        self.make()
        before = ummap.stat()["mappings"]
        a = ummap.memmap(self.path, "f4", "r+", shape=(1000, 256))
        a.part = a[10:]
        view, plain = a[900:], np.asarray(a)[500:]
        del a
        gc.collect()
        self.assertEqual((view[3, 0], plain[3, 0], view.base.part[0, 0]), (903, 503, 10))
        self.assertIs(view.base.part.base, view.base)
        del view
        gc.collect()
        self.assertEqual((plain[4, 0], ummap.stat()["mappings"]), (504, before + 1))
        del plain
        gc.collect()
        self.assertEqual(ummap.stat()["mappings"], before)

    def test_bytes_in_a_cycle_are_collected(self):
        self.make()
        before = ummap.stat()["mappings"]
        m = ummap.open(self.path, "r+")
        m.itself, m.view = m, memoryview(m)
        m[0] = 7
        del m
        gc.collect()
        self.assertEqual(ummap.stat()["mappings"], before)
        with open(self.path, "rb") as f:
            self.assertEqual(f.read(1), b"\7")


class BadInput(InFolder):
    def refused(self, kind, pattern, *args, **kwargs):
        with self.assertRaisesRegex(kind, pattern):
            ummap.memmap(*args, **kwargs)

    def test_arguments(self):
        self.make()
        p = self.path
        self.refused(ValueError, "mode must be one of", p, "f4", "x")
        self.refused(ValueError, "shape must be given", p, "f4", "w+")
        self.refused(ValueError, "not a multiple of the data-type size", p, "S7", "r")
        self.refused(ValueError, "greater than file size", p, "f4", "r", 0, 256001)
        self.refused(ValueError, "greater than file size", p, "f4", "c", 4, 256000)
        self.refused(ValueError, "greater than file size", p, "f4", "r", 1 << 40)
        self.refused(ValueError, "must not be negative", p, "f4", "r", -4)
        self.refused(ValueError, "negative dimensions", p, "f4", "r", 0, (-1, 4))
        self.refused(ValueError, "Python objects", p, object, "r")
        self.refused(TypeError, "", p, "no type", "r")
        self.refused(ValueError, "order must be|order", p, "f4", "r", order="X")
        self.refused(ValueError, "advice must be one of", p, advice="often")
        self.refused(ValueError, "engine must be one of", p, engine="steam")
        self.refused(ValueError, 'limit is "much"', p, limit="much")
        self.refused(ValueError, "more than 0", p, limit=0)
        self.refused(TypeError, "limit must be bytes", p, limit=1.5)
        self.refused(OSError, "power of two", p, segment=5000)
        self.refused(OSError, "policy", p, policy="best")
        self.refused(FileNotFoundError, "", p + "x", "f4", "r")
        self.refused(FileNotFoundError, "", p + "x", "f4", "r+")
        self.refused(IsADirectoryError, "", self.folder.name, "f4", "r")
        self.refused(OSError, "cannot find the driver", "steam:/x")
        open(p, "w").close()
        self.refused(ValueError, "empty file", p, "f4", "r")

    def test_shapes_are_numpys(self):
        self.make(10)
        for shape in (5, np.int64(5), (5,), [5], (5, 4), ()):
            a = ummap.memmap(self.path, "f4", "r", shape=shape)
            self.assertEqual(a.shape, np.zeros(shape).shape)

    def test_shapes_are_whole_numbers(self):
        self.make(3)
        for shape in ((2.5, 3), 5.0, range(2, 4), "5", np.array([2, 2])):
            with self.subTest(shape), self.assertRaises(TypeError):
                ummap.memmap(self.path, "f4", "r", shape=shape)
        self.assertEqual(ummap.memmap(self.path, "f4", "r", shape=[np.int8(2), 3]).shape, (2, 3))

    def test_no_rows(self):
        self.make(30)
        a = ummap.memmap(self.path, "f4", "r", shape=(30, 256))
        for rows in ([], np.array([], int), np.zeros(30, bool)):
            a.prefetch(rows, wait=True)
            self.assertEqual((a.read(rows).shape, a[rows].shape), ((0, 256), (0, 256)))
        for index in (True, np.bool_(True), (slice(3), [1]), "x", 1.5):
            for call in (a.read, a.prefetch, lambda i: a.pin(i).__enter__(),
                         lambda i: a.advise("willneed", i)):
                with self.subTest(index=index):
                    self.assertRaisesRegex(TypeError, "numbers and slices", call, index)
        with self.assertRaisesRegex(TypeError, "numbers and slices"):
            a.pin(np.array([3])).__enter__()

    def test_read_only(self):
        self.make()
        a = ummap.memmap(self.path, "f4", "r", shape=(1000, 256))
        with self.assertRaisesRegex(ValueError, "read-only"):
            a[0] = 1
        with self.assertRaises(OSError):
            a.pin(write=True).__enter__()

    def test_a_second_writer(self):
        self.make()
        a = ummap.memmap(self.path, "f4", "r+", shape=(1000, 256))
        with self.assertRaisesRegex(OSError, "another mapping of this process") as raised:
            ummap.memmap(self.path, "f4", "r+", shape=(1000, 256))
        self.assertEqual(raised.exception.errno, errno.EBUSY)
        a.close()
        a = ummap.memmap(self.path, "f4", "r+", shape=(1000, 256), writers=True)
        b = ummap.memmap(self.path, "f4", "r+", shape=(1000, 256), writers=True)
        a[0], b[1] = 7, 8
        a.close()
        b.close()
        self.assertEqual(np.fromfile(self.path, "f4").reshape(1000, 256)[:2, 0].tolist(), [7, 8])

    def test_an_unreachable_writer(self):
        self.make(3)
        gc.disable()
        self.addCleanup(gc.enable)
        for mode in ("r+", "c", "r+"):
            a = ummap.memmap(self.path, "f4", mode)
            cycle = [a]
            cycle.append(cycle)
            del a, cycle
        ummap.memmap(self.path, "f4", "r+").close()

    def test_a_file_that_shrinks(self):
        self.make()
        a = ummap.memmap(self.path, "f4", "r", shape=(1000, 256), segment=4096)
        os.truncate(self.path, 4096 * 4)
        self.assertEqual((a[3, 0], a[999, 0], a.read(500).sum()), (3, 0, 0))

    def test_no_rights(self):
        if os.geteuid() == 0:
            self.skipTest("root has all rights")
        self.make()
        os.chmod(self.path, 0o444)
        self.refused(PermissionError, "", self.path, "f4", "r+")

    def test_paths(self):
        self.make(4)
        for path in (pathlib.Path(self.path), os.path.relpath(self.path), self.path):
            a = ummap.memmap(path, "f4", "r")
            self.assertEqual(str(a.filename), os.path.realpath(self.path))
        odd = os.path.join(self.folder.name, "ä %3F?{rank}&\udcff")
        os.rename(self.path, odd)
        self.assertEqual(ummap.memmap(odd, "f4", "r").size, 1024)
        with tempfile.TemporaryFile(dir=self.folder.name) as f:
            self.assertIsNone(ummap.memmap(f, "f4", "w+", shape=5).filename)


if __name__ == "__main__":
    unittest.main()
