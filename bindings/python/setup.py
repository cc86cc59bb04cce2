# SPDX-License-Identifier: BSD-3-Clause
"""Builds the package ummap with the library of this source tree inside.

Run ``pip install --no-build-isolation ./bindings/python``.
"""
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# setuptools expects relative paths, and the build may start in another folder.
os.chdir(Path(__file__).resolve().parent)
TOP = Path("../..")
BUILD = TOP / "build"
VERSION = re.search(r"^VERSION = (.*)$", (TOP / "Makefile").read_text(), re.MULTILINE)[1]


class BuildWithLibrary(build_ext):
    """Builds the library by its Makefile, and copies it beside the module, which loads it there."""

    def run(self):
        subprocess.run(["make", "-C", str(TOP), "lib"], check=True)
        super().run()
        package = Path(self.build_lib) / "ummap"
        if self.inplace:
            package = Path("ummap")
        shutil.copy(BUILD / "libummap.so.0", package / "libummap.so.0")


has_wheel = find_spec("setuptools.command.bdist_wheel") or find_spec("wheel")
if {"dist_info", "bdist_wheel"} & set(sys.argv) and not has_wheel:
    sys.exit("setup.py: cannot build a wheel: setuptools is older than 70.1, and the package wheel "
             "is missing. Try: pip install wheel")
BUILD.joinpath("pip").mkdir(parents=True, exist_ok=True)
setup(
    name="ummap",
    version=VERSION,
    description="Files larger than memory as NumPy arrays, with a memory limit (libummap)",
    license="BSD-3-Clause",
    python_requires=">=3.11",
    install_requires=[],
    extras_require={"memmap": ["numpy"]},
    packages=["ummap"],
    package_data={"ummap": ["py.typed", "*.pyi"]},
    ext_modules=[
        Extension(
            "ummap._ummap",
            sources=["ummap/module.c", "ummap/mapping.c", "ummap/array.c",
                     str(TOP / "lib/common/size.c")],
            depends=["ummap/_ummap.h"],
            include_dirs=[str(TOP / "include"), str(TOP / "lib")],
            define_macros=[("_GNU_SOURCE", None), ("UMMAP_VERSION", f'"{VERSION}"')],
            extra_compile_args=["-std=gnu11", "-fvisibility=hidden"],
            library_dirs=[str(BUILD)],
            libraries=["ummap"],
            extra_link_args=["-Wl,-rpath,$ORIGIN"],
            py_limited_api=True,
        )
    ],
    cmdclass={"build_ext": BuildWithLibrary},
    options={
        "bdist_wheel": {"py_limited_api": "cp311"},
        "build": {"build_base": str(BUILD / "pip")},
        "egg_info": {"egg_base": str(BUILD / "pip")},
    },
    zip_safe=False,
)
