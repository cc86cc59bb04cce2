# SPDX-License-Identifier: BSD-3-Clause
"""numpy's own tests of numpy.memmap, applied to ummap.memmap."""
import contextlib
import importlib.util
import inspect
import pathlib
import re
import sys
import tempfile
import types
import unittest

import numpy
import ummap


@contextlib.contextmanager
def raises(kind, match=""):
    try:
        yield
    except kind as error:
        if not re.search(match, str(error)):
            raise AssertionError(f"{error} does not match {match}")
        return
    raise AssertionError(f"no {kind.__name__}")


def load_numpy_tests():
    """Return numpy's class of tests, with a replacement for the two functions of pytest."""
    path = pathlib.Path(numpy.__file__).parent / "core/tests/test_memmap.py"
    if not path.exists():
        return None

    def skipif(condition, reason=""):
        return unittest.skip(reason) if condition else lambda test: test

    marks = types.SimpleNamespace(skipif=skipif)
    sys.modules["pytest"] = types.SimpleNamespace(raises=raises, mark=marks)
    spec = importlib.util.spec_from_file_location("numpys_test_memmap", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    del sys.modules["pytest"]
    module.memmap = ummap.memmap
    return module.TestMemmap


class NumpyTests(unittest.TestCase):
    def test_all(self):
        tests = load_numpy_tests()
        if tests is None:
            self.skipTest("this numpy comes without its tests")
        names = [name for name in dir(tests) if name.startswith("test_")]
        self.assertGreater(len(names), 15)
        for name in names:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                one = tests()
                method = getattr(one, name)
                one.setup_method()
                try:
                    wants = {"tmp_path": pathlib.Path(folder)}
                    method(**{key: wants[key] for key in inspect.signature(method).parameters})
                finally:
                    one.teardown_method()


if __name__ == "__main__":
    unittest.main()
