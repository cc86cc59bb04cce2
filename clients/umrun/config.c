/* SPDX-License-Identifier: BSD-3-Clause */
/* UMRUN_OPTIONS has a line "KEY=VALUE" for each option that the user has given. */
#include "umrun/config.h"

#include "common/size.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct config config = { .min = 1 << 20, .heap_min = 64 << 10, .segment = 256 << 10 };

static const struct {
	const char *key;
	uint64_t *size;          /* the option is a size, or ... */
	const char **text;       /* ... a text */
} options[] = {
	{ "min=", &config.min, NULL },
	{ "heap-min=", &config.heap_min, NULL },
	{ "only=", NULL, &config.only },
	{ "driver=", NULL, &config.driver },
	{ "policy=", NULL, &config.policy },
	{ "heap=", NULL, &config.heap },
	{ "exclusive=", NULL, &config.exclusive },
	{ "quiet=", NULL, &config.quiet },
	{ "stats=", NULL, &config.stats },
	{ "verbose=", NULL, &config.verbose },
};

static void read_option(const char *line)
{
	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
		size_t len = strlen(options[i].key);

		if (strncmp(line, options[i].key, len) != 0)
			continue;
		if (options[i].size)
			size_parse(line + len, options[i].size);
		else
			*options[i].text = line + len;
	}
}

void config_read(void)
{
	const char *engine = secure_getenv("UMMAP_ENGINE"), *text = secure_getenv("UMRUN_OPTIONS");
	const char *segment = secure_getenv("UMMAP_SEG_SIZE");
	const char *node_cache = secure_getenv("UMMAP_NODE_CACHE");
	static bool has_read;
	char *rest, *line;

	if (has_read)
		return;
	has_read = true;
	/* Engines other than uffd do not see the kernel's accesses: memory for calls is pinned. The
	 * library finds the transfer size only with such an engine. */
	if (engine && strcmp(engine, "auto") != 0)
		config.pins = strcmp(engine, "uffd") != 0;
	else
		config.pins = segment && strcmp(segment, "auto") == 0;
	/* The engine of node copies is sigbus. */
	config.node_cache = node_cache && strcmp(node_cache, "1") == 0;
	config.announces = !node_cache || !*node_cache;
	config.pins |= config.node_cache;
	config.finds_size = !segment;
	if (segment)
		size_parse(segment, &config.segment);
	/* Programs overwrite their environment, for example to show another title. */
	rest = text ? strdup(text) : NULL;
	while ((line = strsep(&rest, "\n")))
		read_option(line);
}
