/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces the handle of a mapping's store by another one that ends at the same file: other
 * drivers, filters or keys. */
#ifndef REPLACE_H
#define REPLACE_H

#include "io/identity.h"
#include "paging/mapping/remap.h"

/* The store that replaces a mapping's store, before it is opened. */
struct replacement {
	const char *uri;         /* its URI; NULL: the default driver for descriptors */
	int fd;                  /* descriptor of the file; -1: the URI has its path */
	int oflags;
	struct identity *id;     /* its identity */
	uint64_t offset;         /* offset in it where the mapping's contents begin */
};

/* Finds a store of the mapping with this identity, which need not be opened again; NULL: none. */
struct store *replace_find(const struct mapping *map, const struct identity *id);
/* Whether a store of the mapping may end at the same bytes: then it must be handed over before the
 * other one is opened. */
bool replace_is_needed(const struct mapping *map, const struct identity *id);

/*
 * Syncs the mapping, which completes any migration, and replaces its store by the other one. The
 * contents of the mapping do not change, and are durable in the other store: at the same offset if
 * both stores show the same bytes, otherwise at r->offset. The caller must be the mapping's only
 * user. Returns 0; or -errno with a message, and the mapping keeps its store.
 */
int replace_keep(struct mapping *map, const struct replacement *r);
/*
 * For a mapping that drops its contents: hands its stores over, so that the caller can open the
 * other one and switch to it. Until replace_end, the mapping's segments are hidden. The caller must
 * be the mapping's only user. Returns 0; or -errno with a message, and nothing was handed over.
 */
int replace_begin_switch(struct mapping *map, const struct replacement *r);
int replace_open(const struct replacement *r, struct store **store);
/* failed: the mapping keeps its stores. */
void replace_end(struct mapping *map, const struct identity *id, bool failed);

#endif
