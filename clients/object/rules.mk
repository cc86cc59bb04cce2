# SPDX-License-Identifier: BSD-3-Clause
# libummap-object, its command, the driver `object`, and the back end for RADOS if librados is
# installed. The library itself needs HDF5, protobuf-c and liburing, and is not built without them.

OBJECT_SRC = $(filter-out %/driver.c %/collective.c $(wildcard clients/object/rados*.c \
	clients/object/s3*.c),$(wildcard clients/object/*.c))
OBJECT_OBJ = $(OBJECT_SRC:%.c=$B/%.o) $B/clients/object/object.pb-c.o
OBJECT_SO = $B/libummap-object.so.$(VERSION)
OBJECT_DRIVER = $B/plugins/ummap-driver-object.so
OBJECT_DRIVER_OBJ = $B/clients/object/driver.o
OBJECT_TOOL = $B/commands/ummap-object
OBJECT_TOOL_OBJ = $(patsubst %.c,$B/%.o,$(wildcard tools/object/*.c))
# The back end for RADOS is loaded, so the library needs no librados.
RADOS := $(if $(OBJECT),$(wildcard /usr/include/rados/librados.h))
RADOS_OBJ = $(patsubst %.c,$B/%.o,$(wildcard clients/object/rados*.c))
OBJECT_RADOS = $(if $(RADOS),$B/plugins/ummap-object-rados.so)
# The back end for S3 makes its requests by the code of the driver s3.
OBJECT_S3_OBJ = $(patsubst %.c,$B/%.o,$(wildcard clients/object/s3*.c))
OBJECT_S3 = $(if $(OBJECT),$(if $(CURL),$B/plugins/ummap-object-s3.so))
OBJECT_S3_HTTP = $(patsubst %,$B/drivers/http/%.o,s3_account s3_bucket s3_calls s3_sign answer \
	options sockets) $B/drivers/keys.o
LINK_OBJECT = -L$B -lummap-object -lummap
OBJECT_ALL = $(if $(OBJECT),$(OBJECT_SO) $(OBJECT_DRIVER) $(OBJECT_RADOS) $(OBJECT_S3) \
	$(OBJECT_TOOL) $B/umobject)
# A plug-in is beside the library or in a folder below it.
PLUGIN_RPATH = -Wl,-rpath,'$$ORIGIN/..:$$ORIGIN'

OBJECT_PIC = $(OBJECT_OBJ) $(RADOS_OBJ) $(OBJECT_S3_OBJ) $(OBJECT_DRIVER_OBJ)
$(OBJECT_PIC): override CFLAGS += -fPIC
$(OBJECT_PIC): override CPPFLAGS += -Iclients -I$B/clients
$B/clients/object/path.o: override CPPFLAGS += -DUMMAP_PLUGIN_DIR='"$(PLUGINDIR)"'
$B/clients/object/path.o: $B/plugindir
HDF5_FLAGS = $(shell pkg-config --cflags hdf5-serial 2> /dev/null)
$B/clients/object/hdf5.o $B/tools/object/formats_hdf5.o: override CPPFLAGS += $(HDF5_FLAGS)
$(OBJECT_OBJ): | $B/clients/object/object.pb-c.h

# The code for messages is generated from their schema.
$B/clients/object/object.pb-c.h $B/clients/object/object.pb-c.c &: clients/object/object.proto
	@mkdir -p $(@D)
	protoc-c --c_out=$B/clients -Iclients clients/object/object.proto
$B/clients/object/object.pb-c.o: $B/clients/object/object.pb-c.c
	$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

$(OBJECT_SO): $(OBJECT_OBJ) clients/object/libummap-object.map $(COMMON) $(SO)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,libummap-object.so.$(SOMAJOR) -Wl,-z,defs \
		-Wl,--version-script=clients/object/libummap-object.map -o $@ $(OBJECT_OBJ) \
		$(COMMON) -L$B -lummap $(DL) -Wl,-rpath,'$$ORIGIN' \
		$(shell pkg-config --libs hdf5-serial libprotobuf-c liburing)
	ln -sf $(notdir $@) $B/libummap-object.so.$(SOMAJOR)
	ln -sf libummap-object.so.$(SOMAJOR) $B/libummap-object.so

$(OBJECT_DRIVER): $(OBJECT_DRIVER_OBJ) $B/clients/object/shape.o $(COMMON) $(OBJECT_SO)
	@mkdir -p $(@D)
	$(CC) -shared $(LDFLAGS) -Wl,-z,defs -o $@ $(filter %.o,$^) $(COMMON) $(LINK_OBJECT) \
		$(PLUGIN_RPATH)

$B/plugins/ummap-object-rados.so: $(RADOS_OBJ) $B/clients/object/id.o $(COMMON) $(OBJECT_SO)
	@mkdir -p $(@D)
	$(CC) -shared $(LDFLAGS) -Wl,-z,defs -o $@ $(filter %.o,$^) $(COMMON) $(LINK_OBJECT) \
		-lrados $(PLUGIN_RPATH)

$B/plugins/ummap-object-s3.so: $(OBJECT_S3_OBJ) $(OBJECT_S3_HTTP) $B/clients/object/id.o \
	$(COMMON) $(OBJECT_SO)
	@mkdir -p $(@D)
	$(CC) -shared $(LDFLAGS) -Wl,-z,defs -o $@ $(filter %.o,$^) $(COMMON) $(LINK_OBJECT) \
		$(shell pkg-config --libs libcurl libcrypto) $(PLUGIN_RPATH)

$(OBJECT_TOOL_OBJ): override CPPFLAGS += -Iclients
$(OBJECT_TOOL): $(OBJECT_TOOL_OBJ) $B/clients/object/shape.o $(COMMON) $(OBJECT_SO)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(COMMON) $(LINK_OBJECT) \
		$(shell pkg-config --libs hdf5-serial) -Wl,-rpath,'$$ORIGIN/..:$$ORIGIN/../../lib'

OBJECT_TESTS = $(if $(OBJECT),$(patsubst tests/object/%.c,$B/tests/%,$(wildcard \
	tests/object/prog_*.c)))
$(OBJECT_TESTS): $(OBJECT_ALL) $B/tests/plugins/ummap-object-memory.so
$(OBJECT_TESTS): override CPPFLAGS += -DOBJECT_PLUGINS='"$(abspath $B)/plugins"' \
	-DOBJECT_TEST_PLUGINS='"$(abspath $B)/tests/plugins"' \
	-DOBJECT_TESTS='"$(abspath tests/object)"'
# A back end for tests: containers in memory.
$B/tests/plugins/ummap-object-memory.so: tests/object/memory.c $(OBJECT_SO)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Iclients $(CFLAGS) -fPIC -MMD -MP -MF $(@:.so=.d) -shared $(LDFLAGS) \
		-Wl,-z,defs -o $@ $< $(LINK_OBJECT) -Wl,-rpath,'$$ORIGIN/../..'
$(OBJECT_TESTS): LINK_SO = $(LINK_OBJECT) -Wl,-rpath,'$$ORIGIN/..'

OBJECT_EXAMPLES = $(if $(OBJECT),$(patsubst examples/object/%.c,$B/examples/object-%,$(wildcard \
	examples/object/*.c)))
$B/tests/prog_umobject: | $(OBJECT_EXAMPLES)
$(OBJECT_EXAMPLES): $B/examples/object-%: examples/object/%.c $(OBJECT_SO)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP $(LDFLAGS) -o $@ $< $(LINK_OBJECT) \
		-Wl,-rpath,'$$ORIGIN/..'
$(OBJECT_TESTS): $(OBJECT_EXAMPLES)

object: $(OBJECT_ALL) $(OBJECT_EXAMPLES)

install: $(if $(OBJECT),install-object)
install-object: $(OBJECT_ALL)
	install -d $(addprefix $(DESTDIR),$(LIBDIR)/pkgconfig $(BINDIR) $(COMMANDDIR) $(PLUGINDIR))
	install -m 755 $(OBJECT_SO) $(DESTDIR)$(LIBDIR)
	ln -sf $(notdir $(OBJECT_SO)) $(DESTDIR)$(LIBDIR)/libummap-object.so.$(SOMAJOR)
	ln -sf libummap-object.so.$(SOMAJOR) $(DESTDIR)$(LIBDIR)/libummap-object.so
	install -m 755 $(OBJECT_DRIVER) $(OBJECT_RADOS) $(OBJECT_S3) $(DESTDIR)$(PLUGINDIR)
	install -m 755 $(OBJECT_TOOL) $(DESTDIR)$(COMMANDDIR)
	ln -sf ummap $(DESTDIR)$(BINDIR)/umobject
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' \
		-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		clients/object/ummap-object.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/ummap-object.pc
.PHONY: object install-object
-include $(patsubst %.o,%.d,$(OBJECT_PIC) $(OBJECT_DRIVER_OBJ) $(OBJECT_TOOL_OBJ))
-include $B/tests/plugins/ummap-object-memory.d $(OBJECT_EXAMPLES:=.d)
