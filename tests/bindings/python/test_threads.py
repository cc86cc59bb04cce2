# SPDX-License-Identifier: BSD-3-Clause
"""Tests of calls that wait for storage: other threads run, and Ctrl-C ends the call."""
import os
import signal
import subprocess
import sys
import threading
import unittest

import numpy as np
import ummap
from folder import InFolder

INTERRUPTED = """
import numpy as np, signal, sys, ummap
path, call = sys.argv[1:]
uri = f"error+posix:{path}?error.op=any&error.nth=1000000&error.delay=30000&direct=never"
a = ummap.memmap(uri, "f4", "r+", shape=1 << 22, segment=65536)
requests = "write_requests" if call == "a.flush()" else "read_requests"
if call == "a.flush()":
    a[:: 1024] = 1
    a.advise("dontneed", slice(0, 1))
before = a.stat()[requests]

def handler(*_):
    if a.stat()[requests] > before:
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, handler)
print("ready", flush=True)
try:
    eval(call)
    print("it ended by itself")
except KeyboardInterrupt:
    print("interrupted", a.stat()[requests] - before < 200)
    sys.stdout.flush()
    import os
    os._exit(0)
"""


def slow_uri(path, delay=20000):
    """Return a URI for the file at `path` whose requests take `delay` microseconds."""
    return (f"error+posix:{path}?error.op=any&error.nth=1000000&error.delay={delay}"
            "&direct=never")


class Threads(InFolder):
    def test_the_lock_is_free(self):
        self.make(64, 1024)
        slow = slow_uri(self.path)
        null = os.open("/dev/null", os.O_WRONLY)
        self.addCleanup(os.close, null)
        calls = {
            "read": lambda a: a.read(), "rows": lambda a: a[[5, 40, 60]],
            "prefetch": lambda a: a.prefetch(wait=True), "pin": lambda a: a.pin().__enter__(),
            "flush": lambda a: a.flush(), "buffer": lambda a: os.write(null, a[:9]),
        }
        interval = sys.getswitchinterval()
        # With a long interval, another thread runs only while a call has released the lock.
        sys.setswitchinterval(1000)
        try:
            for name, call in calls.items():
                with self.subTest(name):
                    self.assertTrue(any(self.runs_beside(slow, call) for _ in range(40)))
        finally:
            sys.setswitchinterval(interval)

    def runs_beside(self, uri, call):
        a = ummap.memmap(uri, "f4", "r+", shape=(64, 1024), segment=4096)
        a[3] = 5
        begin, seen = threading.Lock(), []
        begin.acquire()

        def other():
            begin.acquire()
            seen.append(True)

        thread = threading.Thread(target=other)
        thread.start()
        begin.release()
        call(a)
        ran = bool(seen)
        thread.join()
        return ran

    def test_ctrl_c(self):
        np.zeros(1 << 22, "f4").tofile(self.path)
        np.ones(1 << 22, "f4").tofile(self.path)
        for call in ("a.flush()", "a.read()", "a.prefetch(wait=True)", "a.pin().__enter__()"):
            with self.subTest(call):
                # On a busy machine the signal may come after the call. The test then tries again.
                for _ in range(10):
                    output = self.interrupt(call)
                    if output != "it ended by itself\n":
                        break
                self.assertEqual(output, "interrupted True\n")

    def interrupt(self, call):
        command = [sys.executable, "-c", INTERRUPTED, self.path, call]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            while process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(0.02)
                except subprocess.TimeoutExpired:
                    pass
            return process.stdout.read()

    def test_what_is_taken_while_it_closes(self):
        """A view that another thread makes while close writes must keep its memory."""
        for kind in ("mapping", "array"):
            with self.subTest(kind):
                self.make(64, 1024)
                slow = slow_uri(self.path)
                if kind == "mapping":
                    x = ummap.open(slow, "r+", segment=4096)
                else:
                    x = ummap.memmap(slow, "f4", "r+", segment=4096)
                for at in range(0, len(x), len(x) // 16):
                    x[at] = 1
                taken, ended = [], threading.Event()

                def other(x=x, taken=taken, ended=ended):
                    try:
                        while not x.stat()["write_requests"]:
                            pass
                        taken.append(memoryview(x) if kind == "mapping" else x[:8])
                    except ValueError:
                        pass  # The object was closed before.
                    # The references of this frame must go before the event.
                    del x
                    ended.set()

                thread = threading.Thread(target=other)
                thread.start()
                try:
                    x.close()
                except BufferError:
                    pass
                ended.wait()
                thread.join()
                for view in taken:
                    self.assertEqual(view[0], 1)
                del taken[:], view
                x.close()

    @staticmethod
    def watch(a, most, ended):
        while not ended.is_set():
            most[0] = max(most[0], a.stat()["pinned_bytes"])

    def test_what_is_pinned_for_a_copy(self):
        """Copies pin one segment at a time: threads with more pins could block each other."""
        data = self.make(64, 1024)
        slow = slow_uri(self.path, 5000)
        calls = {
            "read": lambda a: a.read(), "prefetch": lambda a: a.prefetch(wait=True),
            "write": lambda a: a._mmap.write(5, b"x" * 60000),
            "rows": lambda a: a.reshape(8, -1)[[5, 1, 3]],
        }
        for name, call in calls.items():
            with ummap.memmap(slow, "f4", "r+", shape=data.shape, segment=4096) as a:
                most, ended = [0], threading.Event()
                thread = threading.Thread(target=self.watch, args=(a, most, ended))
                thread.start()
                call(a)
                ended.set()
                thread.join()
                with self.subTest(name):
                    self.assertLessEqual(most[0], 4096)

    def test_many_threads(self):
        data = self.make(4000)
        a = ummap.memmap(self.path, "f4", "r", shape=data.shape, limit="256K", advice="random")
        wrong = []

        def work(seed):
            rows = np.random.default_rng(seed).integers(0, 4000, 500)
            if not np.array_equal(a[rows], data[rows]):
                wrong.append(seed)
            if not np.array_equal(a.read(rows[:50]), data[rows[:50]]):
                wrong.append(seed)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
