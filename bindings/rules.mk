# SPDX-License-Identifier: BSD-3-Clause
# The library in other languages: a package for Python, a module for Fortran. Each is built where its language is found; the
# header for C++, include/ummap.hpp, needs no building. `make PYTHON= FORTRAN=` builds as if neither was there.

# ---- Python: one that has numpy and what C modules need, the one of PATH first. Its stable ABI is complete since 3.11. ----

PYTHON := $(shell for python in python3 /usr/bin/python3; do command -v $$python > /dev/null && $$python -c \
	'import importlib.util, os, sys, sysconfig; sys.exit(sys.version_info < (3, 11) or not importlib.util.find_spec("numpy") \
	or not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2> /dev/null && command -v $$python && break; done)
# Sanitizers would have to be in the program that loads the module.
PYTHON_FILES = $(if $(PYTHON),$(if $(SANITIZE),,$(PY)/_ummap.abi3.so $(PY_SRC:bindings/python/ummap/%=$(PY)/%)))
PY = $B/python/ummap
PY_SRC = $(wildcard bindings/python/ummap/*.py bindings/python/ummap/*.pyi) bindings/python/ummap/py.typed
PY_OBJ = $(patsubst %.c,$B/%.o,$(wildcard bindings/python/ummap/*.c))
# Where Debian's python looks, or another one: below /usr the folder of packages, elsewhere that of what is installed by hand.
PYTHONDIR ?= $(if $(PYTHON),$(shell $(PYTHON) -c 'import sys, sysconfig; debian = "deb_system" in sysconfig.get_scheme_names(); \
	print("$(PREFIX)/lib/python3/dist-packages" if debian and "$(PREFIX)" == "/usr" else "$(PREFIX)/lib/python%d.%d/%s-packages" \
	% (*sys.version_info[:2], "dist" if debian else "site"))'))

$(PY_OBJ): override CFLAGS += -fPIC
$(PY_OBJ): override CPPFLAGS += -isystem $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')
LINK_PY = $(CC) -shared $(LDFLAGS) $(PY_OBJ) $B/lib/base/size.o -L$B -lummap
$(PY)/_ummap.abi3.so: $(PY_OBJ) $B/lib/base/size.o $(SO)
	@mkdir -p $(@D)
	$(LINK_PY) -Wl,-rpath,'$$ORIGIN/../..' -o $@
$(PY)/%: bindings/python/ummap/%
	@mkdir -p $(@D)
	cp $< $@

# The module finds the library from where it lies itself.
install-python: $(PYTHON_FILES)
	install -d $(DESTDIR)$(PYTHONDIR)/ummap
	install -m 644 $(PY_SRC) $(DESTDIR)$(PYTHONDIR)/ummap
	$(LINK_PY) -Wl,-rpath,'$$ORIGIN/$(shell realpath -ms --relative-to='$(PYTHONDIR)/ummap' '$(LIBDIR)')' \
		-o $(DESTDIR)$(PYTHONDIR)/ummap/_ummap.abi3.so

# ---- Fortran: what is the same for each kind, which the compiler names, and each rank is written by a script. ----

FORTRAN := $(shell command -v gfortran)
FORT = $B/fortran
FORT_LIB = $(if $(FORTRAN),$(FORT)/libummap-fortran.a)
# A module is for the compiler that made it; its source goes beside the headers, for others, which may not have all of its kinds.
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
	sed -e 's|@LIBDIR@|$(LIBDIR)|; s|@FMODDIR@|$(FMODDIR)|; s|@VERSION@|$(VERSION)|' bindings/fortran/ummap-fortran.pc.in \
		> $(DESTDIR)$(LIBDIR)/pkgconfig/ummap-fortran.pc

# ---- C++: an example. ----

$B/examples/%: examples/%.cpp include/ummap.hpp $(SO)
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 -g -Wall -Wextra -Iinclude $(SANITIZE) -o $@ $< $(LINK_SO)

bindings: $(PYTHON_FILES) $(FORT_LIB) $(if $(shell command -v $(CXX)),$B/examples/heat)
install: $(if $(PYTHON_FILES),install-python) $(if $(FORTRAN),install-fortran)

check-bindings: lib bindings
	tests/check-bindings $B

# For scripts that run it.
print-python:
	@echo $(PYTHON)

.PHONY: print-python bindings check-bindings install-python install-fortran
-include $(PY_OBJ:.o=.d)
