/* SPDX-License-Identifier: BSD-3-Clause */
/* Containers, versions that are held, and what the files of the core call of each other. */
#ifndef OBJECT_CONTAINER_H
#define OBJECT_CONTAINER_H

#include "object/backend.h"
#include "object/chunk.h"
#include "object/message.h"

#include <stdatomic.h>

struct umobject_container {
	struct backend *b;
	char *where;              /* as umobject_open was given it, for messages */
	unsigned keep;            /* number of versions of a name to keep */
	bool read_only;
	atomic_uint open_chunks;  /* open chunks of all held versions */
	unsigned max_open_chunks; /* a version closes its chunks when so many are open */
};

/* Chunks that a held version keeps open. Chunks whose numbers are equal modulo this share a
 * slot. */
#define CHUNK_SLOTS 64

struct umobject_version {
	struct umobject_container *container;
	struct lease *lease; /* NULL: none yet */
	struct object *object;
	struct chunk *chunks[CHUNK_SLOTS];
};

int container_check_writable(const struct umobject_container *c);
/* Locks the records of a name, if the back end has locks. */
int container_lock(struct umobject_container *c, const char *name, void **lock);
/* Unlocks them. Keeps errno. */
void container_unlock(struct umobject_container *c, void *lock);

/* ---- version.c. Calls that return a version hold it; umobject_release keeps errno. ---- */

/* Holds a version of a name (0: the newest), whose record may be that of another name. */
umobject_version *version_of_name(struct umobject_container *c, const char *name, uint64_t version);
/* Holds a version by its id, committed or not. */
umobject_version *version_of_id(struct umobject_container *c, const struct umobject_id *id);
/* Writes the view of a version, if the back end has views. */
int version_write_view(const umobject_version *v);
/* Does what umobject_check does, except for chunks that `known`, another checked version, has, too.
 * known NULL: all chunks. */
int version_check(umobject_version *v, const struct object *known,
		  void (*each)(void *arg, const char *message), void *arg);

/* ---- put.c ---- */

/* The id of the version in progress. */
const struct umobject_id *put_id(const umobject_put *put);
/* Whether the version in progress has the same chunk as another version, unless it is put. */
bool put_has_chunk_of(const umobject_put *put, const umobject_version *version, uint64_t number);

/* ---- check.c ---- */

/* Checks that no version of the container has lost its name. Returns 0 or -1 (EBADMSG: one has). */
int check_names(struct umobject_container *c);
/* Reports an error if the record of a name, which led to this object, is that of another name. */
int check_owner(const struct object *o, const char *name);

/* ---- gc.c ---- */

/* Removes one version if it has no name and no holder, and n ranges of chunks of its id, to which
 * no other version refers. umobject_gc removes what could not be removed. */
void gc_version(struct backend *b, const struct umobject_id *id, const struct source *own,
		size_t n);

/* ---- path.c ---- */

/* The back end of a container, loaded if necessary. *rest: the text behind the scheme. */
const struct backend_ops *find_backend(const char *where, const char **rest);

#endif
