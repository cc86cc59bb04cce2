# SPDX-License-Identifier: BSD-3-Clause
# libummap: `make` builds everything, and README.md describes the other targets.

VERSION = 0.1.0
SOMAJOR = 0
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
# The command `ummap` looks for its programs beside the folder where it is.
COMMANDDIR = $(abspath $(BINDIR)/../libexec/ummap)
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
DOCDIR ?= $(PREFIX)/share/doc/libummap
DATADIR ?= $(PREFIX)/share/libummap
COMPLETIONDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
PLUGINDIR = $(LIBDIR)/ummap
B ?= build
CFLAGS ?= -O2 -g
CC ?= gcc

override CPPFLAGS += -D_GNU_SOURCE -DUMMAP_VERSION='"$(VERSION)"' -Iinclude -Ilib
override CFLAGS += -std=gnu11 -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-pthread -fvisibility=hidden
# Options of the sanitizer targets, for the library and the tests.
SANITIZE ?=
override CFLAGS += $(SANITIZE)
override LDFLAGS += $(SANITIZE) -pthread

HEADERS = $(wildcard include/*.h include/*.hpp) include/ummap_coarray.f90
# The skeletons are for authors. A driver whose library is missing is replaced by a file that
# reports it. `make PMEM= URING=` builds as if both libraries were missing.
PMEM := $(shell pkg-config --exists libpmem2 2> /dev/null && echo libpmem2)
URING := $(shell pkg-config --exists 'liburing >= 2.3' 2> /dev/null && echo liburing)
# The archive of jemalloc, of which libumalloc contains a copy.
JEMALLOC := $(filter /%,$(shell $(CC) -print-file-name=libjemalloc_pic.a))
# Whether the libraries that libummap-object needs are there. The rule for all tests uses this.
OBJECT := $(if $(URING),$(and $(shell pkg-config --exists hdf5-serial libprotobuf-c 2> /dev/null \
	&& echo yes),$(shell command -v protoc-c)))
# Whether the libraries that the drivers http, https and s3 need are there. They are plug-ins.
CURL := $(shell pkg-config --exists 'libcurl >= 7.85' libcrypto 2> /dev/null && echo libcurl)
# The package of HDF5, for libummap-hdf5.
HDF5 := $(shell for name in hdf5-serial hdf5; do pkg-config --exists $$name 2> /dev/null && \
	echo $$name && break; done)
LEFT_OUT = drivers/http/%.c $(if $(CURL),,tests/http/%.c) $(if $(HDF5),,tests/hdf5/%.c) \
	$(if $(JEMALLOC),,tests/umalloc/%.c) $(if $(OBJECT),,tests/object/%.c) %/skeleton.c \
	%/absent.c $(if $(PMEM),%/test_absent_pmem.c,drivers/pmem.c tests/drivers/test_pmem%.c) \
	$(if $(URING),,drivers/uring.c %/test_uring.c %/test_uffd_uring.c)
ABSENT = $(if $(PMEM),,pmem) $(if $(URING),,uring)
LIB_SRC = $(filter-out $(LEFT_OUT),$(wildcard lib/*/*.c lib/*/*/*.c drivers/*.c drivers/*/*.c \
	policies/*.c))
# dlopen(3) is in a library of its own before glibc 2.34.
DL = -ldl
LIBS += $(if $(PMEM)$(URING),$(shell pkg-config --libs $(PMEM) $(URING))) $(DL)
ABSENT_OBJ = $(ABSENT:%=$B/drivers/absent_%.o)
LIB_OBJ = $(LIB_SRC:%.c=$B/%.o) $(ABSENT_OBJ)
# `make PORTABLE=yes lib` builds the library of a Python wheel: liburing is in it, libpmem2 is left
# out, and it runs with glibc 2.28, where threads and dlopen(3) are in libraries of their own.
PORTABLE ?=
ifneq ($(PORTABLE),)
PMEM =
LIBS = $(if $(URING),-l:liburing.a) -Wl,--push-state,--no-as-needed -l:libpthread.so.0 \
	-l:libdl.so.2 -Wl,--pop-state
$(LIB_OBJ) $B/export/%.o: override CPPFLAGS += -include packaging/wheel/old_glibc.h
endif
SONAME = libummap.so.$(SOMAJOR)
SO = $B/libummap.so.$(VERSION)
A = $B/libummap.a
# The code that the library shares with clients and tools. Each links what it uses of it.
COMMON = $B/libcommon.a
# The archive with the hidden names of the library, for tests and tools.
ROOMS = $B/librooms.a

# tests/*/test_*.c are Criterion suites, linked with the archive so that they can test hidden
# functions. tests/*/prog_*.c are programs, linked with the shared library: exit status 0 is a pass,
# 77 a skip, others a failure. Their names are unique, because all are built in one folder.
vpath test_%.c tests/unit tests/api tests/drivers tests/tools
vpath prog_%.c tests/engine tests/unit tests/api tests/drivers tests/tools tests/umalloc \
	tests/umrun tests/object tests/http tests/hdf5
SUITES = $(patsubst %.c,$B/tests/%,$(notdir $(filter-out $(LEFT_OUT),$(wildcard tests/*/test_*.c))))
# A sanitizer must be in the program that loads the library, and has replacements of its own.
PROGS = $(patsubst %.c,$B/tests/%,$(notdir $(filter-out $(if $(SANITIZE),%/prog_hooks.c \
	%/prog_object_numpy.c %/prog_preload.c %/prog_umrun.c) $(LEFT_OUT), \
	$(wildcard tests/*/prog_*.c))))
# Drivers and policies that the suites load: the skeletons, and those of tests/plugins.
PLUGINS = $(patsubst tests/plugins/%.c,$B/tests/plugins/ummap-%.so,$(wildcard tests/plugins/*.c)) \
	$B/tests/plugins/ummap-driver-skeleton.so $B/tests/plugins/ummap-policy-skeleton.so
# A program that tells tests/run about the kernel, and a preload that makes the kernel look older
# (check-nomove).
OLD_KERNEL = $B/tests/has_uffd $B/tests/no_move.so
# The benchmarks compare with io_uring.
BENCHES = $(if $(URING),$(patsubst bench/%.c,$B/bench/%,$(filter-out $(if \
	$(JEMALLOC),,bench/umalloc.c) $(if $(HDF5),,bench/hdf5.c),$(wildcard bench/*.c))))
EXAMPLES = $(patsubst examples/%.c,$B/examples/%,$(wildcard examples/*.c)) $(OPERATIONS)
# Operations of I/O processes.
ZLIB = $(shell pkg-config --libs zlib 2> /dev/null)
OPERATIONS = $(patsubst %,$B/examples/ioranks/%.so,minmax $(if $(ZLIB),deflate))
LINK_SO = -L$B -Wl,--as-needed -lummap -Wl,--no-as-needed -Wl,-rpath,$(abspath $B)

# The command `ummap` becomes one of the programs commands/ummap-NAME; some also have a name of
# their own.
MAIN = $B/ummap
MAIN_OBJ = $B/tools/ummap/main.o $B/tools/ummap/settings.o
C = $B/commands/ummap-

# The sanitizers have a malloc of their own. The library is linked in, so that only the checked
# driver is needed.
CONFORM = $Cconform
CONFORM_SRC = $(filter-out $(if $(SANITIZE),%/watch_malloc.c,%/watch_nothing.c),$(wildcard \
	tools/conform/*.c))
CONFORM_OBJ = $(CONFORM_SRC:%.c=$B/%.o)

# The command top reads the same table as the library. Without ncurses it has no screen.
NCURSES := $(if $(PORTABLE),,$(shell pkg-config --exists ncurses 2> /dev/null && echo ncurses))
TOP = $Ctop
TOP_SRC = $(filter-out $(if $(NCURSES),%/no_screen.c,%/screen.c),$(wildcard tools/top/*.c))
TOP_OBJ = $(TOP_SRC:%.c=$B/%.o)

# These commands read the files that the filters wal+, cow+, sum+ and cache+ keep beside stores,
# with the filters' code.
BESIDE = $Cwal $Ccow $Csum $Ccache $Coverlay
BESIDE_OBJ = $(BESIDE:$C%=$B/tools/%/main.o)

# These commands read files of the MPI library without MPI: those beside coarrays, and those of the
# MPI-IO cache.
CAF = $Ccaf
CAF_OBJ = $B/tools/caf/main.o $B/clients/coarray/earlier.o $B/clients/window/manifest.o
IOCACHE = $Ciocache
IOCACHE_OBJ = $B/tools/iocache/main.o $B/clients/iocache/head.o $B/clients/iocache/part.o
$(CAF_OBJ) $(IOCACHE_OBJ): override CPPFLAGS += -Iclients

CP = $Ccp
IORANKS = $Cioranks
IORANKS_OBJ = $(patsubst %,$B/tools/ioranks/%.o,main server operation)
INFO = $Cinfo
INFO_OBJ = $B/tools/info/main.o
$(INFO_OBJ) $(INFO_OBJ:$B/%=$B/export/%): $B/plugindir
$(INFO_OBJ) $(INFO_OBJ:$B/%=$B/export/%): override CPPFLAGS += -DUMMAP_PLUGIN_DIR='"$(PLUGINDIR)"' \
	-DMULTIARCH='"$(shell $(CC) -print-multiarch 2> /dev/null)"'

SCRIPTS = $Ctrace $Ctimeline $Ccafrun
COMMANDS = $(CONFORM) $(TOP) $(BESIDE) $(CAF) $(IOCACHE) $(CP) $(IORANKS) $(INFO) $(SCRIPTS)
TOOLS = $(MAIN) $B/umtop $(COMMANDS)

.DEFAULT_GOAL := all
all: lib http mpi umalloc umrun object hdf5 bindings tools completions $(EXAMPLES) \
	$(BENCHES)
lib: $(SO) $A
tools: $(TOOLS)
tests: lib mpi-tests umalloc umrun object hdf5 bindings tools $(SUITES) $(PROGS) $(PLUGINS) \
	$(OLD_KERNEL) \
	$B/examples/wordcount

# With sanitizers, assertions are compiled in.
NDEBUG = $(if $(SANITIZE),,-DNDEBUG)
$B/lib/%.o $B/drivers/%.o $B/policies/%.o: override CFLAGS += -fPIC $(NDEBUG)
$B/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# One source replaces all drivers whose library is missing.
$B/drivers/absent_pmem.o: override CPPFLAGS += -DKEYS=PMEM_KEYS -DLIBRARY='"libpmem2"'
$B/drivers/absent_uring.o: override CPPFLAGS += -DKEYS=URING_KEYS \
	-DLIBRARY='"liburing 2.3 or newer"'
$(ABSENT_OBJ): $B/drivers/absent_%.o: drivers/absent.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -DTABLE=ummap_driver_$* -DSCHEME='"$*"' $(CFLAGS) -MMD -MP -c -o $@ $<

# The folder of installed plug-ins is compiled in, so another folder makes another library.
$B/plugindir: FORCE
	@mkdir -p $(@D)
	@echo '$(PLUGINDIR)' | cmp -s - $@ || echo '$(PLUGINDIR)' > $@
$B/lib/io/plugin.o: $B/plugindir
$B/lib/io/plugin.o: override CPPFLAGS += -DUMMAP_PLUGIN_DIR='"$(PLUGINDIR)"'
FORCE:

$(SO): $(LIB_OBJ) lib/libummap.map
	$(CC) -shared $(LDFLAGS) -Wl,-soname,$(SONAME) -Wl,--version-script=lib/libummap.map \
		-Wl,-z,nodelete -Wl,-z,now -Wl,-z,defs -o $@ $(LIB_OBJ) $(LIBS)
	ln -sf $(notdir $@) $B/$(SONAME)
	ln -sf $(SONAME) $B/libummap.so

$(COMMON): $(patsubst %.c,$B/%.o,$(wildcard lib/common/*.c))
	rm -f $@
	$(AR) rcs $@ $^

$(ROOMS): $(LIB_OBJ)
	rm -f $@
	$(AR) rcs $@ $^

# The archive has one object, in which hidden names are local, so that programs do not see them.
OBJCOPY ?= $(shell $(CC) -print-prog-name=objcopy)
$A: $(LIB_OBJ)
	rm -f $@
	$(CC) -r -nostdlib -o $B/libummap.o $^
	$(OBJCOPY) --localize-hidden $B/libummap.o
	$(AR) rcs $@ $B/libummap.o

$(MAIN): $(MAIN_OBJ) $(COMMON)
	$(CC) $(LDFLAGS) -o $@ $(MAIN_OBJ) $(COMMON)

$B/umtop $B/umrun $B/umobject: $(MAIN)
	ln -sf ummap $@

$(CONFORM): $(CONFORM_OBJ)
$(TOP): $(TOP_OBJ)
TOP_LIBS = $(if $(NCURSES),$(shell pkg-config --libs ncurses)) -lm $(DL)
$(TOP): private LIBS = $(TOP_LIBS)
$(CAF): $(CAF_OBJ)
$(IOCACHE): $(IOCACHE_OBJ)
$(INFO): $(INFO_OBJ)
$(BESIDE): $C%: $B/tools/%/main.o
$(CP): $B/tools/cp/main.o
$(IORANKS): $(IORANKS_OBJ)
$(CONFORM) $(TOP) $(CAF) $(IOCACHE) $(CP) $(IORANKS) $(INFO) $(BESIDE): $(ROOMS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(ROOMS) $(LIBS)

# The options in the help of a script come from the table of options.
$(SCRIPTS): $C%: tools/% $B/make-settings
	@mkdir -p $(@D)
	$B/make-settings help $* | sed -e '/^@OPTIONS@$$/{r /dev/stdin' -e 'd}' $< > $@
	chmod 755 $@

$B/tests/prog_wal $B/tests/prog_cow $B/tests/prog_sum $B/tests/prog_cache \
$B/tests/prog_overlay: | $(MAIN) $(BESIDE)
$B/tests/prog_ioranks: | $(MAIN) $(IORANKS) $(OPERATIONS)
$B/tests/test_worker $B/tests/test_plugin $B/tests/prog_tiers: | $(PLUGINS)
$B/tests/test_manifest: override CPPFLAGS += -Iclients
# A test delays the messages of the engine uffd.
$B/tests/test_pmem_remap: override LDFLAGS += -Wl,--wrap=messages_next
$B/tests/test_%: test_%.c $(ROOMS)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests -I. $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $< $(ROOMS) $(LIBS) \
		-lcriterion

$B/tests/has_uffd: tests/kernels/has_uffd.c tests/uffd.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests $(CFLAGS) $(LDFLAGS) -o $@ $<
$B/tests/no_move.so: tests/kernels/no_move.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -fvisibility=default -fPIC -shared $(LDFLAGS) -o $@ $<

# These programs have one more engine: the table of the tests replaces that of the library.
$B/tests/prog_%_simulated: tests/engine/prog_%_simulated.c prog_%.c $(wildcard tests/engine/*) \
		tests/access.h $(ROOMS)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests -I. -DENGINES='"tests/engine/engines.def"' $(CFLAGS) $(LDFLAGS) \
		-o $@ $< tests/engine/simulated.c lib/engine/engines.c $(ROOMS) $(LIBS)
# For check-path, which builds a library that records the functions it enters.
$B/count_path: tests/count_path.c $(ROOMS)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -no-pie -o $@ $< $(ROOMS) $(LIBS)
$B/tests/prog_umtop: | $B/umtop $(TOP)
$B/tests/prog_command: | $(TOOLS) $B/umrun $(PLUGINS)
$B/tests/prog_preload: LINK_SO =
# This test writes headers of parts itself.
$B/tests/prog_cachehead: override CPPFLAGS += -Iclients
$B/tests/prog_%: prog_%.c $(SO)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $< $(LINK_SO) $(DL)

$B/tests/plugins/ummap-%.so: tests/plugins/%.c
	$(MAKE_PLUGIN)
$B/tests/plugins/ummap-driver-skeleton.so: drivers/skeleton.c
	$(MAKE_PLUGIN)
$B/tests/plugins/ummap-policy-skeleton.so: policies/skeleton.c
	$(MAKE_PLUGIN)
define MAKE_PLUGIN
@mkdir -p $(@D)
$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $(@:.so=.d) -fPIC -shared $(LDFLAGS) -o $@ $<
endef

# Code that the benchmarks share, and a part of the library that one of them simulates.
BENCH_KIT = $(patsubst %.c,$B/%.o,$(wildcard bench/kit/*.c)) \
	$B/lib/paging/residency/transfer_size.o
.SECONDARY: $(BENCH_KIT)
$B/bench/%.o: override CPPFLAGS += -Ibench
$B/bench/%: bench/%.c $(SO) $(BENCH_KIT)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Ibench $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $(filter %.c %.o,$^) \
		$(LINK_SO) -lm -luring

$B/examples/ioranks/%.so: examples/ioranks/%.c include/ummap-operation.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -shared $(LDFLAGS) -o $@ $< \
		$(if $(filter deflate,$*),$(ZLIB))

$B/examples/%: examples/%.c $(SO)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $< $(LINK_SO)

include drivers/http/rules.mk
include clients/rules.mk
include clients/umalloc/rules.mk
include clients/umrun/rules.mk
include bindings/rules.mk
include clients/object/rules.mk
include clients/hdf5/rules.mk
include bench/field/rules.mk

# Generated from the help of all commands that are built.
completions: $B/completions/ummap.bash
$B/completions/ummap.bash: tools/completions $(TOOLS) $(UMRUN) $(if $(OBJECT),$(OBJECT_TOOL)) \
	$(MPI_PROGRAMS)
	tools/completions $(MAIN) $(@D)

# All checks that must pass, called by CI. Those that take a while are jobs of tests/run, beside the
# suites.
check: all tests check-layers check-style check-calls check-settings
	tests/run $B --checks
# All checks with more rounds and larger sizes.
check-long: all tests check-layers check-style check-calls check-settings
	UMMAP_TEST_LONG=1 tests/run $B --checks

check-layers:
	tests/check-layers

# Line lengths and the beginnings of comments, in the folders that the script lists.
check-style:
	tests/check-style

# The checks cover each installed MPI.
check-calls: mpi-tests
	tests/check-calls $B

# The pages that list all settings have a part that make-settings prints from the parsers' tables.
SETTINGS_OBJ = $B/tools/make-settings.o $B/tools/ummap/settings.o
$(SETTINGS_OBJ): override CPPFLAGS += -I.
$B/make-settings: $(SETTINGS_OBJ) $(COMMON)
	$(CC) $(LDFLAGS) -o $@ $^
check-settings: $B/make-settings tools
	tests/check-settings $B
settings: $B/make-settings
	tests/check-settings $B --write

check-man: lib umalloc object
	tests/check-man $B

check-install: lib mpi umalloc umrun object tools
	tests/check-install $B

check-plugins: lib mpi tools
	tests/check-plugins $B

check-gdb: lib
	tests/check-gdb $B

# Runs real programs under umrun.
check-umrun: umrun
	tests/check-umrun $B

# Runs all suites with the sanitizers, each in a build folder of its own.
UBSAN = undefined -fno-sanitize-recover=undefined
ASAN = -fsanitize=address,$(UBSAN) -fno-omit-frame-pointer
check-asan:
	$(MAKE) B=build/asan SANITIZE='$(ASAN)' tests
	tests/run build/asan
# TSan runs all programs except seven: prog_faults takes minutes for its hundreds of forks,
# prog_http and prog_http_shared have children that start threads after the fork of a process with
# threads, which TSan cannot follow, prog_locked has threads whose stacks are too small for TSan,
# prog_object_rados uses librados, which has no sanitizer, prog_s3_gateway runs programs for minutes
# that also run by themselves, and prog_segments needs more memory than there is for its million
# segments.
# Criterion does not start under TSan. The memory hooks of MPI are off, because they call TSan from
# threads that have ended. Barriers, of which -Wtsan warns, are for other processes, which TSan does
# not see.
TSAN_PROGS = $(filter-out prog_faults prog_http prog_http_shared prog_locked prog_object_rados \
	prog_s3_gateway prog_segments,$(notdir $(PROGS)))
check-tsan:
	$(MAKE) B=build/tsan SANITIZE='-fsanitize=thread -Wno-tsan' SUITES= tests
	UCX_MEM_EVENTS=no OMPI_MCA_memory=^patcher tests/run build/tsan $(TSAN_PROGS) mpi
check-mutants:
	tests/check-mutants
# Searches the models of the segment protocol, if spin is installed.
check-model:
	tests/check-model $B
# Counts the functions on the path of a fault and of a sync.
check-path:
	tests/check-path $B
# Builds for other C libraries and processors, if their compilers are there.
check-ports:
	tests/ports/check-ports $B
# Runs the suites as if the kernel had no UFFDIO_MOVE, as before Linux 6.8.
check-nomove: tests
	LD_PRELOAD=$(abspath $B/tests/no_move.so) tests/run $B
# Runs suites on kernels before Linux 6.8, in a virtual machine.
check-kernels: all tests
	tests/check-kernels $B
# Runs programs about NUMA nodes in a virtual machine with several.
check-vm: all tests
	tests/check-vm $B
# Builds and tests on other releases of Debian, in trees from debootstrap.
check-distros:
	tests/check-distros
# Builds with each installed compiler of a list; a warning is an error.
check-compilers:
	tests/check-compilers
# Runs MPI programs on simulated machines, which takes too long for `make check`.
check-mpi-machines: all tests
	tests/run $B mpi-machines

# Builds RPMs, and checks the recipes of other packages and of images.
check-packaging:
	tests/check-packaging
# Builds the packages for Debian, and a program with them.
check-deb:
	tests/check-deb build/deb

# Simulates power loss at ten thousand requests.
check-cuts: tests
	UMMAP_TEST_TIMEOUT=3600 UMMAP_TEST_CUTS=10000 tests/run $B test_wal_cuts \
		test_cow_cuts test_cache_cuts test_sum_cuts test_stack_cuts
	$(if $(HDF5),UMMAP_TEST_TIMEOUT=3600 UMMAP_TEST_CUTS=2000 tests/run $B prog_hdf5_cuts)

# Runs all checks, also if some fail.
ALL = check check-long check-cuts check-asan check-tsan check-mutants check-model check-path \
	check-ports check-nomove check-kernels check-vm check-distros check-compilers \
	check-mpi-machines check-deb check-packaging tidy fuzz
check-all:
	@failed=; for what in $(ALL); do $(MAKE) $$what || failed="$$failed $$what"; done; \
	echo "check-all: $(words $(ALL)) targets,$${failed:- none} failed"; [ -z "$$failed" ]

# Runs each fuzzer of tests/fuzz for FUZZ_SECONDS. Needs clang.
FUZZ_SECONDS ?= 60
FUZZERS = $(patsubst tests/%.c,$B/%,$(filter-out $(if $(OBJECT),,%/object.c),$(wildcard \
	tests/fuzz/*.c)))
fuzz:
	@if ! command -v clang > /dev/null; then echo "fuzz: skipped, there is no clang"; else \
	$(MAKE) B=build/fuzz CC=clang MPIS= fuzzers \
		SANITIZE='-fsanitize=fuzzer-no-link,address,$(UBSAN)' && \
	tests/run-fuzz build/fuzz $(FUZZ_SECONDS); fi
fuzzers: $(FUZZERS)
$B/fuzz/registry: $(filter-out %/main.o,$(TOP_OBJ))
$B/fuzz/answer: $B/drivers/http/answer.o
$B/fuzz/object: $(filter-out %/chunk.o,$(OBJECT_OBJ))
$B/fuzz/object: private override CPPFLAGS += -Iclients -I$B/clients
$B/fuzz/object: private LIBS += $(shell pkg-config --libs hdf5-serial libprotobuf-c liburing 2> \
	/dev/null)
$B/fuzz/%: tests/fuzz/%.c $(ROOMS)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -I. $(CFLAGS) -MMD -MP -MF $@.d $(LDFLAGS) -fsanitize=fuzzer -o $@ $< \
		$(filter %.o,$^) $(ROOMS) \
		$(LIBS) $(if $(NCURSES),$(shell pkg-config --libs ncurses)) -lm

# For clangd and clang-tidy. Generated sources must exist.
compile_commands.json: all tests FORCE
	tools/compile-commands '$(CC)'

# Runs clang-tidy on all sources of installed files. Needs clang-tidy.
TIDY = $(filter-out %/mpich.c,$(LIB_SRC) $(CONFORM_SRC) $(TOP_SRC) $(BESIDE_OBJ:$B/%.o=%.c) \
	tools/ummap/main.c tools/info/main.c tools/caf/main.c tools/iocache/main.c \
	$(wildcard clients/*/*.c))
tidy: compile_commands.json
	@if ! command -v clang-tidy > /dev/null; then echo \
		"tidy: skipped, there is no clang-tidy"; else \
	echo $(TIDY) | xargs -P$$(nproc) -n4 clang-tidy -p . --quiet --warnings-as-errors='*' 2> \
	/dev/null && \
	echo "tidy: $(words $(TIDY)) files, no warnings"; fi

# Prints which part of the lines of each folder the suites and programs run.
coverage:
	$(MAKE) B=build/coverage CFLAGS='-O1 -g --coverage -fprofile-update=prefer-atomic' \
		LDFLAGS=--coverage tests
	find build/coverage -name '*.gcda' -delete
	-tests/run build/coverage
	tests/coverage build/coverage

deps:
	tools/install-deps

bench: all
	bench/run $B

# HTML of all manual pages and documents in build/docs. Draws the pictures of docs/ anew.
docs:
	docs/render $B/docs
# Links, index and length of the documents; runs the tutorial.
check-docs: all mpi-tests
	tests/check-docs $B
.PHONY: docs check-docs

demo: deps
	$(MAKE) all
	examples/demo $B

# The files for find_package of CMake use relative paths, so that an installed tree can be moved.
CMAKEDIR = $(LIBDIR)/cmake/ummap
CMAKE_INCLUDE = $(shell realpath -ms --relative-to='$(LIBDIR)' '$(INCLUDEDIR)')
install: lib tools completions
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(CMAKEDIR) $(DESTDIR)$(INCLUDEDIR) \
		$(DESTDIR)$(COMPLETIONDIR) $(DESTDIR)$(ZSHDIR) \
		$(DESTDIR)$(FISHDIR) \
		$(DESTDIR)$(BINDIR) $(DESTDIR)$(COMMANDDIR) $(DESTDIR)$(MANDIR)/man1 \
		$(DESTDIR)$(MANDIR)/man3 $(DESTDIR)$(MANDIR)/man7 \
		$(DESTDIR)$(PLUGINDIR) $(DESTDIR)$(DATADIR) $(DESTDIR)$(DOCDIR)/drivers \
		$(DESTDIR)$(DOCDIR)/policies
	install -m 755 $(SO) $(DESTDIR)$(LIBDIR)
	ln -sf $(notdir $(SO)) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libummap.so
	install -m 644 $A $(DESTDIR)$(LIBDIR)
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|' \
		-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@VERSION@|$(VERSION)|' \
		-e 's|@REQUIRES@|$(strip $(PMEM) $(URING))|' ummap.pc.in > \
		$(DESTDIR)$(LIBDIR)/pkgconfig/ummap.pc
	for file in ummap-config.cmake ummap-config-version.cmake; do \
		sed -e 's|@VERSION@|$(VERSION)|; s|@SOMAJOR@|$(SOMAJOR)|' \
			-e 's|@INCLUDE@|$(CMAKE_INCLUDE)|; s|@LIBS@|$(strip $(LIBS))|' \
			packaging/cmake/$$file.in > $(DESTDIR)$(CMAKEDIR)/$$file || exit; \
	done
	install -m 644 $(HEADERS) $(DESTDIR)$(INCLUDEDIR)
	install -m 755 $(MAIN) $(DESTDIR)$(BINDIR)
	ln -sf ummap $(DESTDIR)$(BINDIR)/umtop
	install -m 755 $(COMMANDS) $(DESTDIR)$(COMMANDDIR)
	install -m 644 $B/completions/ummap.bash $(DESTDIR)$(COMPLETIONDIR)/ummap
	install -m 644 $B/completions/_ummap $(DESTDIR)$(ZSHDIR)
	install -m 644 $B/completions/ummap.fish $(DESTDIR)$(FISHDIR)
	for name in umrun umtop umobject; do \
		ln -sf ummap $(DESTDIR)$(COMPLETIONDIR)/$$name && ln -sf ummap.fish \
		$(DESTDIR)$(FISHDIR)/$$name.fish || exit; \
	done
	install -m 644 $(wildcard man/*.1) $(DESTDIR)$(MANDIR)/man1
	install -m 644 $(wildcard man/*.3) $(DESTDIR)$(MANDIR)/man3
	install -m 644 $(wildcard man/*.7) $(DESTDIR)$(MANDIR)/man7
	install -m 644 tools/ummap.gdb packaging/magic $(DESTDIR)$(DATADIR)
	install -m 644 LICENSE $(DESTDIR)$(DOCDIR)
	install -m 644 drivers/skeleton.c $(DESTDIR)$(DOCDIR)/drivers
	install -m 644 policies/skeleton.c $(DESTDIR)$(DOCDIR)/policies
	for file in $$(find examples -type f -name '*.[cfhp]*' ! -name '*.pyc'); do \
		install -D -m 644 $$file $(DESTDIR)$(DOCDIR)/$$file || exit; done
	$(if $(DESTDIR),,@tools/update-linker-cache '$(LIBDIR)' $(SONAME))

# Installs into an empty folder, which needs everything built, and removes the files of the same
# names. Then removes the folders of the installation that are empty, except PREFIX, the folders
# directly in it, and those that the system may have made.
KEPT_FOLDERS = $(foreach folder,$(LIBDIR) $(INCLUDEDIR) $(MANDIR) $(PYTHONDIR), \
	! -path '.$(folder)')
uninstall:
	@there=$$(mktemp -d) && trap 'rm -rf "$$there"' EXIT && $(MAKE) -s DESTDIR="$$there" \
		install && \
	(cd "$$there" && find . ! -type d -printf '$(DESTDIR)/%P\0') | xargs -0 rm -f && \
	(cd "$$there" && find . -depth -type d \( -path '*ummap*' -o -path '.$(PREFIX)/*/*' \
		$(KEPT_FOLDERS) \) -printf '$(DESTDIR)/%P\0') | \
		xargs -0 rmdir --ignore-fail-on-non-empty

# Builds packages for Debian in build/deb.
deb:
	packaging/build-deb build/deb

dist:
	git archive --format=tar.gz --prefix=libummap-$(VERSION)/ -o libummap-$(VERSION).tar.gz HEAD

clean:
	rm -rf build

-include $(SETTINGS_OBJ:.o=.d) $(CONFORM_OBJ:.o=.d) $(MAIN_OBJ:.o=.d) $(TOP_OBJ:.o=.d) \
	$(BESIDE_OBJ:.o=.d) $(CAF_OBJ:.o=.d) $(IOCACHE_OBJ:.o=.d) $(INFO_OBJ:.o=.d) \
	$B/tools/cp/main.d
-include $(LIB_OBJ:.o=.d) $(FUZZERS:=.d) $(SUITES:=.d) $(PROGS:=.d) $(PLUGINS:.so=.d) \
	$(BENCHES:=.d) $(BENCH_KIT:.o=.d) $(EXAMPLES:=.d)
.PHONY: all lib tools completions tests check check-long check-layers check-style check-calls \
	check-settings settings check-man check-install check-plugins check-gdb check-umrun \
	check-asan check-tsan check-mutants check-model check-path \
	check-ports check-nomove check-kernels check-vm check-distros \
	check-mpi-machines check-cuts \
	check-deb check-packaging check-all \
	fuzz fuzzers tidy coverage deps bench demo install uninstall deb dist clean
