# SPDX-License-Identifier: BSD-3-Clause
# umrun: a command, and the library that it preloads; or the other one, which takes malloc's calls, too.

UMRUN_OBJ = $(patsubst %.c,$B/%.o,$(filter-out %/heap.c %/malloc.c,$(wildcard clients/umrun/*.c)))
UMRUN_HEAP_OBJ = $B/clients/umrun/heap.o $B/clients/umrun/malloc.o
UMRUN_ONE = $B/libumrun.so.$(VERSION)
UMRUN_SO = $(UMRUN_ONE) $(if $(JEMALLOC),$B/libumrun-heap.so.$(VERSION))
UMRUN = $B/commands/ummap-run

$(UMRUN_OBJ) $(UMRUN_HEAP_OBJ): override CFLAGS += -fPIC
$(UMRUN_OBJ) $(UMRUN_HEAP_OBJ): override CPPFLAGS += -Iclients
# It stands before the dynamic linker's own way to variables of threads, which allocates.
$(UMRUN_OBJ) $(UMRUN_HEAP_OBJ): override CFLAGS += -ftls-model=initial-exec
$(UMRUN_HEAP_OBJ): override CFLAGS += -fno-builtin-malloc
# Its headers say that these only fill memory; where that is, is asked before.
$B/clients/umrun/buffers.o: override CFLAGS += -Wno-maybe-uninitialized

$(UMRUN_ONE): $(UMRUN_OBJ) $(SO)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,libumrun.so.$(SOMAJOR) -Wl,-z,defs -o $@ $(UMRUN_OBJ) -L$B -lummap $(DL) -Wl,-rpath,'$$ORIGIN'
	ln -sf $(notdir $@) $B/libumrun.so.$(SOMAJOR)

$B/libumrun-heap.so.$(VERSION): $(UMRUN_OBJ) $(UMRUN_HEAP_OBJ) $(SO) $(UMALLOC_SO)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,libumrun-heap.so.$(SOMAJOR) -Wl,-z,defs -o $@ $(UMRUN_OBJ) $(UMRUN_HEAP_OBJ) \
		-L$B -lumalloc -lummap $(DL) -Wl,-rpath,'$$ORIGIN'
	ln -sf $(notdir $@) $B/libumrun-heap.so.$(SOMAJOR)

UMRUN_TOOL_OBJ = $B/tools/run/main.o $B/tools/run/program.o
$(UMRUN): $(UMRUN_TOOL_OBJ) $(COMMON) $(UMRUN_SO)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(COMMON) -L$B -lummap $(DL) -Wl,-rpath,'$$ORIGIN/..:$$ORIGIN/../../lib'

$B/tests/prog_umrun: | $B/umrun $(UMRUN)

umrun: $B/umrun $(UMRUN)

install: install-umrun
install-umrun: $(UMRUN_SO) $(UMRUN) $(MAIN)
	install -d $(DESTDIR)$(LIBDIR) $(DESTDIR)$(BINDIR) $(DESTDIR)$(COMMANDDIR)
	install -m 755 $(UMRUN_SO) $(DESTDIR)$(LIBDIR)
	for name in $(patsubst $B/%.so.$(VERSION),%,$(UMRUN_SO)); do \
		ln -sf $$name.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$$name.so.$(SOMAJOR) || exit; \
	done
	install -m 755 $(UMRUN) $(DESTDIR)$(COMMANDDIR)
	ln -sf ummap $(DESTDIR)$(BINDIR)/umrun
.PHONY: umrun install-umrun
-include $(UMRUN_OBJ:.o=.d) $(UMRUN_HEAP_OBJ:.o=.d) $(UMRUN_TOOL_OBJ:.o=.d)
