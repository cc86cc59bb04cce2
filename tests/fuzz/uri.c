/* SPDX-License-Identifier: BSD-3-Clause */
/* URIs: the result of parsing is consistent, and drivers that open no files accept their keys or
 * refuse them with a message. */
#include "fuzz.h"

#include "base/log.h"
#include "io/uri.h"

#include <errno.h>
#include <ummap-driver.h>
#include <ummap.h>

static bool is_one_of(const char *name, const char *const *names)
{
	for (; *names; names++) {
		if (strcmp(name, *names) == 0)
			return true;
	}
	return false;
}

static bool may_open(const struct uri *u)
{
	static const char *const harmless[] = { "null", "error", NULL }, *const writing[] = {
		"count", "size", NULL
	};

	for (unsigned i = 0; i < u->layers; i++) {
		if (!is_one_of(u->layer[i].scheme, harmless))
			return false;
		for (unsigned k = 0; k < u->layer[i].nkeys; k++) {
			if (is_one_of(u->layer[i].keys[k].name, writing))
				return false;
		}
	}
	return true;
}

static void open_it(const char *text)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	void *h;

	if (ummap_driver_open(text, UMMAP_O_WRITE | UMMAP_O_CREATE, &driver, &h, &geom) == 0)
		driver.close(h);
	else
		must(strlen(umerrormsg()) > 10);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct uri u;
	bool open = false;
	int err;

	memcpy(text, data, size);
	text[size] = '\0';
	fail_clear();
	err = uri_parse(text, &u);
	if (err) {
		must(err < 0 && strlen(fail_message()) > 10);
	} else {
		must(u.layers >= 1 && u.layers <= URI_LAYERS);
		for (unsigned i = 0; i < u.layers; i++) {
			must(*u.layer[i].scheme && u.layer[i].nkeys <= URI_KEYS);
			must(strlen(u.layer[i].path) <= (size_t)(u.room_end - u.room));
			for (unsigned k = 0; k < u.layer[i].nkeys; k++)
				must(strlen(u.layer[i].keys[k].name) +
					     strlen(u.layer[i].keys[k].value) <
				     SIZE_MAX);
		}
		uri_default(&u, 0, "direct", "never");
		open = may_open(&u);
		uri_free(&u);
	}
	if (open)
		open_it(text);
	free(text);
	return 0;
}
