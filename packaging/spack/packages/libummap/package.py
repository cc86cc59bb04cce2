# SPDX-License-Identifier: BSD-3-Clause
# Builds this source tree: spack repo add packaging/spack && spack install libummap
import os

from spack.package import *


class Libummap(MakefilePackage):
    """Memory-mapped I/O in user space. Each program chooses its memory budget, its eviction
    policies and its storage drivers."""

    _tree = os.path.join(os.path.dirname(__file__), "..", "..", "..", "..")
    git = "file://" + os.path.realpath(_tree)

    license("BSD-3-Clause")

    version("main", branch="main")

    variant("uring", default=True, description="the driver uring, with liburing")
    variant("pmem", default=False, description="the driver pmem, with libpmem2")
    variant("http", default=True, description="the drivers http, https and s3, with libcurl")
    variant("screen", default=True, description="the screen of ummap top, with ncurses")
    variant("python", default=False, description="the package for Python, with numpy")
    variant("fortran", default=False, description="the module for Fortran")
    variant("mpi", default=False, description="MPI windows on storage")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("xxhash", type="build")
    depends_on("liburing", when="+uring")
    # The library loads hwloc when it needs it, from a folder of its run path.
    depends_on("hwloc@2:")
    depends_on("pmdk", when="+pmem")
    depends_on("curl@7.85:", when="+http")
    depends_on("openssl", when="+http")
    depends_on("ncurses", when="+screen")
    depends_on("python@3.9:", when="+python")
    depends_on("py-numpy", when="+python")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("mpi", when="+mpi")
    requires("^[virtuals=mpi] openmpi", "^[virtuals=mpi] mpich", policy="one_of", when="+mpi")

    def arguments(self):
        spec = self.spec
        arguments = ["PREFIX=" + self.prefix, "CC=" + spack_cc, "JEMALLOC=", "OBJECT=", "HDF5="]
        for variant, variable in (("+uring", "URING="), ("+pmem", "PMEM="), ("+http", "CURL="),
                                  ("+screen", "NCURSES="), ("+python", "PYTHON="),
                                  ("+fortran", "FORTRAN=")):
            if variant not in spec:
                arguments.append(variable)
        if "+mpi" in spec:
            mpi = spec["mpi"].name
            arguments += ["MPIS=" + mpi, f"MPICC_{mpi}={spec['mpi'].mpicc}"]
        else:
            arguments.append("MPIS=")
        return arguments

    @property
    def build_targets(self):
        return self.arguments() + ["lib", "http", "mpi", "bindings", "tools", "umrun",
                                    "completions"]

    @property
    def install_targets(self):
        return self.arguments() + ["install"]
