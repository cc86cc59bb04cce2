# SPDX-License-Identifier: BSD-3-Clause
"""``python3 -m ummap info|top`` runs ``ummap info`` or ``ummap top``, by default ``info``.

Both are inside the package, as libraries that export ``main``. Each contains a copy of libummap,
and the C library has no room for the thread-local variables of two. So this file runs a second
time, as a script, which does not import the package.
"""
import ctypes
import os
import signal
import sys
from pathlib import Path

USAGE = "usage: python3 -m ummap [info|top] [OPTION ...]"


def _library_paths() -> str:
    with open("/proc/self/maps") as maps:
        names = {line.split(None, 5)[-1].strip() for line in maps if "libummap.so" in line}
    return ", ".join(sorted(names))


def _print_python() -> None:
    import ummap

    numpy_version = "no: ummap.memmap and ummap.load are missing"
    if "memmap" in ummap.__all__:
        import numpy

        numpy_version = numpy.__version__
    rows = {"ummap": ummap.__version__, "library": _library_paths(),
            "python": sys.version.split()[0], "numpy": numpy_version}
    print("Python")
    for name, text in rows.items():
        print(f"  {name:26}  {text}")
    print(flush=True)


def _run(name: str, options: "list[str]") -> int:
    # The command names itself in its messages.
    title = f"python3 -m ummap {name}".encode()
    ctypes.c_char_p.in_dll(ctypes.CDLL(None), "program_invocation_short_name").value = title
    words = [title, *(option.encode() for option in options)]
    command = ctypes.CDLL(str(Path(__file__).with_name(f"_{name}.so")))
    return command.main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None))


def main() -> int:
    """Run a command, and return its exit status."""
    # The command ends by a signal as a program does.
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    name, *options = sys.argv[1:] or ["info"]
    if name not in ("info", "top"):
        print(USAGE, file=sys.stdout if name in ("-h", "--help") else sys.stderr)
        return 0 if name in ("-h", "--help") else 2
    if __package__:
        if name == "info" and not options:
            _print_python()
        os.execv(sys.executable, [sys.executable, "-I", __file__, name, *options])
    return _run(name, options)


if __name__ == "__main__":
    sys.exit(main())
