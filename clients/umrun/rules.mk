# SPDX-License-Identifier: BSD-3-Clause
# umrun: a command and the libraries that it preloads: libumrun, or libumrun-heap,
# which also takes the calls of malloc(3).

UMRUN_HEAP_SRC = $(patsubst %,clients/umrun/%.c,heap inherit malloc mapped)
UMRUN_OBJ = $(patsubst %.c,$B/%.o,$(filter-out $(UMRUN_HEAP_SRC),$(wildcard clients/umrun/*.c))) \
	$B/clients/umrun/wrappers_base.o
UMRUN_HEAP_OBJ = $(UMRUN_HEAP_SRC:%.c=$B/%.o) $B/clients/umrun/wrappers_heap.o
UMRUN_ONE = $B/libumrun.so.$(VERSION)
UMRUN_SO = $(UMRUN_ONE) $(if $(JEMALLOC),$B/libumrun-heap.so.$(VERSION))
UMRUN = $B/commands/ummap-run

$(UMRUN_OBJ) $(UMRUN_HEAP_OBJ): override CFLAGS += -fPIC
$(UMRUN_OBJ) $(UMRUN_HEAP_OBJ): override CPPFLAGS += -Iclients -I$B/clients
# It stands before the dynamic linker's own way to variables of threads, which allocates.
$(UMRUN_OBJ) $(UMRUN_HEAP_OBJ): override CFLAGS += -ftls-model=initial-exec
$(UMRUN_HEAP_OBJ): override CFLAGS += -fno-builtin-malloc
# The headers say that some calls only fill memory, whose address wrappers compare before.
$B/clients/umrun/wrappers_base.o: override CFLAGS += -Wno-maybe-uninitialized \
	-Wno-unknown-warning-option

# All functions that programs call are made from one table.
UMRUN_TABLE = clients/umrun/wrappers.awk clients/umrun/wrappers
$B/clients/umrun/next_calls.h: $(UMRUN_TABLE)
	@mkdir -p $(@D)
	awk -f $(UMRUN_TABLE) > $@.new && mv $@.new $@
$B/clients/umrun/wrappers_base.c $B/clients/umrun/wrappers_heap.c: \
		$B/clients/umrun/wrappers_%.c: $(UMRUN_TABLE)
	@mkdir -p $(@D)
	awk -v part=$* -f $(UMRUN_TABLE) > $@.new && mv $@.new $@
$B/clients/umrun/wrappers_base.o $B/clients/umrun/wrappers_heap.o: %.o: %.c
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
$(UMRUN_OBJ) $(UMRUN_HEAP_OBJ): | $B/clients/umrun/next_calls.h

$(UMRUN_ONE): $(UMRUN_OBJ) $(COMMON) $(SO)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,libumrun.so.$(SOMAJOR) -Wl,-z,defs -o $@ \
		$(UMRUN_OBJ) $(COMMON) -L$B -lummap $(DL) -Wl,-rpath,'$$ORIGIN'
	ln -sf $(notdir $@) $B/libumrun.so.$(SOMAJOR)

$B/libumrun-heap.so.$(VERSION): $(UMRUN_OBJ) $(UMRUN_HEAP_OBJ) $(COMMON) $(SO) $(UMALLOC_SO)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,libumrun-heap.so.$(SOMAJOR) -Wl,-z,defs -o $@ \
		$(UMRUN_OBJ) $(UMRUN_HEAP_OBJ) $(COMMON) \
		-L$B -lumalloc -lummap $(DL) -Wl,-rpath,'$$ORIGIN'
	ln -sf $(notdir $@) $B/libumrun-heap.so.$(SOMAJOR)

UMRUN_TOOL_OBJ = $B/tools/run/main.o $B/tools/run/program.o
$(UMRUN): $(UMRUN_TOOL_OBJ) $(COMMON) $(UMRUN_SO)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(COMMON) -L$B -lummap $(DL) \
		-Wl,-rpath,'$$ORIGIN/..:$$ORIGIN/../../lib'

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
