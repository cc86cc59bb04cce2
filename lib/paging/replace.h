/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces the handle of a mapping's store by another one that ends at the same file: other
 * drivers, filters or keys. */
#ifndef REPLACE_H
#define REPLACE_H

#include "io/identity.h"
#include "paging/remap.h"

/* What is opened next. */
struct replacement {
	const char *uri;         /* NULL: the driver for descriptors */
	int fd;                  /* -1: by uri */
	int oflags;
	struct identity *id;     /* of it */
	uint64_t offset;         /* where the contents are to be */
};

/* The store of the mapping that the replacement is, so that it need not be opened; NULL: none. */
struct store *replace_find(const struct mapping *map, const struct identity *id);
/* Whether a store of the mapping may end at the same bytes: then it must be handed over before the
 * other one is opened. */
bool replace_is_needed(const struct mapping *map, const struct identity *id);

/*
 * The caller is the mapping's only user. replace_keep syncs the mapping, and has it go on with the
 * same contents in the other store, durably: at the same offset if both show the same bytes, else
 * at r->offset. 0; or -errno with a sentence, and the mapping is as it was. Any migration is
 * complete then.
 */
int replace_keep(struct mapping *map, const struct replacement *r);
/*
 * For a mapping that drops its contents: hands its stores over, so that the caller can open the
 * other one and switch to it. Until replace_end the mapping's segments are hidden. 0, or -errno
 * with a sentence; then nothing was handed over.
 */
int replace_begin_switch(struct mapping *map, const struct replacement *r);
int replace_open(const struct replacement *r, struct store **store);
/* failed: the mapping keeps its stores. */
void replace_end(struct mapping *map, const struct identity *id, bool failed);

#endif
