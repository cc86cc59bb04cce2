# SPDX-License-Identifier: BSD-3-Clause
"""Tests of ummap.open, of limits and sizes, and of file objects over mappings."""
import errno
import io
import os
import re
import subprocess
import sys
import threading
import unittest
import zipfile

import numpy as np
import ummap
from folder import InFolder


class Bytes(InFolder):
    def test_read_and_write(self):
        with ummap.open(self.path, "w+", size=100000, limit="64K") as m:
            self.assertEqual((len(m), m.closed, m.writable), (100000, False, True))
            self.assertEqual((m[99999], m[-1]), (0, 0))
            m[5:8] = b"abc"
            m[8] = ord("d")
            self.assertEqual(m.write(9, bytearray(b"ef")), 2)
            self.assertEqual((m[4:11], m.read(5, 2)), (b"\0abcdef", b"ab"))
            self.assertEqual((m[99998:], m[7:3]), (b"\0\0", b""))
            for wrong in (lambda: m[100000], lambda: m.__setitem__(slice(0, 2), b"abc"),
                          lambda: m.__setitem__(0, 256), lambda: m[::2],
                          lambda: m.write(99999, b"ab"),
                          lambda: m._copy(99999, bytearray(2))):
                with self.assertRaises((IndexError, ValueError)):
                    wrong()
        self.assertTrue(m.closed)
        for use in (lambda: m[0], m.flush, m.stat, lambda: memoryview(m), lambda: len(m)):
            with self.assertRaisesRegex(ValueError, "closed"):
                use()
        m = ummap.open(self.path)
        self.assertEqual(re.search(b"[a-f]+", m)[0], b"abcdef")
        with self.assertRaises(TypeError):
            m[0] = 1

    def test_flush_in_the_background(self):
        with ummap.open(f"error+posix:{self.path}?error.op=write&error.errno=ENOSPC&error.times=1",
                        "w+", size=100000) as m:
            m[0] = 1
            failed = m.flush(wait=False)
            with self.assertRaises(OSError) as told:
                failed.result()
            self.assertEqual(told.exception.errno, errno.ENOSPC)
            self.assertTrue(failed.done())
            with self.assertRaises(OSError):
                failed.result()
            m.flush()
            m[0] = 2
            first = m.flush(wait=False)
            m[0] = 3
            second = m.flush(wait=False)
            self.assertTrue(first.done())
            second.result()
            with open(self.path, "rb") as f:
                self.assertEqual(f.read(1), b"\3")
            m.flush(wait=False)
        a = ummap.memmap(self.path, "u1", "r+")
        a[5] = 7
        written = a.flush(wait=False)
        del a
        written.result()
        with self.assertRaises(ValueError):
            m.flush(wait=False)

    def test_flush_that_threads_wait_for(self):
        def poll(flush):
            while not flush.done():
                pass

        with ummap.open(self.path, "w+", size=1 << 20) as m:
            for i in range(100):
                m[0:1 << 19] = bytes([i]) * (1 << 19)
                written = m.flush(wait=False)
                threads = [threading.Thread(target=poll, args=[written]),
                           threading.Thread(target=poll, args=[written]),
                           threading.Thread(target=written.result)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                self.assertTrue(written.done())

    def test_buffers_keep_it_open(self):
        m = ummap.open(self.path, "w+", size=8192)
        view = memoryview(m)
        with self.assertRaisesRegex(BufferError, "1 buffers"):
            m.close()
        view[4096] = 5
        view.release()
        m.close()
        with ummap.open(self.path) as m, m.pin(4096, 10) as part:
            self.assertEqual(bytes(part), b"\5" + bytes(9))
            with self.assertRaises(BufferError):
                m.close()

    def test_arguments(self):
        with open(self.path, "wb") as f:
            f.write(bytes(5000))
        self.assertEqual(len(ummap.open(self.path, offset=4096)), 904)
        for wrong in (dict(offset=5), dict(offset=8192), dict(offset=-4096), dict(size=5001),
                      dict(size=0), dict(mode="w")):
            with self.assertRaises(ValueError):
                ummap.open(self.path, **wrong)

    def test_offsets_are_from_the_beginning(self):
        with ummap.open(self.path, "w+", size=10000) as m:
            m[9998:] = b"ab"
            self.assertEqual((m.read(9998, -1), m.read(9999, 5)), (b"ab", b"b"))
            self.assertEqual(m.read(20000, 5), b"")
            for call in (lambda: m.read(-3, 10), lambda: m.write(-2, b"xy"), lambda: m.prefetch(-5),
                         lambda: m.write(9999, b"xy")):
                self.assertRaises(ValueError, call)

    def test_from_one_place_to_another(self):
        with ummap.open(self.path, "w+", size=5 << 20, limit="8M") as m:
            data = bytearray(os.urandom(5 << 20))
            m[:] = data
            m[5000:] = memoryview(m)[:-5000]
            data[5000:] = data[:-5000]
            self.assertTrue(m[:] == data)
            m.write(0, memoryview(m)[3:])
            data[:-3] = data[3:]
            self.assertTrue(m[:] == data)

    def test_an_index_that_closes_it(self):
        class Closes:
            def __index__(self):
                m.close()
                return 0

        m = ummap.open(self.path, "w+", size=10000)
        self.assertRaisesRegex(ValueError, "closed", lambda: m[Closes() : 5000])
        m = ummap.open(self.path, "r+")
        with self.assertRaisesRegex(ValueError, "closed"):
            m[3] = Closes()

    def test_advice(self):
        m = ummap.open(self.path, "w+", size=1 << 20)
        memoryview(m)[:] = b"x" * (1 << 20)
        m.advise("dontneed")
        self.assertEqual(m.stat()["resident_bytes"], 0)
        m.prefetch(0, 100, wait=True)
        m.advise("sequential")
        m.advise("willneed", 0, 4096)
        with self.assertRaises(ValueError):
            m.advise("seldom")

    def test_as_a_file(self):
        with ummap.open(self.path, "w+", size=1 << 16) as m:
            buffered = io.BufferedRandom(m.file())
            with zipfile.ZipFile(buffered, "w") as z:
                z.writestr("a", b"hello" * 1000)
            buffered.flush()
            with zipfile.ZipFile(io.BytesIO(m[: buffered.tell()])) as z:
                self.assertEqual(z.read("a"), b"hello" * 1000)
            f = m.file()
            self.assertEqual((f.seek(-2, 2), f.write(b"abcd"), f.write(b"")), (65534, 2, 0))
            self.assertEqual((f.tell(), f.read(1)), (65536, b""))
            with self.assertRaisesRegex(OSError, "does not grow"):
                f.write(b"x")
            with self.assertRaisesRegex(ValueError, "whence"):
                f.seek(0, 7)
            f.close()
            for call in (lambda: f.read(1), lambda: f.write(b"x"), lambda: f.seek(0), f.tell):
                with self.assertRaisesRegex(ValueError, "closed"):
                    call()
            buffered.detach()

    def test_limit(self):
        program = """
import ummap
assert ummap.limit("64M") == ummap.limit() == 64 << 20
with ummap.open("null:1G", size=1 << 30) as m:
    view = memoryview(m)
    for i in range(0, 1 << 30, 1 << 20):
        view[i]
    view.release()
    assert ummap.stat()["held_bytes"] <= 64 << 20
assert ummap.limit("64M") == 64 << 20
# Other processes may use all of the shared memory, and budget_bytes is 0 meanwhile.
ummap._ummap.stat = lambda: {"budget_bytes": 0}
ummap.limit("65M")
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertIn("the limit is 67108864 since the first mapping was made", done.stderr)

    def test_percent(self):
        def run(program):
            command = [sys.executable, "-c", "import ummap; " + program]
            return subprocess.check_output(command, text=True)

        out = run("ummap.limit('50%'); ummap.open('null:1M').close(); ummap.limit('50%'); "
                  "print(ummap.limit())")
        self.assertEqual(out, "None\n")
        out = run("ummap.open('null:1M').close(); "
                  "print(ummap.limit('80%'), ummap.limit('80.0 %'))")
        self.assertEqual(out, "None None\n")

    def test_invalid_limits(self):
        """ummap.limit refuses what the library would refuse when the first mapping is made."""
        program = "import sys, ummap; ummap.limit(eval(sys.argv[1]))"
        for limit in ("'half%'", "'150%'", "'0%'", "'%'", "1", "'8K'", "1 << 70"):
            done = subprocess.run([sys.executable, "-c", program, limit], capture_output=True,
                                  text=True)
            with self.subTest(limit):
                self.assertIn("ValueError: limit is", done.stderr)
        program = ("import ummap; ummap.limit(' 50 %'); ummap.open('null:1M').close(); "
                   "print('fine')")
        out = subprocess.check_output([sys.executable, "-c", program], text=True)
        self.assertEqual(out, "fine\n")

    def test_forms_of_sizes(self):
        """Every argument that is a size takes the forms that the library's settings take."""
        forms = {"1M": 1 << 20, "1MB": 1 << 20, "1MiB": 1 << 20, " 1 mib ": 1 << 20,
                 "0.5M": 1 << 19, "1048576": 1 << 20, 1 << 20: 1 << 20,
                 np.int64(1 << 20): 1 << 20}
        for form, size in forms.items():
            with self.subTest(form):
                with ummap.open("mem:4M", "r+", size=form, limit="4M", segment="64K") as m:
                    self.assertEqual(len(m), size)
                with ummap.open("mem:4M", "r+", size="4M", limit=form) as m:
                    self.assertEqual(m.stat()["budget_bytes"], size)
                with ummap.open("mem:4M", "r+", size="4M", segment=form) as m:
                    m[0] = 1
                    self.assertEqual(m.stat()["resident_bytes"], size)

    def test_limits_in_per_cent(self):
        memory = ummap._arguments.usable_memory()
        path = self.path + ".npy"
        np.save(path, np.zeros(1000))
        calls = {
            "open": lambda limit: ummap.open("mem:1M", "r+", size="1M", limit=limit),
            "memmap": lambda limit: ummap.memmap("mem:1M", shape=9, limit=limit),
            "load": lambda limit: ummap.load(path, limit=limit),
        }
        for name, call in calls.items():
            for text, part in (("50%", 0.5), (" 12.5 %", 0.125), ("1%", 0.01)):
                with self.subTest(name, limit=text), call(text) as m:
                    self.assertAlmostEqual(m.stat()["budget_bytes"] / memory, part, 3)
            for wrong in ("0%", "101%", "half%", "%", "0.00000000001%"):
                with self.subTest(name, limit=wrong):
                    self.assertRaisesRegex(ValueError, "limit is", call, wrong)

    def test_per_cent_of_a_cgroup(self):
        """A mapping's limit and the library's own limit refer to the same memory."""
        program = """
import os, sys, ummap
open(os.path.join(sys.argv[1], "cgroup.procs"), "w").write(str(os.getpid()))
with ummap.open("null:1M", limit="50%") as m, ummap.open("null:1M") as other:
    print(m.stat()["budget_bytes"], ummap.stat()["budget_bytes"])
"""
        for folder, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                             ("/sys/fs/cgroup", "memory.max")):
            cgroup = os.path.join(folder, f"ummap-test-{os.getpid()}")
            try:
                os.mkdir(cgroup)
            except OSError:
                continue
            self.addCleanup(os.rmdir, cgroup)
            try:
                with open(os.path.join(cgroup, name), "w") as f:
                    f.write(str(512 << 20))
            except OSError:
                continue
            settings = {"UMMAP_MEM_LIMIT": "50%", "UMMAP_GROUP": f"test.{os.getpid()}"}
            out = subprocess.check_output([sys.executable, "-c", program, cgroup], text=True,
                                          env={**os.environ, **settings})
            self.assertEqual(out.split(), [str(256 << 20)] * 2)
            return
        self.skipTest("this user may not make a memory cgroup")

    def test_invalid_sizes(self):
        for name in ("size", "segment", "limit"):
            for wrong in ("much", "1 pound", "1.5", "", "-1", "1K1", 0, -4096, "0"):
                with self.subTest(name, size=wrong):
                    with self.assertRaisesRegex(ValueError, name + " is"):
                        ummap.open("mem:1M", "r+", **{name: wrong})
            for wrong in (1.5, True, b"1M"):
                with self.subTest(name, size=wrong):
                    with self.assertRaisesRegex(TypeError, name + " must"):
                        ummap.open("mem:1M", "r+", **{name: wrong})
        for name in ("size", "segment"):
            with self.assertRaisesRegex(ValueError, "Only limits may be a percentage"):
                ummap.open("mem:1M", "r+", **{name: "50%"})

    def test_invalid_arguments_leave_the_file(self):
        """Arguments are checked before the mode 'w+' empties the file."""
        with open(self.path, "wb") as f:
            f.write(b"precious")
        for wrong in (dict(limit="much"), dict(segment="50%"), dict(advice="often"),
                      dict(engine="steam"), dict(size="x"), dict(offset=5)):
            with self.subTest(wrong), self.assertRaises(ValueError):
                ummap.open(self.path, "w+", **{"size": 10, **wrong})
        with open(self.path, "rb") as f:
            self.assertEqual(f.read(), b"precious")


if __name__ == "__main__":
    unittest.main()
