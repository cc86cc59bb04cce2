# SPDX-License-Identifier: BSD-3-Clause
"""Files that grow, and HDF5 files that survive a crash.

A writer is killed at any moment; the file then has the contents of the last flush, or of the one in
progress. UMMAP_TEST_LONG=1 kills it more often.
"""
import io
import os
import random
import signal
import subprocess
import sys
import time
import unittest
import zipfile

import numpy as np
import ummap
from folder import InFolder

try:
    import h5py
except ImportError:
    h5py = None

KILLS = 200 if os.environ.get("UMMAP_TEST_LONG") else 8


def change(file, step, seed):
    """Make change number `step` of a file, or of a dictionary that stands for one."""
    rng = np.random.default_rng([seed, step])
    name = f"d{rng.integers(6)}"
    data = rng.integers(0, 100, rng.integers(1, 3000))
    if isinstance(file, dict):
        if name not in file or step % 3 == 0:
            file[name] = data
        else:
            file[name] = np.concatenate([file[name], data])
        file["step"] = np.array(step)
        return
    if name in file and step % 3 == 0:
        del file[name]
    if name in file:
        rows = len(file[name])
        file[name].resize(rows + len(data), 0)
        file[name][rows:] = data
    else:
        file.create_dataset(name, data=data, maxshape=(None,), chunks=(512,),
                            compression="gzip" if step % 2 else None)
    if "step" in file:
        file["step"][()] = step
    else:
        file["step"] = step


def write(uri, log, seed, step):
    """Change a file, and note each change before and after its flush, until a kill."""
    with open(log, "a", buffering=1) as notes:
        while True:
            with ummap.h5py_file(uri, "a", libver="latest" if seed % 2 else None) as f:
                for i in range(5):
                    step += 1
                    change(f, step, seed)
                    if i < 4:
                        notes.write(f"begun {step}\n")
                        f.flush()
                        notes.write(f"flushed {step}\n")
                notes.write(f"begun {step}\n")
            notes.write(f"flushed {step}\n")


class InLoggedFolder(InFolder):
    def uri(self):
        return f"wal+posix:{self.path}"


class Growing(InLoggedFolder):
    def test_bytes(self):
        with ummap.open(self.uri(), "a", grows=True) as f:
            self.assertEqual((f.write(b"hello"), f.tell(), f.seek(0, 2)), (5, 5, 5))
            f.seek(300000)
            f.write(b"x")
            self.assertEqual(f.truncate(200000), 200000)
            f.seek(250000)
            f.write(b"y")
            self.assertEqual(f.seek(199000), 199000)
            self.assertEqual(f.read(), bytes(51000) + b"y")
            self.assertEqual(f.truncate(60000), 60000)
        self.assertEqual(os.path.getsize(self.path), 60000)
        self.assertEqual(os.listdir(self.folder.name), ["data"])
        with ummap.open(self.uri(), grows=True) as f:
            self.assertEqual(f.read(6), b"hello\0")
            self.assertEqual(f.seek(0, 2), 60000)
            with self.assertRaises(io.UnsupportedOperation):
                f.write(b"a")
        with ummap.open(self.path, "a", grows=True) as f:
            self.assertEqual(f.tell(), 60000)
            f.write(bytes(5000))
        self.assertEqual(os.path.getsize(self.path), 65000)

    def test_other_folder(self):
        # When the file is closed, its URI names another file, which keeps its length.
        folder = os.getcwd()
        self.addCleanup(os.chdir, folder)
        os.chdir(self.folder.name)
        other = os.path.join("elsewhere", "data")
        os.mkdir("elsewhere")
        with open(other, "wb") as f:
            f.write(bytes(100000))
        with ummap.open("wal+posix:data", "w+", grows=True) as f:
            f.write(bytes(50000))
            f.truncate(10)
            os.chdir("elsewhere")
        self.assertEqual(os.path.getsize("data"), 100000)

    def test_arguments(self):
        with self.assertRaisesRegex(ValueError, "mode must be one of"):
            ummap.open(self.path, "x", grows=True)
        with self.assertRaisesRegex(ValueError, "cannot be given"):
            ummap.open(self.path, "a", size=5, grows=True)
        with self.assertRaises(FileNotFoundError):
            ummap.open(self.path, "r+", grows=True)

    def test_zipfile(self):
        with ummap.open(self.uri(), "w+", grows=True) as f, zipfile.ZipFile(f, "w") as z:
            z.writestr("a", b"text" * 1000)
        with zipfile.ZipFile(self.path) as z:
            self.assertEqual(z.read("a"), b"text" * 1000)

    def test_failed_write(self):
        uri = self.uri()
        with ummap.open(uri, "w+", grows=True) as f:
            f.write(b"first" * 20000)
        f = ummap.open(f"error+{uri}?error.op=read&error.nth=1", "r+", grows=True)
        with self.assertRaises(OSError):
            f.write(b"a")
        with self.assertRaisesRegex(OSError, "an earlier write has failed"):
            f.flush()
        with self.assertRaises(OSError):
            f.close()
        with open(self.path, "rb") as f:
            self.assertEqual(f.read(10), b"firstfirst")


@unittest.skipIf(h5py is None, "h5py is not installed")
class HDF5(InLoggedFolder):
    def crash(self, program):
        """Run a program that has the file `f`, and that ends in a crash."""
        code = (f"import os, ummap, numpy as np\nf = ummap.h5py_file({self.uri()!r}, 'a')\n"
                f"{program}\nos.kill(os.getpid(), 9)\n")
        done = subprocess.run([sys.executable, "-c", code])
        self.assertEqual(done.returncode, -signal.SIGKILL)

    def test_modes(self):
        with ummap.h5py_file(self.uri(), "x") as f:
            f["a"] = np.arange(50000)
        self.assertEqual(os.listdir(self.folder.name), ["data"])
        with self.assertRaises(FileExistsError):
            ummap.h5py_file(self.uri(), "x")
        with h5py.File(self.path) as f:
            self.assertTrue((f["a"][:] == np.arange(50000)).all())
        with ummap.h5py_file(self.uri(), "r+") as f:
            del f["a"]
        self.assertLess(os.path.getsize(self.path), 10000)
        with ummap.h5py_file(self.uri(), "w") as f:
            f["b"] = 1
        with ummap.h5py_file(self.uri()) as f:
            self.assertEqual(list(f), ["b"])
        with ummap.open(self.uri(), "a", grows=True) as raw, h5py.File(raw, "a") as f:
            f["c"] = 2
        with self.assertRaisesRegex(ValueError, "mode must be one of"):
            ummap.h5py_file(self.uri(), "c")

    def test_crash(self):
        self.crash("f['a'] = np.arange(100); f.flush(); f['b'] = 1")
        with ummap.h5py_file(self.uri()) as f:
            self.assertEqual(list(f), ["a"])
        # The former contents last until the first flush.
        self.crash(f"f.close(); f = ummap.h5py_file({self.uri()!r}, 'w'); f['c'] = 1")
        with ummap.h5py_file(self.uri()) as f:
            self.assertEqual(list(f), ["a"])

    def test_flush_of_dataset(self):
        """A flush of one dataset makes no commit, because the rest of the file is in memory."""
        self.crash("f['a'] = 1; f.flush()\n"
                   "for i in range(100): f[f'n{i}'] = np.arange(100); f[f'n{i}'].flush()")
        with ummap.h5py_file(self.uri(), "r+") as f:
            self.assertEqual(list(f), ["a"])

    def test_end_of_process(self):
        """A file that is not closed is closed by h5py, or stays as it was at its last flush."""
        code = (f"import ummap\nf = ummap.h5py_file({self.uri()!r}, 'a')\nf['a'] = 1\nf.flush()\n"
                "f['b'] = 2\n")
        subprocess.run([sys.executable, "-c", code], check=True)
        with ummap.h5py_file(self.uri()) as f:
            self.assertIn(list(f), [["a"], ["a", "b"]])

    def test_commits(self):
        uri = self.uri() + "?wal.keep=4"
        code = (f"import os, ummap\nf = ummap.h5py_file({uri!r}, 'w')\n"
                "for i in range(4): f[f'd{i}'] = i; f.flush()\n"
                "os.kill(os.getpid(), 9)")
        subprocess.run([sys.executable, "-c", code])
        for commit in range(1, 5):
            with ummap.h5py_file(self.uri() + f"?wal.commit={commit}") as f:
                self.assertEqual(len(f), commit)

    def check_contents(self, seed, steps):
        with ummap.h5py_file(self.uri(), random.choice(["r", "r+"])) as f:
            step = int(f["step"][()])
            self.assertIn(step, steps)
            model = {}
            for i in range(1, step + 1):
                change(model, i, seed)
            self.assertEqual(set(f), set(model))
            for name, data in model.items():
                self.assertTrue(np.array_equal(f[name][()], data), (name, step, seed))
        return step

    def lines(self, path):
        if not os.path.exists(path):
            return []
        with open(path) as f:
            return f.readlines()

    def test_kills(self):
        notes = os.path.join(self.folder.name, "notes")
        seed = step = 0
        for kill in range(KILLS):
            if kill % 6 == 0:
                seed, step = random.randrange(10**6), 0
                for name in ("data", "data.wal", "notes"):
                    if os.path.exists(os.path.join(self.folder.name, name)):
                        os.unlink(os.path.join(self.folder.name, name))
            writer = subprocess.Popen([sys.executable, __file__, "write", self.uri(), notes,
                                       str(seed), str(step)])
            goal = f"begun {step + random.randrange(2, 12)}\n"
            while goal not in self.lines(notes):
                self.assertIsNone(writer.poll())
                time.sleep(0.001)
            time.sleep(random.choice([0, random.random() * 0.01]))
            writer.kill()
            writer.wait()
            last = {kind: int(number) for kind, number in map(str.split, self.lines(notes))}
            step = self.check_contents(seed, (last["flushed"], last["begun"]))


if __name__ == "__main__":
    if len(sys.argv) > 4:
        write(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    unittest.main()
