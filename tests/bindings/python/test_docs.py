# SPDX-License-Identifier: BSD-3-Clause
"""The docstrings, their examples, the type stubs, and ``python -m ummap``."""
import ast
import doctest
import inspect
import json
import os
import pathlib
import pydoc
import signal
import subprocess
import sys
import unittest

import ummap
import ummap._file
import ummap._hdf5
import ummap._memmap
import ummap._load
import ummap._mapping
import ummap._open
import ummap.formats


def name_of(node):
    """Return the name that a statement of a stub file defines."""
    if isinstance(node, ast.AnnAssign):
        return node.target.id
    if isinstance(node, ast.Assign):
        return node.targets[0].id
    return getattr(node, "name", None)


class Docs(unittest.TestCase):
    def test_examples(self):
        tried = 0
        for module in (ummap, ummap._open, ummap._mapping, ummap._memmap, ummap._load, ummap._file,
                       ummap._hdf5, ummap.formats):
            failed, attempted = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
            self.assertEqual(failed, 0, module.__name__)
            tried += attempted
        self.assertGreater(tried, 25)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        for method in (ummap.Mapping.close, ummap.Mapping.stat, ummap.memmap.close):
            text = inspect.getdoc(method)
            runner.run(doctest.DocTestParser().get_doctest(text, {}, method.__qualname__, None, 0))
        self.assertEqual(runner.summarize()[0], 0)

    def test_everything_is_documented(self):
        """Every public name and method has a docstring with an example."""
        public = [(module, name) for module in (ummap, ummap.formats) for name in module.__all__]
        for module, name in public:
            thing = getattr(module, name)
            self.assertIn(">>>", inspect.getdoc(thing), name)
            classes = [c for c in thing.__mro__[:2] if c.__module__.startswith("ummap")] if (
                inspect.isclass(thing)) else ()
            for method, value in (pair for one in classes for pair in vars(one).items()):
                if not method.startswith("_") and callable(value):
                    self.assertIn(">>>", inspect.getdoc(value) or "", f"{name}.{method}")

    def test_help(self):
        """help(ummap) names every public name in its first lines."""
        text = " ".join(pydoc.plain(pydoc.render_doc(ummap)).split())
        head = text[: text.index("PACKAGE CONTENTS")]
        for name in ummap.__all__:
            self.assertIn(f"`{name}`", head)
        self.assertIn("store: Any, mode: str = 'r', offset", text)

    def test_types_of_the_extension(self):
        """_ummap.pyi has every name of the extension module, and no other."""
        path = pathlib.Path(ummap.__file__).with_name("_ummap.pyi")
        stub = ast.parse(path.read_text())
        names = {"": set()}
        for node in stub.body:
            if isinstance(node, ast.ClassDef):
                names[node.name] = set(map(name_of, node.body))
            names[""].add(name_of(node))
        names[""] -= {None, "_ArrayT"}
        found = {name for name in vars(ummap._ummap) if not name.startswith("__")}
        self.assertEqual(names[""], found)
        for name in ("Mapping", "Array"):
            methods = {m for m in vars(getattr(ummap._ummap, name)) if not m.startswith("__")}
            self.assertEqual({m for m in names[name] if not m.startswith("__")}, methods, name)

    def test_hints(self):
        for function in (ummap.open, ummap.load, ummap.limit, ummap.memmap.__new__):
            parameters = dict(inspect.signature(function).parameters)
            parameters.pop("cls", None)
            for parameter in parameters.values():
                self.assertIsNot(parameter.annotation, parameter.empty, function)

    def test_main(self):
        done = subprocess.run([sys.executable, "-m", "ummap"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = " ".join(done.stdout.split())
        for word in ("libummap.so", " numpy ", " segv works", " posix works", " limit "):
            self.assertIn(word, text)

    def test_commands(self):
        def run(*words):
            return subprocess.run([sys.executable, "-m", "ummap", *words], capture_output=True,
                                  text=True)

        self.assertIn("engines", json.loads(run("info", "--json").stdout))
        top = run("top", "--once")
        self.assertEqual(top.returncode, 0, top.stderr)
        self.assertIn("NAME", top.stdout)
        self.assertIn("python3 -m ummap top: cannot use", run("top", "nonsense").stderr)
        self.assertEqual(run("nonsense").returncode, 2)

    def test_broken_pipe(self):
        """The commands end as others do if nothing reads their output (| head)."""
        for words in ([], ["info"], ["top", "--once"]):
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run([sys.executable, "-m", "ummap", *words], stdout=writer,
                                  stderr=subprocess.PIPE)
            os.close(writer)
            self.assertEqual((done.returncode, done.stderr), (-signal.SIGPIPE, b""), words)


if __name__ == "__main__":
    unittest.main()
