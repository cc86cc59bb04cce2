# SPDX-License-Identifier: BSD-3-Clause
# libummap. `make` builds everything; see README.md for the rest.

VERSION = 0.1.0
SOMAJOR = 0
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
DOCDIR ?= $(PREFIX)/share/doc/libummap
DATADIR ?= $(PREFIX)/share/libummap
PLUGINDIR = $(LIBDIR)/ummap
B ?= build
CFLAGS ?= -O2 -g
CC ?= gcc

override CPPFLAGS += -D_GNU_SOURCE -DUMMAP_VERSION='"$(VERSION)"' -Iinclude
override CFLAGS += -std=gnu11 -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -pthread -fvisibility=hidden
# What the sanitizer targets add, for the library and the tests alike.
SANITIZE ?=
override CFLAGS += $(SANITIZE)
override LDFLAGS += $(SANITIZE) -pthread

HEADERS = $(wildcard include/*.h)
# The skeletons are for authors. A driver whose library is missing gives way to a file that says so. `make PMEM= URING=` builds as if both were.
PMEM := $(shell pkg-config --exists libpmem2 2> /dev/null && echo libpmem2)
URING := $(shell pkg-config --exists liburing 2> /dev/null && echo liburing)
LEFT_OUT = %/skeleton.c $(if $(PMEM),%/absent_pmem.c %/test_absent_pmem.c,drivers/pmem.c tests/test_pmem%.c) \
	$(if $(URING),%/absent_uring.c,drivers/uring.c tests/test_uring.c tests/test_uffd_uring.c)
LIB_SRC = $(filter-out $(LEFT_OUT),$(wildcard lib/*/*.c drivers/*.c policies/*.c))
LIBS += $(if $(PMEM)$(URING),$(shell pkg-config --libs $(PMEM) $(URING)))
LIB_OBJ = $(LIB_SRC:%.c=$B/%.o)
SONAME = libummap.so.$(SOMAJOR)
SO = $B/libummap.so.$(VERSION)
A = $B/libummap.a
# The same with the names of its rooms, for what looks inside: tests and tools.
ROOMS = $B/librooms.a

# tests/test_*.c: Criterion suites, linked with the archive so that rooms can be tested by themselves.
# tests/prog_*.c: programs of their own, linked with the shared library: exit 0 pass, 77 skip, else fail.
SUITES = $(patsubst tests/%.c,$B/tests/%,$(filter-out $(LEFT_OUT),$(wildcard tests/test_*.c)))
# Sanitizers want to come before what is preloaded.
PROGS = $(patsubst tests/%.c,$B/tests/%,$(filter-out $(if $(SANITIZE),tests/prog_preload.c),$(wildcard tests/prog_*.c)))
# Drivers and policies as files, for the suites: the skeletons, and those of tests/plugins.
PLUGINS = $(patsubst tests/plugins/%.c,$B/tests/plugins/ummap-%.so,$(wildcard tests/plugins/*.c)) \
	$B/tests/plugins/ummap-driver-skeleton.so $B/tests/plugins/ummap-policy-skeleton.so
BENCHES = $(patsubst bench/%.c,$B/bench/%,$(wildcard bench/*.c))
EXAMPLES = $(patsubst examples/%.c,$B/examples/%,$(wildcard examples/*.c))
LINK_SO = -L$B -Wl,--as-needed -lummap -Wl,--no-as-needed -Wl,-rpath,$(abspath $B)

# driver-conform has the library inside: it needs nothing beside it but the driver that it checks. The sanitizers
# have a malloc of their own.
CONFORM = $B/driver-conform
CONFORM_SRC = $(filter-out $(if $(SANITIZE),%/watch_malloc.c,%/watch_nothing.c),$(wildcard tools/driver-conform/*.c))
CONFORM_OBJ = $(CONFORM_SRC:%.c=$B/%.o)

# umtop reads the same table as the library. Without ncurses it has no screen.
NCURSES := $(shell pkg-config --exists ncurses 2> /dev/null && echo ncurses)
UMTOP = $B/umtop
UMTOP_SRC = $(filter-out $(if $(NCURSES),%/no_screen.c,%/screen.c),$(wildcard tools/umtop/*.c))
UMTOP_OBJ = $(UMTOP_SRC:%.c=$B/%.o)

# umwal reads logs as the filter wal+ does.
UMWAL = $B/umwal
UMWAL_OBJ = $B/tools/umwal/main.o

# umcache reads near files as the filter cache+ does.
UMCACHE = $B/umcache
UMCACHE_OBJ = $B/tools/umcache/main.o

all: lib mpi $(CONFORM) $(UMTOP) $(UMWAL) $(UMCACHE) $(EXAMPLES) $(BENCHES)
lib: $(SO) $A
tests: lib mpi-tests $(CONFORM) $(UMTOP) $(UMWAL) $(UMCACHE) $(SUITES) $(PROGS) $(PLUGINS) $B/examples/wordcount

# Under the sanitizers the library also checks itself.
NDEBUG = $(if $(SANITIZE),,-DNDEBUG)
$B/lib/%.o $B/drivers/%.o $B/policies/%.o: override CFLAGS += -fPIC $(NDEBUG)
$B/lib/%.o: override CPPFLAGS += -Ilib
$B/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# Where drivers and policies are installed is compiled in: another folder makes another library.
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

$(ROOMS): $(LIB_OBJ)
	rm -f $@
	$(AR) rcs $@ $^

# One object, so that the rooms find each other and programs see none of them: hidden names become local.
OBJCOPY ?= $(shell $(CC) -print-prog-name=objcopy)
$A: $(LIB_OBJ)
	rm -f $@
	$(CC) -r -nostdlib -o $B/libummap.o $^
	$(OBJCOPY) --localize-hidden $B/libummap.o
	$(AR) rcs $@ $B/libummap.o

$(CONFORM): $(CONFORM_OBJ) $(ROOMS)
	$(CC) $(LDFLAGS) -o $@ $(CONFORM_OBJ) $(ROOMS) $(LIBS)

$B/tools/umtop/%.o: override CPPFLAGS += -Ilib
$(UMTOP): $(UMTOP_OBJ) $(ROOMS)
	$(CC) $(LDFLAGS) -o $@ $(UMTOP_OBJ) $(ROOMS) $(if $(NCURSES),$(shell pkg-config --libs ncurses)) -lm

$(UMWAL): $(UMWAL_OBJ) $(ROOMS)
	$(CC) $(LDFLAGS) -o $@ $(UMWAL_OBJ) $(ROOMS) $(LIBS)

$(UMCACHE): $(UMCACHE_OBJ) $(ROOMS)
	$(CC) $(LDFLAGS) -o $@ $(UMCACHE_OBJ) $(ROOMS) $(LIBS)

$B/tests/prog_wal: | $(UMWAL)
$B/tests/prog_cache: | $(UMCACHE)
$B/tests/test_worker $B/tests/test_plugin: | $(PLUGINS)
$B/tests/test_%: tests/test_%.c $(ROOMS)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Ilib $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $< $(ROOMS) $(LIBS) -lcriterion

$B/tests/prog_umtop: | $(UMTOP)
$B/tests/prog_preload: LINK_SO =
$B/tests/prog_%: tests/prog_%.c $(SO)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Ilib $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $< $(LINK_SO)

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

$B/bench/%: bench/%.c $(SO)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $(filter %.c %.o,$^) $(LINK_SO) -lm -luring

$B/examples/%: examples/%.c $(SO)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $< $(LINK_SO)

include clients/rules.mk
include bench/field/rules.mk

# What CI and README call: everything that must hold. The checks that take a while are jobs of tests/run, beside the suites.
check: all tests check-layers check-calls
	tests/run $B --checks
# The same with all the rounds and sizes for which `make check` has no time.
check-long: all tests check-layers check-calls
	UMMAP_TEST_LONG=1 tests/run $B --checks

check-layers:
	tests/check-layers

# Of the MPIs that there are.
check-calls: mpi-tests
	tests/check-calls $B

check-man: lib
	tests/check-man $B

check-install: lib mpi $(CONFORM) $(UMTOP) $(UMWAL) $(UMCACHE)
	tests/check-install $B

check-plugins: lib mpi $(CONFORM) $(UMTOP) $(UMWAL) $(UMCACHE)
	tests/check-plugins $B

check-gdb: lib
	tests/check-gdb $B

# The whole suite again under the sanitizers, each in a build folder of its own.
check-asan:
	$(MAKE) B=build/asan SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer' tests
	tests/run build/asan
# Under TSan run the programs but two: Criterion does not start there, the hundreds of forked runs of prog_faults take
# it minutes, and what it keeps beside a million segments is more than memory. MPI is kept from watching memory: its hooks
# call TSan from threads that have ended. Barriers, of which -Wtsan warns, are for other processes, which TSan does not see.
TSAN_PROGS = $(filter-out prog_faults prog_segments,$(notdir $(PROGS)))
check-tsan:
	$(MAKE) B=build/tsan SANITIZE='-fsanitize=thread -Wno-tsan' SUITES= tests
	UCX_MEM_EVENTS=no OMPI_MCA_memory=^patcher tests/run build/tsan $(TSAN_PROGS) mpi
check-mutants:
	tests/check-mutants
# Needs compilers of other C libraries and processors.
check-ports:
	tests/check-ports $B
# Among pretended machines, what takes too long for `make check`.
check-mpi-machines: all tests
	tests/run $B mpi-machines

# Power lost at ten thousand requests.
check-cuts: tests
	UMMAP_TEST_CUTS=10000 tests/run $B test_wal_cuts test_cache_cuts

# What `make check` runs, and what it has no time for. All of it, whatever fails.
ALL = check check-long check-cuts check-asan check-tsan check-mutants check-ports check-mpi-machines
check-all:
	@failed=; for what in $(ALL); do $(MAKE) $$what || failed="$$failed $$what"; done; \
	echo "check-all: $(words $(ALL)) targets,$${failed:- none} failed"; [ -z "$$failed" ]

deps:
	tools/install-deps

bench: all
	bench/run $B

demo: deps
	$(MAKE) all
	examples/demo $B

install: lib $(CONFORM) $(UMTOP) $(UMWAL) $(UMCACHE)
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(INCLUDEDIR) \
		$(DESTDIR)$(BINDIR) $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(MANDIR)/man3 $(DESTDIR)$(MANDIR)/man7 \
		$(DESTDIR)$(PLUGINDIR) $(DESTDIR)$(DATADIR) $(DESTDIR)$(DOCDIR)/drivers $(DESTDIR)$(DOCDIR)/policies
	install -m 755 $(SO) $(DESTDIR)$(LIBDIR)
	ln -sf $(notdir $(SO)) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libummap.so
	install -m 644 $A $(DESTDIR)$(LIBDIR)
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@VERSION@|$(VERSION)|' \
		-e 's|@REQUIRES@|$(strip $(PMEM) $(URING))|' ummap.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/ummap.pc
	install -m 644 $(HEADERS) $(DESTDIR)$(INCLUDEDIR)
	install -m 755 $(CONFORM) $(UMTOP) $(UMWAL) $(UMCACHE) tools/ummap-trace $(DESTDIR)$(BINDIR)
	install -m 644 $(wildcard man/*.1) $(DESTDIR)$(MANDIR)/man1
	install -m 644 $(wildcard man/*.3) $(DESTDIR)$(MANDIR)/man3
	install -m 644 $(wildcard man/*.7) $(DESTDIR)$(MANDIR)/man7
	install -m 644 tools/ummap.gdb $(DESTDIR)$(DATADIR)
	install -m 644 LICENSE $(DESTDIR)$(DOCDIR)
	install -m 644 drivers/skeleton.c $(DESTDIR)$(DOCDIR)/drivers
	install -m 644 policies/skeleton.c $(DESTDIR)$(DOCDIR)/policies

dist:
	git archive --format=tar.gz --prefix=libummap-$(VERSION)/ -o libummap-$(VERSION).tar.gz HEAD

clean:
	rm -rf build

-include $(CONFORM_OBJ:.o=.d) $(UMTOP_OBJ:.o=.d) $(UMWAL_OBJ:.o=.d) $(UMCACHE_OBJ:.o=.d)
-include $(LIB_OBJ:.o=.d) $(SUITES:=.d) $(PROGS:=.d) $(PLUGINS:.so=.d) $(BENCHES:=.d) $(EXAMPLES:=.d)
.PHONY: all lib tests check check-long check-layers check-calls check-man check-install check-plugins check-gdb check-asan check-tsan check-mutants \
	check-ports check-mpi-machines check-cuts check-all \
	deps bench demo install dist clean
