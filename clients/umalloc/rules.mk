# SPDX-License-Identifier: BSD-3-Clause
# libumalloc: a heap on a mapping, with a copy of jemalloc inside. It is built only if the archive
# of jemalloc is installed.

UMALLOC_SRC = $(wildcard clients/umalloc/*.c)
UMALLOC_OBJ = $(UMALLOC_SRC:%.c=$B/%.o)
UMALLOC_SO = $B/libumalloc.so.$(VERSION)
UMALLOC_LIBS = $(if $(JEMALLOC),$(UMALLOC_SO))

# The copy is one object, in which only the functions that libumalloc calls are visible, by names of
# its own. It starts with the first call, behind the library (heap.c), and does not read the options
# of the program's malloc.
JEMALLOC_CALLS = mallocx rallocx dallocx sallocx nallocx xallocx mallctl malloc_conf
$B/clients/umalloc/jemalloc.a.o: $(JEMALLOC)
	@mkdir -p $(@D)
	$(CC) -r -nostdlib -o $@.all -Wl,-u,mallocx $(JEMALLOC)
	$(OBJCOPY) $(foreach call,$(JEMALLOC_CALLS),--redefine-sym $(call)=umalloc_je_$(call)) \
		--redefine-sym secure_getenv=umalloc_je_getenv \
		--redefine-sym readlink=umalloc_je_readlink \
		$(JEMALLOC_CALLS:%=--keep-global-symbol=umalloc_je_%) \
		--remove-section=.init_array $@.all $@
	rm -f $@.all

# jemalloc's archive has thread-local variables of this model.
$(UMALLOC_OBJ): override CFLAGS += -fPIC -ftls-model=initial-exec
$(UMALLOC_OBJ): override CPPFLAGS += -Iclients

$(UMALLOC_SO): $(UMALLOC_OBJ) $B/clients/umalloc/jemalloc.a.o clients/umalloc/libumalloc.map $(SO)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,libumalloc.so.$(SOMAJOR) \
		-Wl,--version-script=clients/umalloc/libumalloc.map -Wl,-z,defs -o $@ \
		$(UMALLOC_OBJ) $B/clients/umalloc/jemalloc.a.o -L$B -lummap -lm $(DL) \
		-Wl,-rpath,'$$ORIGIN'
	ln -sf $(notdir $@) $B/libumalloc.so.$(SOMAJOR)
	ln -sf libumalloc.so.$(SOMAJOR) $B/libumalloc.so

UMALLOC_TESTS = $(if $(JEMALLOC),$(patsubst tests/umalloc/%.c,$B/tests/%,\
	$(wildcard tests/umalloc/prog_*.c)))
$(UMALLOC_TESTS): $(UMALLOC_SO)
$(UMALLOC_TESTS): LINK_SO = -L$B -lumalloc -lummap -Wl,-rpath,$(abspath $B)

CXX ?= g++
UMALLOC_EXAMPLES = $(if $(JEMALLOC),$(patsubst examples/umalloc/%.cpp,$B/examples/umalloc/%,\
	$(wildcard examples/umalloc/*.cpp)))
$B/examples/umalloc/%: examples/umalloc/%.cpp $(UMALLOC_SO)
	@mkdir -p $(@D)
	$(CXX) -std=c++17 -O2 -g -Wall -Wextra -Iinclude -MMD -MP $(SANITIZE) -o $@ $< $(LINK_SO)
$(UMALLOC_EXAMPLES): LINK_SO = -L$B -lumalloc -lummap -Wl,-rpath,$(abspath $B)

$B/bench/umalloc: $(UMALLOC_SO)
$B/bench/umalloc: LINK_SO = -L$B -lumalloc -lummap -Wl,-rpath,$(abspath $B)

umalloc: $(UMALLOC_LIBS) $(UMALLOC_EXAMPLES)

install: $(if $(JEMALLOC),install-umalloc)
install-umalloc: $(UMALLOC_SO)
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	install -m 755 $(UMALLOC_SO) $(DESTDIR)$(LIBDIR)
	ln -sf $(notdir $(UMALLOC_SO)) $(DESTDIR)$(LIBDIR)/libumalloc.so.$(SOMAJOR)
	ln -sf libumalloc.so.$(SOMAJOR) $(DESTDIR)$(LIBDIR)/libumalloc.so
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|' \
		-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@VERSION@|$(VERSION)|' \
		clients/umalloc/umalloc.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/umalloc.pc
.PHONY: umalloc install-umalloc
-include $(UMALLOC_EXAMPLES:=.d)
-include $(UMALLOC_OBJ:.o=.d)
