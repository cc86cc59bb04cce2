# SPDX-License-Identifier: BSD-3-Clause
"""Tests of forked and spawned processes, of pickles, and of the end of processes."""
import copy
import errno
import multiprocessing
import os
import pickle
import subprocess
import sys
import unittest

import numpy as np
import ummap
from folder import InFolder


def read_from_copy(path):
    a = ummap.memmap(path, "f4", "r", shape=(1000, 256), limit="2M", node_cache=True)
    return float(a.sum(dtype="f8")), a.stat()["read_bytes"]


def total(a):
    return float(a.sum(dtype="f8"))


def read_and_mode(a):
    return float(a[5, 0]), float(a[900, 0]), a.mode


def set_row(a):
    a[5] = 0


def store(job):
    a, row = job
    a[row] = -1
    return a.filename


def store_by_path(path):
    # A global keeps the array until the end of the process.
    global kept
    kept = ummap.memmap(path, "f4", "r+", shape=(1000, 256))
    kept[7] = 77


class Pickles(InFolder):
    def test_node_copy(self):
        """Processes that map a file with node_cache=True read it once together."""
        data = np.arange(256000, dtype="f4").reshape(1000, 256)
        data.tofile(self.path)
        a = ummap.memmap(self.path, "f4", "r", shape=(1000, 256), limit="2M", node_cache=True)
        self.assertEqual(float(a.sum(dtype="f8")), float(data.sum(dtype="f8")))
        self.assertEqual(a[[3, 900], 7].tolist(), [775.0, 230407.0])
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            for found, read in pool.map(read_from_copy, [self.path] * 4):
                self.assertEqual((found, read), (float(data.sum(dtype="f8")), 0))
        with self.assertRaises(OSError) as raised:
            ummap.memmap(self.path, "f4", "r+", shape=(1000, 256), node_cache=True)
        self.assertEqual(raised.exception.errno, errno.EINVAL)

    def test_views(self):
        data = self.make()
        a = ummap.memmap(self.path, "f4", "r", shape=data.shape, limit="1M", advice="random")
        for view in (lambda x: x, lambda x: x[3:9], lambda x: x[::-2, 5], lambda x: x.T,
                     lambda x: x[3, 4:5], lambda x: x.view("i4")):
            text = pickle.dumps(view(a))
            self.assertLess(len(text), 2000)
            b = pickle.loads(text)
            self.assertTrue(np.array_equal(b, view(data)))
            self.assertIs(b._mmap, a._mmap)
        del a, b
        b = pickle.loads(text)
        self.assertEqual((type(b), b.filename), (ummap.memmap, self.path))
        self.assertEqual(b.stat()["budget_bytes"], 1 << 20)
        self.assertTrue(np.array_equal(b, data.view("i4")))

    def test_what_has_no_path(self):
        self.make()
        a = ummap.memmap(self.path, "f4", "c", shape=(1000, 256))
        a[0] = 5
        b = pickle.loads(pickle.dumps(a))
        self.assertEqual((type(b), b[0, 0]), (np.ndarray, 5))
        self.assertEqual(copy.deepcopy(a)[0, 0], 5)
        self.assertEqual(pickle.loads(pickle.dumps(a[[1, 2]])).tolist(), a[[1, 2]].tolist())
        self.assertEqual(pickle.loads(pickle.dumps(a + 1))[0, 0], 6)
        with open(self.path, "r+b") as f:
            os.unlink(self.path)
            with self.assertRaisesRegex(pickle.PicklingError, "without a name"):
                pickle.dumps(ummap.memmap(f, "f4", "r", shape=5))


class Processes(InFolder):
    def test_pools(self):
        for method in ("fork", "spawn"):
            data = self.make()
            with self.subTest(method), multiprocessing.get_context(method).Pool(2) as pool:
                a = ummap.memmap(self.path, "f4", "r", shape=data.shape, limit="1M")
                got = pool.map(total, [a[i : i + 100] for i in range(0, 1000, 100)])
                self.assertEqual(sum(got), total(data))
                a = ummap.memmap(self.path, "f4", "r+", shape=data.shape, writers=True)
                a[900] = 0
                self.assertEqual(pool.map(store, [(a, i) for i in range(8)]), [self.path] * 8)
                pool.close()
                pool.join()
                a.close()
                now = np.fromfile(self.path, "f4").reshape(data.shape)
                self.assertTrue((now[:8] == -1).all() and (now[900] == 0).all())
                self.assertTrue((now[8:900] == data[8:900]).all())

    def test_pools_get_what_may_be_stored_to(self):
        """A writable array is read-only in a worker. An error would end the worker silently."""
        for method in ("fork", "spawn"):
            data = self.make()
            a = ummap.memmap(self.path, "f4", "r+", shape=data.shape, limit="1M")
            a[900] = -3
            with self.subTest(method), multiprocessing.get_context(method).Pool(2) as pool:
                self.assertEqual(pool.apply_async(read_and_mode, (a[:],)).get(60), (5, -3, "r"))
                with self.assertRaisesRegex(ValueError, "read-only"):
                    pool.apply_async(set_row, (a,)).get(60)
            a.close()

    def in_child(self, function):
        """Call the function in a forked child, and return its result or its exception."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                result = function()
            except BaseException as error:
                result = (type(error).__name__, getattr(error, "errno", None), str(error))
            os.write(write, pickle.dumps(result))
            os._exit(0)
        os.close(write)
        with open(read, "rb") as f:
            result = f.read()
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        return pickle.loads(result)

    def test_what_a_forked_child_inherits(self):
        data = self.make()
        a = ummap.memmap(self.path, "f4", "r+", shape=data.shape, limit="256K")
        a[10] = 5
        plain = np.asarray(a)
        view = a[9:12]

        def child():
            sums = (total(a), total(plain), float(view[1, 0]), float(a[[10, 11]].sum()),
                    total(a.read()), bytes(a[10])[:4])
            a[11] = 6
            return sums + (float(a[11, 0]),)

        want = total(a)
        five = np.float32(5).tobytes()
        self.assertEqual(self.in_child(child), (want, want, 5.0, 16 * 256.0, want, five, 6.0))
        self.assertEqual(a[11, 0], 11)
        for call in (a.flush, a.stat, a.prefetch, lambda: a.pin().__enter__(),
                     lambda: a.advise("random")):
            kind, number, text = self.in_child(call)
            self.assertEqual((kind, number), ("OSError", errno.ENXIO))
            self.assertIn("Open the store in the child, too", text)
        self.assertEqual(self.in_child(lambda: a.close()), None)
        a.close()
        self.assertEqual(np.fromfile(self.path, "f4").reshape(data.shape)[11, 0], 11)

    def test_a_child_inherits_what_was_never_touched(self):
        data = self.make()
        touches = {"nothing": lambda a: None, "the first row": lambda a: a[0],
                   "the middle": lambda a: a[500], "all rows": lambda a: a.sum()}
        for engine in ("segv", "sigbus"):
            for name, touch in touches.items():
                with self.subTest(name, engine=engine), ummap.memmap(
                        self.path, "f4", "r", shape=data.shape, segment=4096, engine=engine) as a:
                    touch(a)
                    got = self.in_child(lambda: (float(a[7, 3]), float(a[999, 255]), total(a)))
                    self.assertEqual(got, (7, 999, total(data)))
        with ummap.open(self.path) as m:
            self.assertEqual(self.in_child(lambda: m[4096:4100]), np.float32(4).tobytes())

    def test_nothing_else_comes_where_a_mapping_was(self):
        self.make()

        def rights(low, high):
            with open("/proc/self/maps") as maps:
                lines = [line.split() for line in maps]
            ranges = [[int(at, 16) for at in line[0].split("-")] + [line[1]] for line in lines]
            return [(max(a, low) - low, min(b, high) - low, what) for a, b, what in ranges
                    if a < high and b > low]

        for store, mode in (("mem:1M", "r+"), (self.path, "c")):
            for touched in (0, 1000, 250000):
                with ummap.memmap(store, "f4", mode, shape=250000, segment=4096) as a:
                    a[:touched].sum()
                    at, size = a._mmap._address, len(a._mmap) // 4096 * 4096
                    got = self.in_child(lambda: rights(at, at + size))
                    self.assertEqual(got, [(0, size, "---p")])

    def test_what_a_forked_child_cannot_have(self):
        with ummap.memmap("mem:1M", "f4", shape=1000) as a:
            b = a[3:]
            for use in (lambda: a[0], lambda: a.__setitem__(0, 1), lambda: b[1:2],
                        lambda: os.write(1, a), lambda: a._mmap[0]):
                kind, number, _ = self.in_child(use)
                self.assertEqual((kind, number), ("OSError", errno.ENXIO))

    def test_a_child_opens_its_own(self):
        data = self.make()
        a = ummap.memmap(self.path, "f4", "r", shape=data.shape)

        def child():
            return total(ummap.memmap(self.path, "f4", "r", shape=data.shape, limit="1M"))

        self.assertEqual(self.in_child(child), total(a))

    def test_workers_write_at_their_end(self):
        self.make()
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            process = context.Process(target=store_by_path, args=(self.path,))
            process.start()
            process.join()
            self.assertEqual(process.exitcode, 0)
            self.assertTrue((np.fromfile(self.path, "f4").reshape(1000, 256)[7] == 77).all())
            self.make()

    def test_programs_write_at_their_end(self):
        program = ("import ummap, sys; a = ummap.memmap(sys.argv[1], 'i4', 'w+', shape=9); "
                   "a[:] = 4; sys.modules['a'] = a")
        subprocess.run([sys.executable, "-c", program, self.path], check=True)
        self.assertEqual(np.fromfile(self.path, "i4").tolist(), [4] * 9)


if __name__ == "__main__":
    unittest.main()
