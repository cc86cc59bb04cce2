# SPDX-License-Identifier: BSD-3-Clause
# Libraries between programs and their MPI, one for each installed MPI. MPIS= builds none.

# MPICH 4.0 is the first version with the calls for large counts.
ifeq ($(origin MPIS),undefined)
MPIS := $(foreach m,openmpi mpich,$(if $(shell command -v mpicc.$m),$m))
ifneq ($(filter mpich,$(MPIS)),)
ifeq ($(shell echo '#include <mpi.h>' | mpicc.mpich -E -dM - 2> /dev/null | \
	awk '$$2 == "MPICH_NUMVERSION" && $$3 >= 40000000'),)
$(warning MPICH is older than 4.0: building without it)
MPIS := $(filter-out mpich,$(MPIS))
endif
endif
endif

# Folders, lowest layer first. A file openmpi.c or mpich.c is for this MPI only.
MPI_FOLDERS = pmpi transport mpiio window rma coarray iocache
MPI_SRC = $(filter-out $(patsubst %,\%/%.c,$(filter-out $1,openmpi mpich)),$(wildcard \
	$(MPI_FOLDERS:%=clients/%/*.c)))
# Each library also has the calls that install signal handlers; see lib/engine/signals.c.
MPI_OBJ = $(patsubst clients/%.c,$B/clients/$1/%.o,$(call MPI_SRC,$1)) $B/clients/$1/pmpi/shims.o \
	$B/clients/$1/signals.o
# Ranks that are I/O ranks do the work of an I/O process of `ummap ioranks`.
IO_SERVER_OBJ = $(patsubst %,$B/tools/ioranks/%.o,server operation) \
	$(patsubst %,$B/drivers/%.o,file file_lock file_open keys)
MPI_LIB = $B/libummap-mpi-$1.so.$(VERSION)
MAPREDUCE_OBJ = $(patsubst clients/%.c,$B/clients/$1/%.o,$(wildcard clients/mapreduce/*.c))
MAPREDUCE_LIB = $B/libummap-mapreduce-$1.so.$(VERSION)
OBJECT_MPI_OBJ = $(patsubst %,$B/clients/$1/object/%.o,collective shape)
OBJECT_MPI_LIB = $(if $(OBJECT),$B/libummap-object-$1.so.$(VERSION))
MPI_LIBS = $(foreach m,$(MPIS),$(call MPI_LIB,$m) $(call MAPREDUCE_LIB,$m) \
	$(call OBJECT_MPI_LIB,$m))
MPI_PROGRAMS = $(MPIS:%=$B/commands/ummap-wordcount.%) $(if $(MPIS),$B/commands/ummap-wordcount)

# The wrappers of MPI call the compiler CC.
MPICC_openmpi = OMPI_CC='$(CC)' mpicc.openmpi
MPICC_mpich = MPICH_CC='$(CC)' mpicc.mpich

# Tests in Fortran need gfortran, and tests of coarrays need OpenCoarrays.
COARRAYS = $(filter /%,$(shell gfortran -print-file-name=libcaf_$1.so 2> /dev/null))
MPI_FORTRAN = $(filter-out tests/mpi/coarray%,$(wildcard tests/mpi/*.f90)) \
	$(if $(call COARRAYS,$1),$(wildcard tests/mpi/coarray*.f90))
# The static libcaf, which `caf` of Debian links.
COARRAYS_STATIC = $(wildcard $(dir $(call COARRAYS,$1))open-coarrays/$1/lib/libcaf_$1.a)
COARRAY_TESTS = $(patsubst tests/mpi/%.f90,$B/tests/mpi/$1/%.static,$(if \
	$(call COARRAYS_STATIC,$1),$(wildcard tests/mpi/coarray_*.f90)))
COARRAY_EXAMPLES = $(patsubst examples/coarray/%.f90,$B/tests/mpi/$1/coarray_%,$(if \
	$(call COARRAYS,$1),$(wildcard examples/coarray/*.f90)))
# These tests look for the data of windows with the library of objects.
OBJECT_TESTS = objects objects_all objects_full
# This test needs a parallel HDF5 for the MPI; pkg-config has a package for each.
PARALLEL_HDF5 = $(if $(HDF5),$(shell pkg-config --exists hdf5-$1 2> /dev/null && echo hdf5-$1))
MPI_TESTS = $(patsubst tests/mpi/%.c,$B/tests/mpi/$1/%,$(filter-out \
	$(if $(OBJECT),,$(OBJECT_TESTS:%=tests/mpi/%.c)) \
	$(if $(call PARALLEL_HDF5,$1),,tests/mpi/cachedhdf5.c),$(wildcard tests/mpi/*.c))) \
	$(if $(shell command -v mpifort.$1 && command -v gfortran),$(patsubst \
	tests/mpi/%.f90,$B/tests/mpi/$1/%,$(call MPI_FORTRAN,$1)) \
		$(call COARRAY_TESTS,$1) $(call COARRAY_EXAMPLES,$1))

MAPREDUCE_TESTS = $(patsubst tests/mpi/%.c,$B/tests/mpi/$1/%,$(wildcard tests/mpi/mapreduce*.c))

MPI_EXAMPLES = $(patsubst examples/mpi/%.c,$B/examples/mpi/$1/%,$(wildcard examples/mpi/*.c)) \
	$(patsubst examples/mapreduce/%.c,$B/examples/mapreduce/$1/%,$(filter-out \
	%/wordcount.c,$(wildcard examples/mapreduce/*.c)))

# All entry points of the library are generated from one table.
SHIMS = clients/pmpi/shims.awk clients/pmpi/calls
$B/clients/pmpi/calls.h: $(SHIMS)
	@mkdir -p $(@D)
	awk -f $(SHIMS) > $@.new && mv $@.new $@

# $1: name of an MPI.
define MPI_RULES
MPI_CC_$1 = $(MPICC_$1) $$(CPPFLAGS) -Iclients -I$B/clients $$(CFLAGS) -fPIC -MMD -MP
$(call MPI_OBJ,$1): | $B/clients/pmpi/calls.h
MAPREDUCE =
OBJECT_LIB =
HDF5_LIB =
$B/clients/$1/%.o: clients/%.c
	@mkdir -p $$(@D)
	$$(MPI_CC_$1) -c -o $$@ $$<

$B/clients/$1/pmpi/shims.c: $(SHIMS)
	@mkdir -p $$(@D)
	awk -v mpi=$1 -f $(SHIMS) > $$@.new && mv $$@.new $$@

$B/clients/$1/pmpi/shims.o: $B/clients/$1/pmpi/shims.c
	$$(MPI_CC_$1) -c -o $$@ $$<

$B/clients/$1/signals.o: lib/engine/signals.c
	@mkdir -p $$(@D)
	$(MPICC_$1) $$(CPPFLAGS) $$(CFLAGS) -fPIC -MMD -MP -c -o $$@ $$<

$(call MPI_LIB,$1): $(call MPI_OBJ,$1) $(IO_SERVER_OBJ) clients/pmpi/libummap-mpi.map $(COMMON) \
		$$(SO)
	$(MPICC_$1) -shared $$(LDFLAGS) -Wl,-soname,libummap-mpi-$1.so.$$(SOMAJOR) \
		-Wl,--version-script=clients/pmpi/libummap-mpi.map -Wl,-z,defs -o $$@ \
		$(call MPI_OBJ,$1) $(IO_SERVER_OBJ) $(COMMON) \
		-L$B -lummap $(DL) \
		-Wl,-rpath,'$$$$ORIGIN'
	ln -sf $$(notdir $$@) $B/libummap-mpi-$1.so.$$(SOMAJOR)
	ln -sf libummap-mpi-$1.so.$$(SOMAJOR) $B/libummap-mpi-$1.so

$B/tests/mpi/$1/%: tests/mpi/%.c $(call MPI_LIB,$1) $(COMMON)
	@mkdir -p $$(@D)
	$(MPICC_$1) $$(CPPFLAGS) -Iclients $$(CFLAGS) -MMD -MP $$(LDFLAGS) -o $$@ $$< $(COMMON) \
		-L$B $$(MAPREDUCE) $$(OBJECT_LIB) -lummap-mpi-$1 -lummap $$(HDF5_LIB) $(DL) \
		-Wl,-rpath,$(abspath $B)
$B/tests/mpi/$1/cachedhdf5: override CPPFLAGS += $$(shell pkg-config --cflags-only-I hdf5-$1)
$B/tests/mpi/$1/cachedhdf5: HDF5_LIB = $$(shell pkg-config --libs hdf5-$1)

$B/examples/mpi/$1/%: examples/mpi/%.c $(call MPI_LIB,$1)
	@mkdir -p $$(@D)
	$(MPICC_$1) -Iinclude $$(CFLAGS) -MMD -MP $$(LDFLAGS) -o $$@ $$< -L$B -Wl,--no-as-needed \
		-lummap-mpi-$1 \
		-Wl,-rpath,$(abspath $B)

$B/tests/mpi/$1/%: tests/mpi/%.f90 $(call MPI_LIB,$1)
	@mkdir -p $$(@D)
	mpifort.$1 -O1 -g -Wall -Wno-tabs $$(LDFLAGS) -J$$(@D) -o $$@ $$< -L$B -Wl,--no-as-needed \
		-lummap-mpi-$1 -lummap -Wl,-rpath,$(abspath $B)

$B/tests/mpi/$1/hooks: override LDFLAGS += -no-pie

# Programs with coarrays are not linked with the library.
$B/tests/mpi/$1/coarray%: tests/mpi/coarray%.f90 $(call MPI_LIB,$1)
	@mkdir -p $$(@D)
	mpifort.$1 -fcoarray=lib -O1 -g -Wall -Wno-tabs $$(LDFLAGS) -Iinclude $$(CAF_MODULES) \
		-o $$@ $$< $$(CAF_LAYER) -lcaf_$1

# coarray_bad.sh also runs coarray_kill.
$B/tests/mpi/$1/coarray_bad: | $B/tests/mpi/$1/coarray_kill
$B/tests/mpi/$1/coarray_%.static: tests/mpi/coarray_%.f90 $(call MPI_LIB,$1)
	@mkdir -p $$(@D)
	mpifort.$1 -fcoarray=lib -O1 -g -Wall -Wno-tabs $$(LDFLAGS) -Iinclude $$(CAF_MODULES) \
		-o $$@ $$< $$(CAF_LAYER) \
		$(call COARRAYS_STATIC,$1)

$B/tests/mpi/$1/coarray_%: examples/coarray/%.f90 $(call MPI_LIB,$1)
	@mkdir -p $$(@D)
	mpifort.$1 -fcoarray=lib -O1 -g -Wall -Wno-tabs $$(LDFLAGS) -Iinclude $$(CAF_MODULES) \
		-o $$@ $$< $$(CAF_LAYER) -lcaf_$1

# Collective calls for objects; this library uses MPI, too.
$B/libummap-object-$1.so.$(VERSION): $(call OBJECT_MPI_OBJ,$1) \
	clients/object/libummap-object-mpi.map $B/libummap-object.so.$(VERSION)
	$(MPICC_$1) -shared $$(LDFLAGS) -Wl,-soname,libummap-object-$1.so.$$(SOMAJOR) \
		-Wl,--version-script=clients/object/libummap-object-mpi.map -Wl,-z,defs -o $$@ \
		$(call OBJECT_MPI_OBJ,$1) -L$B -lummap-object -lummap \
		-Wl,-rpath,'$$$$ORIGIN'
	ln -sf $$(notdir $$@) $B/libummap-object-$1.so.$$(SOMAJOR)
	ln -sf libummap-object-$1.so.$$(SOMAJOR) $B/libummap-object-$1.so

$(OBJECT_TESTS:%=$B/tests/mpi/$1/%): $B/libummap-object.so.$(VERSION) $(call OBJECT_MPI_LIB,$1)
$(OBJECT_TESTS:%=$B/tests/mpi/$1/%): OBJECT_LIB = -lummap-object-$1 -lummap-object

# These programs call the library. Each uses a module of the same name.
CAF_CALLING_$1 = $(addprefix $B/tests/mpi/$1/coarray_,calls calls.static many many.static recover \
	recover.static path path.static neighbour redistribute)
$$(CAF_CALLING_$1): CAF_LAYER = -L$B -Wl,--no-as-needed -lummap-mpi-$1 -Wl,-rpath,$(abspath $B)
$$(CAF_CALLING_$1): CAF_MODULES = -J$$(shell mkdir -p $$@.modules && echo $$@.modules)
$$(CAF_CALLING_$1): include/ummap_coarray.f90

$B/tests/mpi/$1/coarray: tests/mpi/coarray.f90 $(call MPI_LIB,$1)
	@mkdir -p $$(@D)
	mpifort.$1 -fcoarray=lib -O1 -g -Wall -Wno-tabs $$(LDFLAGS) -J$$(@D) -o $$@ $$< -lcaf_$1

$B/tests/mpi/$1/%.so: tests/mpi/preload/%.c
	@mkdir -p $$(@D)
	$(MPICC_$1) $$(CPPFLAGS) $$(filter-out -fsanitize%,$$(CFLAGS)) -fvisibility=default -fPIC \
		-shared -o $$@ $$<

# MapReduce is a separate library, which uses MPI.
$(call MAPREDUCE_LIB,$1): $(call MAPREDUCE_OBJ,$1) clients/mapreduce/libummap-mapreduce.map \
		$(COMMON) $$(SO)
	$(MPICC_$1) -shared $$(LDFLAGS) -Wl,-soname,libummap-mapreduce-$1.so.$$(SOMAJOR) \
		-Wl,--version-script=clients/mapreduce/libummap-mapreduce.map -Wl,-z,defs -o $$@ \
		$(call MAPREDUCE_OBJ,$1) $(COMMON) -L$B -lummap \
		-Wl,-rpath,'$$$$ORIGIN'
	ln -sf $$(notdir $$@) $B/libummap-mapreduce-$1.so.$$(SOMAJOR)
	ln -sf libummap-mapreduce-$1.so.$$(SOMAJOR) $B/libummap-mapreduce-$1.so

$(call MAPREDUCE_TESTS,$1): $(call MAPREDUCE_LIB,$1)
$(call MAPREDUCE_TESTS,$1): MAPREDUCE = -lummap-mapreduce-$1

# ummap-wordcount uses only the documented interface. It finds the libraries in the build and after
# the installation.
$B/commands/ummap-wordcount.$1: examples/mapreduce/wordcount.c $(call MAPREDUCE_LIB,$1) \
	$(call MPI_LIB,$1)
	@mkdir -p $$(@D)
	$(MPICC_$1) -Iinclude $$(CFLAGS) -MMD -MP -MF $B/wordcount.$1.d $$(LDFLAGS) -o $$@ $$< \
		-L$B -Wl,--no-as-needed \
		-lummap-mapreduce-$1 -lummap-mpi-$1 -Wl,-rpath,'$$$$ORIGIN/..:$$$$ORIGIN/../../lib'

$B/examples/mapreduce/$1/%: examples/mapreduce/%.c $(call MAPREDUCE_LIB,$1) $(call MPI_LIB,$1)
	@mkdir -p $$(@D)
	$(MPICC_$1) -Iinclude $$(CFLAGS) -MMD -MP $$(LDFLAGS) -o $$@ $$< -L$B -Wl,--no-as-needed \
		-lummap-mapreduce-$1 \
		-lummap-mpi-$1 -Wl,-rpath,$(abspath $B)

-include $(patsubst %.o,%.d,$(call MPI_OBJ,$1) $(call MAPREDUCE_OBJ,$1) $(call OBJECT_MPI_OBJ,$1)) \
	$B/wordcount.$1.d $(addsuffix .d,$(call MPI_TESTS,$1) $(call MPI_EXAMPLES,$1))
endef
$(foreach m,$(MPIS),$(eval $(call MPI_RULES,$m)))

# The name of the program ends with the name of the MPI. The name without an MPI is a link to the
# program of the first MPI.
$B/commands/ummap-wordcount: $B/commands/ummap-wordcount.$(firstword $(MPIS))
	ln -sf $(<F) $@

mpi: $(MPI_LIBS) $(MPI_PROGRAMS) $(foreach m,$(MPIS),$(call MPI_EXAMPLES,$m))
mpi-tests: mpi $(foreach m,$(MPIS),$(call MPI_TESTS,$m)) \
	$(foreach m,$(filter mpich,$(MPIS)),$B/tests/mpi/$m/finalize.so $B/tests/mpi/$m/yield.so) \
	$(foreach m,$(MPIS),$B/tests/mpi/$m/front.so $B/tests/mpi/$m/behind.so \
	$B/tests/mpi/$m/sleep.so $B/tests/mpi/$m/die.so)

install: $(MPIS:%=install-mpi-%)
$(MPIS:%=install-mpi-%): install-mpi-%: $B/libummap-mpi-%.so.$(VERSION) \
	$B/libummap-mapreduce-%.so.$(VERSION) $B/commands/ummap-wordcount.% \
		$(if $(OBJECT),$B/libummap-object-%.so.$(VERSION))
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(COMMANDDIR)
	for name in mpi mapreduce $(if $(OBJECT),object); do lib=libummap-$$name-$*.so; \
		install -m 755 $B/$$lib.$(VERSION) $(DESTDIR)$(LIBDIR) && \
		ln -sf $$lib.$(VERSION) $(DESTDIR)$(LIBDIR)/$$lib.$(SOMAJOR) && \
		ln -sf $$lib.$(SOMAJOR) $(DESTDIR)$(LIBDIR)/$$lib || exit; done
	for pc in pmpi/ummap-mpi mapreduce/ummap-mapreduce \
		$(if $(OBJECT),object/ummap-object-mpi); do name=$${pc##*/}; \
		sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|' \
		-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@VERSION@|$(VERSION)|' \
		-e 's|@MPI@|$*|g' clients/$$pc.pc.in > \
		$(DESTDIR)$(LIBDIR)/pkgconfig/$$(echo $$name | sed 's/object-mpi/object/')-$*.pc \
		|| exit; done
	install -m 755 $B/commands/ummap-wordcount.$* $(DESTDIR)$(COMMANDDIR)
	$(if $(filter $*,$(firstword $(MPIS))),ln -sf ummap-wordcount.$* \
		$(DESTDIR)$(COMMANDDIR)/ummap-wordcount)
.PHONY: mpi mpi-tests $(MPIS:%=install-mpi-%)
