# SPDX-License-Identifier: BSD-3-Clause
# libummap-hdf5, the virtual file driver for HDF5. It is not built without HDF5. `make HDF5=` builds
# as if HDF5 were missing.

HDF5_OBJ = $(patsubst %.c,$B/%.o,$(wildcard clients/hdf5/*.c))
HDF5_SO = $B/libummap-hdf5.so.$(VERSION)
# HDF5 loads every library in the folder of its plug-ins, so this one has a folder of its own, two
# folders below that of the library.
HDF5_PLUGIN = $B/plugins/hdf5/libummap-hdf5.so
HDF5_ALL = $(if $(HDF5),$(HDF5_SO) $(HDF5_PLUGIN))
LINK_HDF5 = -L$B -lummap-hdf5 -lummap $(shell pkg-config --libs $(HDF5) 2> /dev/null)

$(HDF5_OBJ): override CFLAGS += -fPIC
$(HDF5_OBJ): override CPPFLAGS += -Iclients $(shell pkg-config --cflags $(HDF5) 2> /dev/null)

$(HDF5_SO): $(HDF5_OBJ) clients/hdf5/libummap-hdf5.map $(COMMON) $(SO)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,libummap-hdf5.so.$(SOMAJOR) -Wl,-z,defs \
		-Wl,--version-script=clients/hdf5/libummap-hdf5.map -o $@ $(HDF5_OBJ) $(COMMON) \
		-L$B -lummap $(shell pkg-config --libs $(HDF5)) \
		-Wl,-rpath,'$$ORIGIN:$$ORIGIN/../..'
	ln -sf $(notdir $@) $B/libummap-hdf5.so.$(SOMAJOR)
	ln -sf libummap-hdf5.so.$(SOMAJOR) $B/libummap-hdf5.so

$(HDF5_PLUGIN): $(HDF5_SO)
	@mkdir -p $(@D)
	ln -sf ../../libummap-hdf5.so.$(SOMAJOR) $@

HDF5_TESTS = $(if $(HDF5),$(patsubst tests/hdf5/%.c,$B/tests/%,$(wildcard tests/hdf5/prog_*.c)))
$(HDF5_TESTS): $(HDF5_ALL)
$(HDF5_TESTS): override CPPFLAGS += $(shell pkg-config --cflags $(HDF5) 2> /dev/null)
$(HDF5_TESTS): LINK_SO = $(LINK_HDF5) -Wl,-rpath,$(abspath $B)
# This test replaces the disk of the log, which the shared library does not show.
$(if $(HDF5),$B/tests/prog_hdf5_cuts): tests/hdf5/prog_hdf5_cuts.c $(HDF5_OBJ) $(ROOMS)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Itests -I. $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $(filter %.c %.o,$^) \
		$(ROOMS) $(shell pkg-config --libs $(HDF5)) $(LIBS)

HDF5_EXAMPLES = $(if $(HDF5),$(patsubst examples/hdf5/%.c,$B/examples/hdf5-%,$(wildcard \
	examples/hdf5/*.c)))
$(HDF5_EXAMPLES): $B/examples/hdf5-%: examples/hdf5/%.c $(HDF5_SO)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(shell pkg-config --cflags $(HDF5)) $(CFLAGS) -MMD -MP $(LDFLAGS) \
		-o $@ $< $(LINK_HDF5) -Wl,-rpath,'$$ORIGIN/..'
$(HDF5_TESTS): $(HDF5_EXAMPLES)

# The benchmark compares the driver with the default driver of HDF5.
$B/bench/hdf5: bench/hdf5.c $(HDF5_SO)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(shell pkg-config --cflags $(HDF5)) $(CFLAGS) -MMD -MP $(LDFLAGS) \
		-o $@ $< $(LINK_HDF5) -Wl,-rpath,'$$ORIGIN/..'

hdf5: $(HDF5_ALL) $(HDF5_EXAMPLES)

install: $(if $(HDF5),install-hdf5)
install-hdf5: $(HDF5_ALL)
	install -d $(addprefix $(DESTDIR),$(LIBDIR)/pkgconfig $(PLUGINDIR)/hdf5)
	install -m 755 $(HDF5_SO) $(DESTDIR)$(LIBDIR)
	ln -sf $(notdir $(HDF5_SO)) $(DESTDIR)$(LIBDIR)/libummap-hdf5.so.$(SOMAJOR)
	ln -sf libummap-hdf5.so.$(SOMAJOR) $(DESTDIR)$(LIBDIR)/libummap-hdf5.so
	ln -sf ../../libummap-hdf5.so.$(SOMAJOR) $(DESTDIR)$(PLUGINDIR)/hdf5/libummap-hdf5.so
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' \
		-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@HDF5@|$(HDF5)|' \
		clients/hdf5/ummap-hdf5.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/ummap-hdf5.pc
# Scripts ask for the flags of HDF5 by this target.
print-hdf5:
	@echo $(shell pkg-config --cflags $(HDF5) 2> /dev/null)
.PHONY: hdf5 install-hdf5 print-hdf5
-include $(HDF5_OBJ:.o=.d) $(HDF5_EXAMPLES:=.d)
