# SPDX-License-Identifier: BSD-3-Clause
"""numpy's own tests of numpy.memmap, as they are, with ummap.memmap in its place."""
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


def numpys_tests():
    """The class of tests of numpy's file, which asks pytest for two things only."""
    path = pathlib.Path(numpy.__file__).parent / "core/tests/test_memmap.py"
    if not path.exists():
        return None
    skipif = lambda condition, reason="": lambda test: unittest.skip(reason)(test) if condition else test  # noqa: E731
    sys.modules["pytest"] = types.SimpleNamespace(raises=raises, mark=types.SimpleNamespace(skipif=skipif))
    spec = importlib.util.spec_from_file_location("numpys_test_memmap", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    del sys.modules["pytest"]
    module.memmap = ummap.memmap
    return module.TestMemmap


class NumpysTests(unittest.TestCase):
    def test_all(self):
        tests = numpys_tests()
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
