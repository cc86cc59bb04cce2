/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Environment variables, one NAME=VALUE per line: accepted values are within their bounds, and
 * refused values have a message.
 */
#include "fuzz.h"

#include "base/config.h"
#include "base/log.h"
#include "base/sys.h"

#include <ummap.h>

#define MAX_VARIABLES 32

static void check_config(void)
{
	const struct config *c = &config;

	must(c->mem_limit > 0 || (c->mem_share > 0 && c->mem_share <= 1));
	must(c->seg_size >= sys_page() && (c->seg_size & (c->seg_size - 1)) == 0);
	must(c->fault_threads >= 1 && c->fault_threads <= 64);
	must(!c->group || config_is_name(c->group));
	must(!c->stats || strcmp(c->stats, "1") == 0 || strchr(c->stats, '/'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *line, *next, *names[MAX_VARIABLES], *equals;
	unsigned n = 0;

	memcpy(text, data, size);
	text[size] = '\0';
	for (line = text; line && n < MAX_VARIABLES; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		equals = strchr(line, '=');
		if (!equals || strncmp(line, "UMMAP_", 6) != 0)
			continue;
		*equals = '\0';
		setenv(line, equals + 1, 1);
		names[n++] = line;
	}
	fail_clear();
	if (config_load() == 0)
		check_config();
	else
		must(strlen(fail_message()) > 10);
	while (n > 0)
		unsetenv(names[--n]);
	free(text);
	return 0;
}
