# SPDX-License-Identifier: BSD-3-Clause
# The drivers http and https, which are built if libcurl is installed. Each plug-in has its own copy
# of the code: a plug-in exports one driver.

HTTP_SCHEMES = $(if $(CURL),http https)
HTTP_DRIVERS = $(HTTP_SCHEMES:%=$B/plugins/ummap-driver-%.so)
HTTP_SRC = $(filter-out %/http.c,$(wildcard drivers/http/*.c))
HTTP_OBJ = $(HTTP_SRC:%.c=$B/%.o) $B/drivers/keys.o
HTTP_TABLES = $(HTTP_SCHEMES:%=$B/drivers/http/scheme_%.o)

$(HTTP_TABLES): $B/drivers/http/scheme_%.o: drivers/http/http.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -DSCHEME='"$*"' $(CFLAGS) -MMD -MP -c -o $@ $<

$(HTTP_DRIVERS): $B/plugins/ummap-driver-%.so: $B/drivers/http/scheme_%.o $(HTTP_OBJ) $(COMMON)
	@mkdir -p $(@D)
	$(CC) -shared $(LDFLAGS) -Wl,-z,defs -o $@ $(filter %.o,$^) $(COMMON) \
		$(shell pkg-config --libs libcurl)

HTTP_TESTS = $(if $(CURL),$(patsubst tests/http/%.c,$B/tests/%,$(wildcard \
	tests/http/prog_*.c)))
$(HTTP_TESTS): | $(HTTP_DRIVERS) $(MAIN) $(CP)
$(HTTP_TESTS): override CPPFLAGS += -Itests/http \
	-DHTTP_PLUGINS='"$(abspath $B)/plugins"'

http: $(HTTP_DRIVERS)
install: $(if $(CURL),install-http)
install-http: $(HTTP_DRIVERS)
	install -d $(DESTDIR)$(PLUGINDIR)
	install -m 755 $(HTTP_DRIVERS) $(DESTDIR)$(PLUGINDIR)
.PHONY: http install-http
-include $(HTTP_TABLES:.o=.d) $(HTTP_OBJ:.o=.d)
