# SPDX-License-Identifier: BSD-3-Clause
"""Tests of arrays that system calls use while no segment of them is in memory."""
import errno
import hashlib
import io
import os
import socket
import unittest

import numpy as np
import ummap
from folder import InFolder


class Kernel(InFolder):
    def setUp(self):
        super().setUp()
        self.data = self.make(2000)
        self.out = os.path.join(self.folder.name, "out")
        self.a = ummap.memmap(self.path, "f4", "r+", shape=self.data.shape, limit="1M",
                              engine="segv")
        self.a.advise("dontneed")

    def written(self):
        with open(self.out, "rb") as f:
            return f.read()

    def test_tofile(self):
        self.a.tofile(self.out)
        self.assertEqual(self.written(), self.data.tobytes())
        with open(self.out, "wb") as f:
            f.write(b"head")
            self.a[100:900].tofile(f)
            self.a.T.tofile(f)
        data = self.data[100:900].tobytes() + self.data.T.tobytes()
        self.assertEqual(self.written(), b"head" + data)
        self.a[:3, :2].tofile(self.out, ",")
        self.assertEqual(self.written(), b"0.0,0.0,1.0,1.0,2.0,2.0")

    def test_save(self):
        for array, data in ((self.a, self.data), (self.a.T, self.data.T),
                            (self.a[::3], self.data[::3])):
            self.a.advise("dontneed")
            np.save(self.out + ".npy", array)
            self.assertTrue(np.array_equal(np.load(self.out + ".npy"), data))
        np.save(buffer := io.BytesIO(), self.a)
        self.assertTrue(buffer.getvalue().endswith(self.data.tobytes()))

    def test_write(self):
        fd = os.open(self.out, os.O_CREAT | os.O_WRONLY)
        part = self.a[500:600]
        self.assertEqual(os.write(fd, part), part.nbytes)
        self.assertEqual(os.pwritev(fd, [self.a[1:2], self.a[7:9]], part.nbytes), 3 * 1024)
        os.close(fd)
        data = self.data[500:600].tobytes() + self.data[[1, 7, 8]].tobytes()
        self.assertEqual(self.written(), data)
        self.assertEqual(self.a.stat()["pinned_bytes"], 0)
        with open(self.out, "wb") as f:
            f.write(self.a[500:600])
        self.assertEqual(self.written(), self.data[500:600].tobytes())

    def test_readinto(self):
        with open(self.out, "wb") as f:
            f.write(np.full(25600, 7, "f4").tobytes())
        for buffering in (0, -1):
            self.a.advise("dontneed")
            with open(self.out, "rb", buffering=buffering) as f:
                self.assertEqual(f.readinto(self.a[300:400]), 102400)
            self.assertEqual((self.a[299, 0], self.a[300, 0]), (299, 7))
            self.assertEqual((self.a[399, 255], self.a[400, 0]), (7, 400))
        self.assertEqual(self.a.stat()["pinned_bytes"], 0)
        self.a.close()
        self.assertTrue((np.fromfile(self.path, "f4").reshape(2000, 256)[300:400] == 7).all())

    def test_sockets(self):
        one, two = socket.socketpair()
        one.sendall(self.a[5:9])
        self.assertEqual(two.recv_into(self.a[20:24]), 4096)
        self.assertEqual(self.a[20:24, 0].tolist(), [5, 6, 7, 8])
        one.close()
        two.close()

    def test_buffers_are_pinned_while_they_live(self):
        self.assertEqual(hashlib.sha256(self.a[:100]).digest(),
                         hashlib.sha256(self.data[:100]).digest())
        self.assertEqual(self.a.stat()["pinned_bytes"], 0)
        self.assertEqual(bytes(self.a[3]), self.data[3].tobytes())
        with self.a.pin(slice(0, 10)) as part:
            self.assertGreater(self.a.stat()["pinned_bytes"], 0)
            fd = os.open(self.out, os.O_CREAT | os.O_WRONLY)
            self.assertEqual(os.write(fd, np.asarray(part)), 10240)
            os.close(fd)
        self.assertEqual(self.a.stat()["pinned_bytes"], 0)
        with self.assertRaises(OSError):
            self.a.pin().__enter__()
        with self.assertRaises(ValueError):
            with self.a.pin(slice(0, 10)):
                raise ValueError
        self.assertEqual(self.a.stat()["pinned_bytes"], 0)

    def test_with_the_engine_that_the_kernel_sees(self):
        self.a.close()
        try:
            a = ummap.memmap(self.path, "f4", "r", shape=self.data.shape, limit="1M", kernel=True)
        except OSError as error:
            # The process has no right to userfaultfd, or the kernel is older than Linux 6.8.
            self.assertIn(error.errno, (errno.EPERM, errno.EOPNOTSUPP))
            if error.errno == errno.EOPNOTSUPP:
                self.assertIn("UFFDIO_MOVE", str(error))
            self.skipTest(error.strerror)
        fd = os.open(self.out, os.O_CREAT | os.O_WRONLY)
        self.assertEqual(os.write(fd, np.asarray(a)), a.nbytes)
        os.close(fd)
        self.assertEqual(self.written(), self.data.tobytes())


if __name__ == "__main__":
    unittest.main()
