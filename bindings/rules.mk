# SPDX-License-Identifier: BSD-3-Clause
# The library in other languages: a package for Python and a module for Fortran. Each is built if
# its language is installed. `make PYTHON= FORTRAN=` builds neither. The header for C++,
# include/ummap.hpp, needs no build.

# ---- Python ----

# The first Python with numpy and Python.h.
PYTHON := $(shell for python in python3 /usr/bin/python3; do \
	command -v $$python > /dev/null && $$python -c \
	'import importlib.util, os, sys, sysconfig; \
	include = sysconfig.get_path("include") + "/Python.h"; \
	has_numpy = importlib.util.find_spec("numpy"); \
	sys.exit(sys.version_info < (3, 9) or not has_numpy or not os.path.exists(include))' \
	2> /dev/null && command -v $$python && break; done)
# A module with sanitizers would need a Python that has them, so it is not built.
PYTHON_FILES = $(if $(PYTHON),$(if $(SANITIZE),,$(PY)/_ummap.abi3.so $(PY_COPIES) $(PY_COMMANDS)))
PY = $B/python/ummap
PY_SRC = $(wildcard bindings/python/ummap/*.py bindings/python/ummap/*.pyi) \
	bindings/python/ummap/py.typed
PY_COPIES = $(PY_SRC:bindings/python/ummap/%=$(PY)/%)
# The commands that `python3 -m ummap` runs: libraries that export main.
PY_COMMANDS = $(PY)/_info.so $(PY)/_top.so
PY_OBJ = $(patsubst %.c,$B/%.o,$(wildcard bindings/python/ummap/*.c))
# The folder in which Python finds packages. Debian's Python has its own folder for packages of the
# distribution (PREFIX=/usr) and another one for packages that users install.
PYTHONDIR ?= $(if $(PYTHON),$(shell $(PYTHON) -c 'import sys, sysconfig; \
	debian = "deb_system" in sysconfig.get_scheme_names(); \
	packages = "dist-packages" if debian else "site-packages"; \
	version = "3" if debian and "$(PREFIX)" == "/usr" else "%d.%d" % sys.version_info[:2]; \
	print("$(PREFIX)/lib/python" + version + "/" + packages)'))
PYTHON_INCLUDE = $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')

$(PY_OBJ): override CFLAGS += -fPIC
$(PY_OBJ): override CPPFLAGS += -isystem $(PYTHON_INCLUDE)
LINK_PY = $(CC) -shared $(LDFLAGS) $(PY_OBJ) $(COMMON) -L$B -lummap
$(PY)/_ummap.abi3.so: $(PY_OBJ) $(COMMON) $(SO)
	@mkdir -p $(@D)
	$(LINK_PY) -Wl,-rpath,'$$ORIGIN/../..' -o $@
$B/export/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=default -MMD -MP -c -o $@ $<
$(PY)/_info.so: $(INFO_OBJ:$B/%=$B/export/%)
$(PY)/_top.so: $(TOP_OBJ:$B/%=$B/export/%)
$(PY)/_top.so: private LIBS = $(TOP_LIBS)
$(PY_COMMANDS): $(ROOMS)
	@mkdir -p $(@D)
	$(CC) -shared -Wl,-Bsymbolic,-z,defs $(LDFLAGS) -o $@ $(filter %.o,$^) $(ROOMS) $(LIBS)
py-commands: $(PY_COMMANDS)
$(PY)/%: bindings/python/ummap/%
	@mkdir -p $(@D)
	cp $< $@

# The module finds the library by a path relative to its own folder.
PYTHON_TO_LIB = $(shell realpath -ms --relative-to='$(PYTHONDIR)/ummap' '$(LIBDIR)')
install-python: $(PYTHON_FILES)
	install -d $(DESTDIR)$(PYTHONDIR)/ummap
	install -m 644 $(PY_SRC) $(PY_COMMANDS) $(DESTDIR)$(PYTHONDIR)/ummap
	$(LINK_PY) -Wl,-rpath,'$$ORIGIN/$(PYTHON_TO_LIB)' \
		-o $(DESTDIR)$(PYTHONDIR)/ummap/_ummap.abi3.so

# The source distribution, and a wheel made from it, for other machines.
BUILD_PACKAGE = $(PYTHON) -c 'import sys; from setuptools import build_meta; \
	getattr(build_meta, "build_" + sys.argv[1])("$(abspath $B/wheel)")'
WHEEL_SOURCE = $B/wheel/ummap-$(VERSION)
wheel:
	rm -rf $B/wheel
	mkdir -p $B/wheel
	cd bindings/python && $(BUILD_PACKAGE) sdist
	tar -xzf $(WHEEL_SOURCE).tar.gz -C $B/wheel
	cd $(WHEEL_SOURCE) && UMMAP_PORTABLE=yes $(BUILD_PACKAGE) wheel
	packaging/wheel/check $B/wheel/*.whl
	rm -r $(WHEEL_SOURCE)
	ls $B/wheel
.PHONY: wheel py-commands

# ---- Fortran ----

# A script writes the procedures of all ranks and of all kinds that the compiler has.

FORTRAN := $(shell command -v gfortran)
FORT = $B/fortran
FORT_LIB = $(if $(FORTRAN),$(FORT)/libummap-fortran.a)
# A module file works with one compiler only. The source of the module is installed beside the
# headers, for other compilers, with the kinds that all of them have.
FMODDIR ?= $(LIBDIR)/fortran/ummap

$(FORT)/kinds: bindings/fortran/kinds.f90
	@mkdir -p $(@D)
	$(FORTRAN) -o $@ $<
$(FORT)/ummap.f90: $(FORT)/kinds bindings/fortran/ummap.in bindings/fortran/pointers.awk
	$(FORT)/kinds > $(FORT)/kinds.txt
	awk -f bindings/fortran/pointers.awk $(FORT)/kinds.txt bindings/fortran/ummap.in > $@.new
	mv $@.new $@
$(FORT)/portable/ummap.f90: $(FORT)/ummap.f90
	@mkdir -p $(@D)
	grep -vE '1[06]$$' $(FORT)/kinds.txt > $(@D)/kinds.txt
	awk -f bindings/fortran/pointers.awk $(@D)/kinds.txt bindings/fortran/ummap.in > $@.new
	mv $@.new $@
$(FORT_LIB): $(FORT)/ummap.f90 $(FORT)/portable/ummap.f90
	$(FORTRAN) -O2 -g -Wall -Wno-tabs -fPIC -J$(@D) -c -o $(FORT)/ummap.o $<
	rm -f $@
	$(AR) rcs $@ $(FORT)/ummap.o

install-fortran: $(FORT_LIB)
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(FMODDIR) $(DESTDIR)$(INCLUDEDIR)
	install -m 644 $(FORT_LIB) $(DESTDIR)$(LIBDIR)
	install -m 644 $(FORT)/ummap.mod $(DESTDIR)$(FMODDIR)
	install -m 644 $(FORT)/portable/ummap.f90 $(DESTDIR)$(INCLUDEDIR)
	sed -e 's|@LIBDIR@|$(LIBDIR)|; s|@FMODDIR@|$(FMODDIR)|; s|@VERSION@|$(VERSION)|' \
		bindings/fortran/ummap-fortran.pc.in \
		> $(DESTDIR)$(LIBDIR)/pkgconfig/ummap-fortran.pc

# ---- C++ ----

$B/examples/%: examples/%.cpp include/ummap.hpp $(SO)
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 -g -Wall -Wextra -Iinclude $(SANITIZE) -o $@ $< $(LINK_SO)

bindings: $(PYTHON_FILES) $(FORT_LIB) $(if $(shell command -v $(CXX)),$B/examples/heat)
install: $(if $(PYTHON_FILES),install-python) $(if $(FORTRAN),install-fortran)

check-bindings: lib bindings
	tests/check-bindings $B

# Scripts ask for the path of Python by this target.
print-python:
	@echo $(PYTHON)

.PHONY: print-python bindings check-bindings install-python install-fortran
-include $(PY_OBJ:.o=.d) $(patsubst $B/%.o,$B/export/%.d,$(TOP_OBJ) $(INFO_OBJ))
