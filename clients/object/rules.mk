# SPDX-License-Identifier: BSD-3-Clause
# libummap-object: arrays as objects, their command, the driver `object`, and the back end for RADOS, where librados is. Without HDF5,
# protobuf-c and liburing it is not built.

OBJECT_SRC = $(filter-out %/driver.c %/together.c clients/object/rados%,$(wildcard clients/object/*.c))
OBJECT_OBJ = $(OBJECT_SRC:%.c=$B/%.o) $B/clients/object/object.pb-c.o
OBJECT_SO = $B/libummap-object.so.$(VERSION)
OBJECT_DRIVER = $B/plugins/ummap-driver-object.so
OBJECT_TOOL = $B/commands/ummap-object
# The back end for RADOS is a file that is loaded: the library needs no librados.
RADOS := $(if $(OBJECT),$(wildcard /usr/include/rados/librados.h))
RADOS_OBJ = $(patsubst %.c,$B/%.o,$(wildcard clients/object/rados*.c))
OBJECT_RADOS = $(if $(RADOS),$B/plugins/ummap-object-rados.so)
OBJECT_LIBS = -L$B -lummap-object -lummap
OBJECT_ALL = $(if $(OBJECT),$(OBJECT_SO) $(OBJECT_DRIVER) $(OBJECT_RADOS) $(OBJECT_TOOL) $B/umobject)

$(OBJECT_OBJ) $(RADOS_OBJ) $B/clients/object/driver.o: override CFLAGS += -fPIC
$(OBJECT_OBJ) $(RADOS_OBJ) $B/clients/object/driver.o: override CPPFLAGS += -Iclients -I$B/clients
$B/clients/object/plugin.o: override CPPFLAGS += -DUMMAP_PLUGIN_DIR='"$(PLUGINDIR)"'
$B/clients/object/plugin.o: $B/plugindir
$B/clients/object/hdf5.o $B/tools/object/formats_hdf5.o: override CPPFLAGS += $(shell pkg-config --cflags hdf5-serial 2> /dev/null)
$(OBJECT_OBJ): | $B/clients/object/object.pb-c.h

# The messages, from their schema.
$B/clients/object/object.pb-c.h $B/clients/object/object.pb-c.c &: clients/object/object.proto
	@mkdir -p $(@D)
	protoc-c --c_out=$B/clients -Iclients clients/object/object.proto
$B/clients/object/object.pb-c.o: $B/clients/object/object.pb-c.c
	$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

$(OBJECT_SO): $(OBJECT_OBJ) clients/object/libummap-object.map $(COMMON) $(SO)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,libummap-object.so.$(SOMAJOR) -Wl,--version-script=clients/object/libummap-object.map \
		-Wl,-z,defs -o $@ $(OBJECT_OBJ) $(COMMON) -L$B -lummap \
		$(shell pkg-config --libs hdf5-serial libprotobuf-c liburing) $(DL) -Wl,-rpath,'$$ORIGIN'
	ln -sf $(notdir $@) $B/libummap-object.so.$(SOMAJOR)
	ln -sf libummap-object.so.$(SOMAJOR) $B/libummap-object.so

$(OBJECT_DRIVER): $B/clients/object/driver.o $(COMMON) $(OBJECT_SO)
	@mkdir -p $(@D)
	$(CC) -shared $(LDFLAGS) -Wl,-z,defs -o $@ $< $(COMMON) -L$B -lummap-object -Wl,-rpath,'$$ORIGIN/..:$$ORIGIN'

$B/plugins/ummap-object-rados.so: $(RADOS_OBJ) $(COMMON) $(OBJECT_SO)
	@mkdir -p $(@D)
	$(CC) -shared $(LDFLAGS) -Wl,-z,defs -o $@ $(RADOS_OBJ) $(COMMON) $(OBJECT_LIBS) -lrados -Wl,-rpath,'$$ORIGIN/..:$$ORIGIN'

OBJECT_TOOL_OBJ = $(patsubst %.c,$B/%.o,$(wildcard tools/object/*.c))
$(OBJECT_TOOL_OBJ): override CPPFLAGS += -Iclients
$(OBJECT_TOOL): $(OBJECT_TOOL_OBJ) $(COMMON) $(OBJECT_SO)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $(OBJECT_TOOL_OBJ) $(COMMON) -L$B -lummap-object $(shell pkg-config --libs hdf5-serial) \
		-Wl,-rpath,'$$ORIGIN/..:$$ORIGIN/../../lib'

OBJECT_TESTS = $(if $(OBJECT),$(patsubst tests/object/%.c,$B/tests/%,$(wildcard tests/object/prog_*.c)))
$(OBJECT_TESTS): $(OBJECT_ALL) $B/tests/plugins/ummap-object-memory.so
$(OBJECT_TESTS): override CPPFLAGS += -DOBJECT_PLUGINS='"$(abspath $B)/plugins"' -DOBJECT_TEST_PLUGINS='"$(abspath $B)/tests/plugins"' \
	-DOBJECT_TESTS='"$(abspath tests/object)"'
# A back end of the tests', for containers in memory.
$B/tests/plugins/ummap-object-memory.so: tests/object/memory.c $(OBJECT_SO)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Iclients $(CFLAGS) -fPIC -MMD -MP -MF $(@:.so=.d) -shared $(LDFLAGS) -Wl,-z,defs -o $@ $< $(OBJECT_LIBS) \
		-Wl,-rpath,'$$ORIGIN/../..'
$(OBJECT_TESTS): LINK_SO = $(OBJECT_LIBS) -Wl,-rpath,'$$ORIGIN/..'

OBJECT_EXAMPLES = $(if $(OBJECT),$(patsubst examples/object/%.c,$B/examples/object-%,$(wildcard examples/object/*.c)))
$(OBJECT_EXAMPLES): $B/examples/object-%: examples/object/%.c $(OBJECT_SO)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $< -L$B -lummap-object -Wl,-rpath,'$$ORIGIN/..'
$(OBJECT_TESTS): $(OBJECT_EXAMPLES)

object: $(OBJECT_ALL) $(OBJECT_EXAMPLES)

install: $(if $(OBJECT),install-object)
install-object: $(OBJECT_ALL)
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(BINDIR) $(DESTDIR)$(COMMANDDIR) $(DESTDIR)$(PLUGINDIR)
	install -m 755 $(OBJECT_SO) $(DESTDIR)$(LIBDIR)
	ln -sf $(notdir $(OBJECT_SO)) $(DESTDIR)$(LIBDIR)/libummap-object.so.$(SOMAJOR)
	ln -sf libummap-object.so.$(SOMAJOR) $(DESTDIR)$(LIBDIR)/libummap-object.so
	install -m 755 $(OBJECT_DRIVER) $(OBJECT_RADOS) $(DESTDIR)$(PLUGINDIR)
	install -m 755 $(OBJECT_TOOL) $(DESTDIR)$(COMMANDDIR)
	ln -sf ummap $(DESTDIR)$(BINDIR)/umobject
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@INCLUDEDIR@|$(INCLUDEDIR)|; s|@VERSION@|$(VERSION)|' \
		clients/object/ummap-object.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/ummap-object.pc
.PHONY: object install-object
-include $(OBJECT_OBJ:.o=.d) $(RADOS_OBJ:.o=.d) $B/tests/plugins/ummap-object-memory.d $B/clients/object/driver.d $(OBJECT_TOOL_OBJ:.o=.d) $(OBJECT_EXAMPLES:=.d)
