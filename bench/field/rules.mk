# SPDX-License-Identifier: BSD-3-Clause
# The benchmarks of bench/field. Those that need MPI are built if there is one, and slowfs if there
# is libfuse. With two MPIs, FIELD_MPI=mpich selects the second one.

FIELD_MPI ?= $(firstword $(MPIS))
FIELD_FUSE := $(shell pkg-config --exists fuse3 2> /dev/null && echo fuse3)
FIELD_RANKS = $(if $(FIELD_MPI),ior prk-stencil prk-transpose haccio dht mpi-rma mpi-sync \
	mapreduce rompio mapsearch randomwalk)
# Debian has MapReduce-MPI for OpenMPI.
FIELD_SANDIA = $(if $(filter openmpi,$(FIELD_MPI)),$(wildcard /usr/include/mrmpi/mapreduce.h))
FIELD_COUNT = $(addprefix $B/bench/field/,words.o mapreduce_library.o mapreduce_table.o \
	mapreduce_2s.o mapreduce_2s_checkpoint.o \
	$(if $(FIELD_SANDIA),mapreduce_sandia.o,absent_sandia.o))
# The skeleton application, beside parallel HDF5 where that is for the same MPI.
FIELD_OUTPUTS = $(if $(OBJECT),$(if $(FIELD_MPI),outputs))
FIELD_HDF5 := $(shell pkg-config --exists hdf5-$(FIELD_MPI) 2> /dev/null && echo hdf5-$(FIELD_MPI))
FIELD_OUTPUTS_HDF5 = $B/bench/field/$(if $(FIELD_HDF5),outputs,absent)_hdf5.o
FIELD = $(addprefix $B/bench/,mstream zipf $(FIELD_RANKS) $(FIELD_OUTPUTS) \
	$(if $(FIELD_FUSE),slowfs))
FIELD_COMMON = $(addprefix $B/bench/field/,alloc.o report.o) \
	$(addprefix $B/bench/kit/,common.o data.o memcg.o policy.o)
FIELD_MPI_COMMON = $(addprefix $B/bench/field/,job.o alloc_mpi.o)
FIELD_MPI_OBJ = $(patsubst %,$B/bench/field/%.o,$(FIELD_RANKS) $(FIELD_OUTPUTS)) \
	$(if $(FIELD_OUTPUTS),$(FIELD_OUTPUTS_HDF5)) $(FIELD_MPI_COMMON) \
	$(addprefix $B/bench/field/,api.o prk.o filepair.o) $(FIELD_COUNT)

all: $(FIELD)

# Loops over arrays are what they measure.
$B/bench/field/%.o: override CFLAGS += -O3

$B/bench/mstream: $B/bench/field/mstream.o $(FIELD_COMMON) $B/bench/field/absent_mpi.o $(SO)
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LINK_SO) -lm

$B/bench/zipf: $B/bench/field/zipf.o $B/bench/kit/common.o $B/bench/kit/data.o
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^)

$B/bench/slowfs: bench/field/slowfs.c $B/bench/kit/common.o $B/bench/kit/data.o
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Ibench $(CFLAGS) $(shell pkg-config --cflags $(FIELD_FUSE)) -MMD -MP \
		-MF $B/bench/field/slowfs.d \
		$(LDFLAGS) -o $@ $(filter %.c %.o,$^) $(shell pkg-config --libs $(FIELD_FUSE))

# Where libummap-object is.
FIELD_OBJECT = $(if $(OBJECT),$B/bench/objects)
all: $(FIELD_OBJECT)
$B/bench/objects: $B/bench/field/objects.o $B/bench/kit/common.o $B/bench/kit/data.o $(OBJECT_ALL)
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LINK_OBJECT) $(LINK_SO) -Wl,-rpath,'$$ORIGIN/..'

$B/bench/fault: $B/bench/field/report.o

# Which MPI they are for; another one makes them again.
$B/bench/mpi: FORCE
	@mkdir -p $(@D)
	@echo '$(FIELD_MPI)' | cmp -s - $@ || echo '$(FIELD_MPI)' > $@

$(filter-out %/mapreduce_sandia.o,$(FIELD_MPI_OBJ)): $B/%.o: %.c $B/bench/mpi
	@mkdir -p $(@D)
	$(MPICC_$(FIELD_MPI)) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$B/bench/field/%.o: bench/field/%.cc $B/bench/mpi
	@mkdir -p $(@D)
	OMPI_CXX='$(CXX)' mpicxx.openmpi $(CPPFLAGS) -DOMPI_SKIP_MPICXX -O3 -g -std=gnu++11 \
		-Wall -Wextra -pthread -MMD -MP -c -o $@ $<

$B/bench/ior $B/bench/haccio: $B/bench/field/api.o
$B/bench/prk-stencil $B/bench/prk-transpose: $B/bench/field/prk.o
$B/bench/rompio $B/bench/mapsearch $B/bench/randomwalk: $B/bench/field/filepair.o
# MapReduce-2S uses the hash table and the timeline of the library, which are not exported.
$B/bench/field/mapreduce_2s.o: override CPPFLAGS += -Iclients
$B/bench/mapreduce: $(FIELD_COUNT) $(call MAPREDUCE_OBJ,$(FIELD_MPI)) $(COMMON)
$B/bench/mapreduce: FIELD_LIBS = $(if $(FIELD_SANDIA),-lMapReduceMPI -lstdc++)
$B/bench/field/outputs_hdf5.o: override CPPFLAGS += \
	$(shell pkg-config --cflags-only-I $(FIELD_HDF5))
$B/bench/outputs: $(FIELD_OUTPUTS_HDF5) $(call OBJECT_MPI_LIB,$(FIELD_MPI))
$B/bench/outputs: FIELD_LIBS = -lummap-object-$(FIELD_MPI) -lummap-object \
	$(if $(FIELD_HDF5),$(shell pkg-config --libs $(FIELD_HDF5)))
$(patsubst %,$B/bench/%,$(FIELD_RANKS) $(FIELD_OUTPUTS)): $B/bench/%: $B/bench/field/%.o \
		$(FIELD_COMMON) $(FIELD_MPI_COMMON) $(call MPI_LIB,$(FIELD_MPI))
	$(MPICC_$(FIELD_MPI)) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) -L$B $(FIELD_LIBS) \
		-lummap-mpi-$(FIELD_MPI) $(LINK_SO) -lm

# Coarrays, where OpenCoarrays is. They are not linked with the library.
FIELD_CAF = $(if $(call COARRAYS,$(FIELD_MPI)), \
	$(addprefix $B/bench/,caf-micro caf-stencil caf-transpose caf-sync))
all: $(FIELD_CAF)
$(FIELD_CAF): $B/bench/%: bench/field/%.f90 bench/field/caf-kit.f90 $B/bench/mpi
	@mkdir -p $@.modules
	mpifort.$(FIELD_MPI) -fcoarray=lib -O3 -g -Wall -Wno-tabs -J$@.modules -o $@ \
		bench/field/caf-kit.f90 $< -lcaf_$(FIELD_MPI)

check-bench: $(FIELD_CAF) $(FIELD) $(FIELD_OBJECT) $B/bench/fault $(PLUGINS)
	tests/check-bench $B
.PHONY: check-bench

-include $(wildcard $B/bench/field/*.d)
