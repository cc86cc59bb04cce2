# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the installed libraries that ummap-languages(7) names."""
import os
import unittest

import numpy as np
import ummap
from folder import InFolder

try:
    import h5py
except ImportError:
    h5py = None
try:
    import pandas
except ImportError:
    pandas = None
try:
    import scipy.sparse
except ImportError:
    scipy = None
try:
    import torch
except ImportError:
    torch = None


class Rows:
    """A torch data set over an array."""

    def __init__(self, array):
        self.array = array

    def __len__(self):
        return len(self.array)

    def __getitem__(self, i):
        return np.array(self.array[i])


class OpenedLate:
    """A torch data set that opens its array in the worker process."""

    def __init__(self, path, rows):
        self.path, self.rows, self.array = path, rows, None

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        if self.array is None:
            self.array = ummap.memmap(self.path, "f4", "r", shape=(self.rows, 256), limit="256K",
                                      engine="segv")
        return np.array(self.array[i])


class Libraries(InFolder):
    def setUp(self):
        super().setUp()
        self.data = self.make(2000)
        self.a = ummap.memmap(self.path, "f4", "r", shape=self.data.shape, limit="256K",
                              engine="segv")

    def test_numpy(self):
        self.assertTrue(np.allclose(self.a.T @ self.a, self.data.T @ self.data))
        self.assertTrue(np.array_equal(np.sort(self.a[::-1], axis=0), self.data))
        self.assertTrue(np.allclose(np.fft.rfft(self.a[:, :16]), np.fft.rfft(self.data[:, :16])))

    @unittest.skipUnless(h5py, "there is no h5py")
    def test_h5py(self):
        path = os.path.join(self.folder.name, "h5")
        with h5py.File(path, "w") as h:
            out = h.create_dataset("plain", shape=self.a.shape, dtype="f4")
            for at in range(0, 2000, 100):
                with self.a.pin(slice(at, at + 100)) as part:
                    out[at : at + 100] = part
            h.create_dataset("packed", data=self.data, compression="gzip", chunks=(100, 256))
        with ummap.open(path, limit="256K") as m, h5py.File(m.file(), "r") as h:
            self.assertTrue((h["plain"][:] == self.data).all())
            self.assertTrue((h["packed"][5:900] == self.data[5:900]).all())

    @unittest.skipUnless(pandas, "there is no pandas")
    def test_pandas(self):
        frame = pandas.DataFrame(self.a, copy=False)
        self.assertTrue(np.shares_memory(frame.to_numpy(), np.asarray(self.a)))
        self.assertEqual(len(frame[frame[0] >= 1500]), 500)
        self.assertEqual(frame.iloc[[7, 1999]][0].tolist(), [7, 1999])
        self.assertTrue(np.allclose(frame.mean(), self.data.mean(axis=0)))

    @unittest.skipUnless(scipy, "there is no scipy")
    def test_scipy(self):
        matrix = scipy.sparse.random(1000, 1000, 0.02, "csr", random_state=1)
        parts = []
        for name in ("data", "indices", "indptr"):
            values = getattr(matrix, name)
            path = os.path.join(self.folder.name, name)
            values.tofile(path)
            parts.append(ummap.memmap(path, values.dtype, "r", shape=values.shape, limit="64K"))
        ours = scipy.sparse.csr_matrix(tuple(parts), shape=matrix.shape, copy=False)
        vector = np.arange(1000.0)
        self.assertTrue(np.allclose(ours @ vector, matrix @ vector))
        self.assertEqual(abs(ours[100:200] - matrix[100:200]).sum(), 0)

    @unittest.skipUnless(torch, "there is no torch")
    def test_torch(self):
        with ummap.memmap(self.path, "f4", "r+", shape=self.data.shape, limit="256K") as a:
            tensor = torch.from_numpy(np.asarray(a))
            self.assertEqual(float(tensor[1999, 3]), 1999)
            self.assertTrue(torch.equal(tensor[[5, 900]], torch.from_numpy(self.data[[5, 900]])))
            product = torch.from_numpy(self.data @ self.data[:8].T)
            self.assertTrue(torch.allclose(tensor @ tensor[:8].T, product))
            del tensor
        # The workers are forked before any element of the array was used.
        for mode in ("r", "r+"):
            with self.subTest(mode), ummap.memmap(self.path, "f4", mode, shape=self.data.shape,
                                                  engine="segv") as a:
                self.check_loader(Rows(a), "fork")
        self.check_loader(OpenedLate(self.path, len(self.data)), "spawn")

    def check_loader(self, data_set, method):
        loader = torch.utils.data.DataLoader(data_set, batch_size=100, num_workers=2,
                                             multiprocessing_context=method)
        self.assertTrue(torch.equal(torch.cat(list(loader)), torch.from_numpy(self.data)))


if __name__ == "__main__":
    unittest.main()
