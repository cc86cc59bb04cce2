# SPDX-License-Identifier: BSD-3-Clause
"""What ummap-languages(7) says of other libraries, as far as they are there."""
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
    """A data set of torch's."""

    def __init__(self, array):
        self.array = array

    def __len__(self):
        return len(self.array)

    def __getitem__(self, i):
        return np.array(self.array[i])


class OpenedLate:
    """One that opens its array in the worker."""

    def __init__(self, path, rows):
        self.path, self.rows, self.array = path, rows, None

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        if self.array is None:
            self.array = ummap.memmap(self.path, "f4", "r", shape=(self.rows, 256), limit="256K", engine="segv")
        return np.array(self.array[i])


class Libraries(InFolder):
    def setUp(self):
        super().setUp()
        self.data = self.make(2000)
        self.a = ummap.memmap(self.path, "f4", "r", shape=self.data.shape, limit="256K", engine="segv")

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
            self.assertTrue((h["plain"][:] == self.data).all() and (h["packed"][5:900] == self.data[5:900]).all())

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
        for name, values in (("data", matrix.data), ("indices", matrix.indices), ("indptr", matrix.indptr)):
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
            self.assertTrue(torch.allclose(tensor @ tensor[:8].T, torch.from_numpy(self.data @ self.data[:8].T)))
            del tensor
        # Nothing of it was touched when the workers are forked.
        for mode in ("r", "r+"):
            with self.subTest(mode), ummap.memmap(self.path, "f4", mode, shape=self.data.shape, engine="segv") as a:
                loader = torch.utils.data.DataLoader(Rows(a), batch_size=100, num_workers=2, multiprocessing_context="fork")
                self.assertTrue(torch.equal(torch.cat(list(loader)), torch.from_numpy(self.data)))
                del loader
        loader = torch.utils.data.DataLoader(OpenedLate(self.path, len(self.data)), batch_size=100, num_workers=2,
                                             multiprocessing_context="spawn")
        self.assertTrue(torch.equal(torch.cat(list(loader)), torch.from_numpy(self.data)))


if __name__ == "__main__":
    unittest.main()
