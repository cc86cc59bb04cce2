# SPDX-License-Identifier: BSD-3-Clause
"""The examples in the package's documentation do what they say; every public name has some; python -m ummap works."""
import doctest
import inspect
import subprocess
import sys
import unittest

import ummap
import ummap._file
import ummap._memmap
import ummap._load
import ummap._mapping
import ummap._open


class Docs(unittest.TestCase):
    def test_examples(self):
        tried = 0
        for module in (ummap, ummap._open, ummap._mapping, ummap._memmap, ummap._load, ummap._file):
            failed, attempted = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
            self.assertEqual(failed, 0, module.__name__)
            tried += attempted
        self.assertGreater(tried, 25)

    def test_everything_is_documented(self):
        for name in ummap.__all__:
            thing = getattr(ummap, name)
            self.assertTrue(inspect.getdoc(thing), name)
            for method, what in vars(thing).items() if inspect.isclass(thing) else ():
                if not method.startswith("_") and callable(what):
                    self.assertTrue(inspect.getdoc(what), f"{name}.{method}")
        self.assertIn("durable", inspect.getdoc(ummap.memmap.close))

    def test_hints(self):
        for function in (ummap.open, ummap.load, ummap.limit, ummap.memmap.__new__):
            parameters = [p for name, p in inspect.signature(function).parameters.items() if name != "cls"]
            self.assertTrue(all(p.annotation is not p.empty for p in parameters), function)

    def test_main(self):
        done = subprocess.run([sys.executable, "-m", "ummap"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("libummap.so", "numpy", "engine segv      yes", "driver posix     yes", "limit"):
            self.assertIn(word, done.stdout)


if __name__ == "__main__":
    unittest.main()
