/* SPDX-License-Identifier: BSD-3-Clause */
/* URIs, such as "error+posix:/d/a?error.nth=7&direct=never": schemes from the outermost filter to
 * the driver, a path, and keys. */
#ifndef URI_H
#define URI_H

#include <ummap-driver.h>

#define URI_LAYERS 4
#define URI_KEYS 16
#define URI_VARIABLES 32

struct uri {
	char *text;                          /* the URI, cut at its separators */
	char *room, *room_end;               /* path and values, decoded */
	unsigned layers;
	struct ummap_uri layer[URI_LAYERS];  /* outermost first; `next` is not set */
	struct ummap_key keys[URI_LAYERS][URI_KEYS];
};

/* Parses a URI. Returns 0, or -EINVAL or -ENOMEM with a message. A URI without ':' is only a
 * scheme; {name} in the path or in a value is a variable (vars.h). */
int uri_parse(const char *text, struct uri *u);
void uri_free(struct uri *u);
/* Adds a key to a layer that does not have it; both strings must outlive the URI. */
int uri_default(struct uri *u, unsigned layer, const char *name, const char *value);

#endif
