# SPDX-License-Identifier: BSD-3-Clause
# libummap. `make` builds everything; see README.md for the rest.

VERSION = 0.1.0
SOMAJOR = 0
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
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
LIB_SRC = $(wildcard lib/*.c drivers/*.c policies/*.c)
LIB_OBJ = $(LIB_SRC:%.c=$B/%.o)
SONAME = libummap.so.$(SOMAJOR)
SO = $B/libummap.so.$(VERSION)
A = $B/libummap.a

# tests/test_*.c: Criterion suites, linked with the archive so that rooms can be tested by themselves.
# tests/prog_*.c: programs of their own, linked with the shared library: exit 0 pass, 77 skip, else fail.
SUITES = $(patsubst tests/%.c,$B/tests/%,$(wildcard tests/test_*.c))
PROGS = $(patsubst tests/%.c,$B/tests/%,$(wildcard tests/prog_*.c))
BENCHES = $(patsubst bench/%.c,$B/bench/%,$(wildcard bench/*.c))
EXAMPLES = $(patsubst examples/%.c,$B/examples/%,$(wildcard examples/*.c))
LINK_SO = -L$B -Wl,--as-needed -lummap -Wl,--no-as-needed -Wl,-rpath,$(abspath $B)

# driver-conform has the library inside: it needs nothing beside it but the driver that it checks. The sanitizers
# have a malloc of their own.
CONFORM = $B/driver-conform
CONFORM_SRC = $(filter-out $(if $(SANITIZE),%/watch_malloc.c,%/watch_nothing.c),$(wildcard tools/driver-conform/*.c))
CONFORM_OBJ = $(CONFORM_SRC:%.c=$B/%.o)

all: lib $(CONFORM) $(EXAMPLES) $(BENCHES)
lib: $(SO) $A
tests: lib $(SUITES) $(PROGS) $B/examples/wordcount
tests: $B/tests/driver-conform

# Under the sanitizers the library also checks itself.
NDEBUG = $(if $(SANITIZE),,-DNDEBUG)
$B/lib/%.o $B/drivers/%.o $B/policies/%.o: override CFLAGS += -fPIC $(NDEBUG)
$B/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(SO): $(LIB_OBJ) lib/libummap.map
	$(CC) -shared $(LDFLAGS) -Wl,-soname,$(SONAME) -Wl,--version-script=lib/libummap.map \
		-Wl,-z,nodelete -Wl,-z,defs -o $@ $(LIB_OBJ) $(LIBS)
	ln -sf $(notdir $@) $B/$(SONAME)
	ln -sf $(SONAME) $B/libummap.so

$A: $(LIB_OBJ)
	rm -f $@
	$(AR) rcs $@ $^

$(CONFORM): $(CONFORM_OBJ) $A
	$(CC) $(LDFLAGS) -o $@ $(CONFORM_OBJ) $A $(LIBS)

# The same with the driver of tests/broken built in.
$B/tests/driver-conform: $(CONFORM_OBJ) $B/tests/broken/driver.o $B/tests/broken/built_in.o $A
	$(CC) $(LDFLAGS) -Wl,--wrap=plugin_driver -o $@ $^ $(LIBS)

$B/tests/test_%: tests/test_%.c $A
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Ilib $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $< $A -lcriterion

$B/tests/prog_%: tests/prog_%.c $(SO)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $< $(LINK_SO)

$B/bench/%: bench/%.c $(SO)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $< $(LINK_SO) -lm

$B/examples/%: examples/%.c $(SO)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $< $(LINK_SO)

# What CI and README call: everything that must hold.
check: all tests check-layers check-man check-install
	tests/run $B

check-layers:
	tests/check-layers

check-man: lib
	tests/check-man $B

check-install: lib $(CONFORM)
	tests/check-install $B

# The whole suite again under the sanitizers, each in a build folder of its own.
check-asan:
	$(MAKE) B=build/asan SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer' tests
	tests/run build/asan
# Under TSan run the programs but one: Criterion does not start there, and some thousands of forked runs of
# prog_faults take it an hour.
TSAN_PROGS = $(filter-out prog_faults,$(notdir $(PROGS)))
check-tsan:
	$(MAKE) B=build/tsan SANITIZE='-fsanitize=thread' SUITES= tests
	tests/run build/tsan $(TSAN_PROGS)
check-mutants:
	tests/check-mutants

deps:
	tools/install-deps

bench: all
	bench/run $B

demo: deps
	$(MAKE) all
	examples/demo $B

install: lib $(CONFORM)
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(INCLUDEDIR) \
		$(DESTDIR)$(BINDIR) $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(MANDIR)/man3 $(DESTDIR)$(MANDIR)/man7
	install -m 755 $(SO) $(DESTDIR)$(LIBDIR)
	ln -sf $(notdir $(SO)) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libummap.so
	install -m 644 $A $(DESTDIR)$(LIBDIR)
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@VERSION@|$(VERSION)|' \
		ummap.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/ummap.pc
	install -m 755 $(CONFORM) $(DESTDIR)$(BINDIR)
	install -m 644 $(HEADERS) $(DESTDIR)$(INCLUDEDIR)
	install -m 644 $(wildcard man/*.1) $(DESTDIR)$(MANDIR)/man1
	install -m 644 $(wildcard man/*.3) $(DESTDIR)$(MANDIR)/man3
	install -m 644 $(wildcard man/*.7) $(DESTDIR)$(MANDIR)/man7

dist:
	git archive --format=tar.gz --prefix=libummap-$(VERSION)/ -o libummap-$(VERSION).tar.gz HEAD

clean:
	rm -rf build

-include $(CONFORM_OBJ:.o=.d) $B/tests/broken/driver.d $B/tests/broken/built_in.d
-include $(LIB_OBJ:.o=.d) $(SUITES:=.d) $(PROGS:=.d) $(BENCHES:=.d) $(EXAMPLES:=.d)
.PHONY: all lib tests check check-layers check-man check-install check-asan check-tsan check-mutants \
	deps bench demo install dist clean
