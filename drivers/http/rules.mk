# SPDX-License-Identifier: BSD-3-Clause
# The drivers http, https and s3, which are built if libcurl is installed. Each plug-in has its own
# copy of the code: a plug-in exports one driver.

HTTP_SCHEMES = $(if $(CURL),http https)
HTTP_DRIVERS = $(if $(CURL),$(patsubst %,$B/plugins/ummap-driver-%.so,$(HTTP_SCHEMES) s3))
S3_SRC = drivers/http/s3.c drivers/http/s3_account.c drivers/http/s3_bucket.c \
	drivers/http/s3_calls.c drivers/http/s3_changes.c drivers/http/s3_sign.c
HTTP_SRC = $(filter-out %/http.c $(S3_SRC),$(wildcard drivers/http/*.c))
S3_OBJ = $(S3_SRC:%.c=$B/%.o)
HTTP_OBJ = $(HTTP_SRC:%.c=$B/%.o) $B/drivers/keys.o
HTTP_TABLES = $(HTTP_SCHEMES:%=$B/drivers/http/scheme_%.o)

$(HTTP_TABLES): $B/drivers/http/scheme_%.o: drivers/http/http.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -DSCHEME='"$*"' $(CFLAGS) -MMD -MP -c -o $@ $<

$(HTTP_SCHEMES:%=$B/plugins/ummap-driver-%.so): $B/plugins/ummap-driver-%.so: \
	$B/drivers/http/scheme_%.o
$B/plugins/ummap-driver-s3.so: $(S3_OBJ) $B/drivers/blockmap.o
$(HTTP_DRIVERS): $(HTTP_OBJ) $(COMMON)
	@mkdir -p $(@D)
	$(CC) -shared $(LDFLAGS) -Wl,-z,defs -o $@ $(filter %.o,$^) $(COMMON) \
		-Wl,--as-needed $(shell pkg-config --libs libcurl libcrypto)

HTTP_TESTS = $(if $(CURL),$(patsubst tests/http/%.c,$B/tests/%,$(wildcard \
	tests/http/prog_*.c)))
$(HTTP_TESTS): | $(HTTP_DRIVERS) $(MAIN) $(CP)
$(HTTP_TESTS): override CPPFLAGS += -Itests/http \
	-DHTTP_PLUGINS='"$(abspath $B)/plugins"' -DHTTP_TESTS='"$(abspath tests/http)"'

http: $(HTTP_DRIVERS)
install: $(if $(CURL),install-http)
install-http: $(HTTP_DRIVERS)
	install -d $(DESTDIR)$(PLUGINDIR)
	install -m 755 $(HTTP_DRIVERS) $(DESTDIR)$(PLUGINDIR)
.PHONY: http install-http
-include $(HTTP_TABLES:.o=.d) $(HTTP_OBJ:.o=.d) $(S3_OBJ:.o=.d)
