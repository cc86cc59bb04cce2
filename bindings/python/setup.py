# SPDX-License-Identifier: BSD-3-Clause
"""Builds the package ummap with the library inside.

Run ``pip install --no-build-isolation ./bindings/python``. A source distribution contains what the
library is built from, in the folder libummap. With UMMAP_PORTABLE=yes in the environment, the wheel
runs on other machines (``make wheel``).
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
from setuptools.command.sdist import sdist

# setuptools expects relative paths, and the build may start in another folder.
os.chdir(Path(__file__).resolve().parent)
TOP = Path("libummap") if Path("libummap").exists() else Path("../..")
BUILD = TOP / "build"
PORTABLE = os.environ.get("UMMAP_PORTABLE", "")
VERSION = re.search(r"^VERSION = (.*)$", (TOP / "Makefile").read_text(), re.MULTILINE)[1]


class BuildWithLibrary(build_ext):
    """Builds the library by its Makefile, and copies it beside the module, which loads it there."""

    def run(self):
        jobs = f"-j{os.cpu_count()}"
        subprocess.run(["make", "-C", str(TOP), jobs, "lib", "py-commands",
                        f"PORTABLE={PORTABLE}"], check=True)
        super().run()
        package = Path(self.build_lib) / "ummap"
        if self.inplace:
            package = Path("ummap")
        for file in ("libummap.so.0", "python/ummap/_info.so", "python/ummap/_top.so"):
            shutil.copy(BUILD / file, package)


class PackLibrary(sdist):
    """Adds the sources of the library to the source distribution."""

    def make_release_tree(self, base_dir, files):
        # The list of files lies in the build folder, outside of this one.
        files = [file for file in files if ".." not in Path(file).parts]
        super().make_release_tree(base_dir, files)
        shutil.copy("ummap/_ummap.h", Path(base_dir, "ummap"))
        for name in ("Makefile", "LICENSE", "lib", "drivers", "policies", "include", "clients",
                     "bindings/rules.mk", "packaging/wheel", "tools", "bench/field/rules.mk"):
            target = Path(base_dir, "libummap", name)
            if (TOP / name).is_dir():
                shutil.copytree(TOP / name, target, dirs_exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(TOP / name, target)


# The stable ABI has all functions that the module needs since Python 3.11.
stable_abi = sys.version_info >= (3, 11)
options = {
    "build": {"build_base": str(BUILD / "pip")},
    "egg_info": {"egg_base": str(BUILD / "pip")},
    "bdist_wheel": {"py_limited_api": "cp311"} if stable_abi else {},
}
if PORTABLE:
    options["bdist_wheel"]["plat_name"] = f"manylinux_2_28_{os.uname().machine}"
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
    python_requires=">=3.9",
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
            py_limited_api=stable_abi,
        )
    ],
    cmdclass={"build_ext": BuildWithLibrary, "sdist": PackLibrary},
    options=options,
    zip_safe=False,
)
