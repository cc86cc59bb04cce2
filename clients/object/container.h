/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef OBJECT_CONTAINER_H
#define OBJECT_CONTAINER_H

#include "object/backend.h"
#include "object/chunk.h"
#include "object/message.h"

#include <stdatomic.h>

struct umobject_container {
	struct backend *b;
	unsigned keep;
	bool read_only;
	atomic_uint open_chunks; /* of all versions that are held */
	unsigned most_chunks;    /* where so many are open, a version that opens one closes its others */
};

/* A version that is held, and the chunks that were read last. */
#define OPEN_CHUNKS 64

struct umobject_version {
	struct umobject_container *container;
	struct lease *lease;
	struct object *object;
	struct chunk *chunks[OPEN_CHUNKS]; /* by number, as far as they are open */
	uint64_t numbers[OPEN_CHUNKS];
};

/* Of the version that it makes. */
const struct umobject_id *put_id(const umobject_put *put);
/* Whether what it makes has this chunk of that version, unless the chunk is put. */
bool put_has_chunk_of(const umobject_put *put, const umobject_version *version, uint64_t number);

/* A version of a name, and its lease; version 0: the newest. NULL with a message. */
struct object *container_look(struct umobject_container *c, const char *name, uint64_t version, struct lease **lease);

/* Whether all that the names of the container refer to is named as it should be: 0, or -1 with a message (EBADMSG). */
int container_check_names(struct umobject_container *c);

/* umobject_check without the chunks that `known`, another version that was checked, has as well. NULL: all chunks. */
int version_check(umobject_version *v, const struct object *known, void (*each)(void *arg, const char *sentence), void *arg);

/* Takes over lease and bytes. */
int version_make(struct umobject_container *c, struct lease *lease, void *bytes, size_t size, const char *what,
		 struct umobject_version **held);

#endif
