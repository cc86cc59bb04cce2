# SPDX-License-Identifier: BSD-3-Clause
"""A base class for tests that need a folder on a disk."""
import os
import tempfile
import unittest

import numpy as np


class InFolder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp"))
        self.path = os.path.join(self.folder.name, "data")

    def tearDown(self):
        self.folder.cleanup()

    def make(self, rows=1000, columns=256):
        """Make a file of float32 in which all elements of row i are i, and return its data."""
        data = np.repeat(np.arange(rows, dtype="f4")[:, None], columns, 1)
        data.tofile(self.path)
        return data
