# SPDX-License-Identifier: BSD-3-Clause
# umrun: a command, and the library that it preloads.

UMRUN_OBJ = $(patsubst %.c,$B/%.o,$(wildcard clients/umrun/*.c))
UMRUN_SO = $B/libumrun.so.$(VERSION)
UMRUN = $B/umrun

$(UMRUN_OBJ): override CFLAGS += -fPIC
$(UMRUN_OBJ): override CPPFLAGS += -Iclients

$(UMRUN_SO): $(UMRUN_OBJ) $(SO)
	$(CC) -shared $(LDFLAGS) -Wl,-soname,libumrun.so.$(SOMAJOR) -Wl,-z,defs -o $@ $(UMRUN_OBJ) -L$B -lummap -Wl,-rpath,'$$ORIGIN'
	ln -sf $(notdir $@) $B/libumrun.so.$(SOMAJOR)

$(UMRUN): $B/tools/umrun/main.o $(UMRUN_SO)
	$(CC) $(LDFLAGS) -o $@ $< -L$B -lummap -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib'

$B/tests/prog_umrun: | $(UMRUN)

umrun: $(UMRUN)

install: install-umrun
install-umrun: $(UMRUN_SO) $(UMRUN)
	install -d $(DESTDIR)$(LIBDIR) $(DESTDIR)$(BINDIR) $(DESTDIR)$(COMPLETIONDIR)
	install -m 755 $(UMRUN_SO) $(DESTDIR)$(LIBDIR)
	ln -sf $(notdir $(UMRUN_SO)) $(DESTDIR)$(LIBDIR)/libumrun.so.$(SOMAJOR)
	install -m 755 $(UMRUN) $(DESTDIR)$(BINDIR)
	install -m 644 tools/completion.bash $(DESTDIR)$(COMPLETIONDIR)/umrun
.PHONY: umrun install-umrun
-include $(UMRUN_OBJ:.o=.d) $B/tools/umrun/main.d
