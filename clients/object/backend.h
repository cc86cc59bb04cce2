/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a back end does for containers: it keeps chunks by id and number, versions by id, and names that refer to versions. A
 * version is bytes (message.h), which a back end does not look into. A new back end is one file with one table, and one line in
 * container.c.
 *
 * Calls return 0, or -1 with errno and a sentence (error.h). Calls of one back end may be made by many threads.
 */
#ifndef OBJECT_BACKEND_H
#define OBJECT_BACKEND_H

#include "object/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <ummap-object.h>

struct backend;

/* A chunk that is open to be read. */
struct stored {
	const struct stored_ops *ops;
};

struct stored_ops {
	/* All of it, or it is an error: EBADMSG where there are fewer bytes. */
	int (*read)(struct stored *s, void *to, size_t size, uint64_t at);
	void (*close)(struct stored *s);
};

/* A version that is held: what it refers to stays. Whoever holds it may die, and holds nothing any more. */
struct lease;

struct backend_ops {
	const char *scheme; /* NULL: containers are paths */
	/* where: what stands behind "scheme:"; *d: what the container says of itself; with UMOBJECT_CREATE, what it is to say. */
	int (*open)(const char *where, const struct umobject_attr *attr, struct description *d, struct backend **b);
	void (*close)(struct backend *b);

	/* Chunks. A write is whole or it fails; what was written is durable after sync, which is for this handle's writes of the id. */
	int (*chunk_write)(struct backend *b, const struct umobject_id *id, uint64_t number, const struct iovec *iov, int n);
	int (*chunk_sync)(struct backend *b, const struct umobject_id *id);
	/* ENODATA: there is none. */
	int (*chunk_open)(struct backend *b, const struct umobject_id *id, uint64_t number, struct stored **stored);
	int (*chunk_there)(struct backend *b, const struct umobject_id *id, uint64_t number, bool *there);
	int (*chunk_remove)(struct backend *b, const struct umobject_id *id, uint64_t number);

	/* A new version, under this id, of which nobody knows by name: it is held. */
	int (*version_new)(struct backend *b, const struct umobject_id *id, const void *bytes, size_t size, struct lease **lease);
	/* Holds a version by its id, or by a name and its number (0: the newest), and gives its bytes, for the caller to free. ENOENT. */
	int (*version_hold)(struct backend *b, const struct umobject_id *id, struct lease **lease, void **bytes, size_t *size);
	int (*name_hold)(struct backend *b, const char *name, uint64_t version, struct lease **lease, void **bytes, size_t *size);
	void (*release)(struct backend *b, struct lease *lease);
	/* Nobody else names versions of this name from lock to unlock. */
	int (*name_lock)(struct backend *b, const char *name, void **lock);
	void (*name_unlock)(struct backend *b, void *lock);
	/* The bytes of a version that is held are these now, durably, and so are its chunks and its view, and name is this version's: at once
	 * for all others. Versions of the name older than the newest `keep` lose it. Under the name's lock. */
	int (*publish)(struct backend *b, struct lease *lease, const char *name, uint64_t version, unsigned keep, const void *bytes,
		       size_t size);
	/* Takes the name from all its versions. Under its lock. */
	int (*name_remove)(struct backend *b, const char *name);
	/* Where names are kept as something else, `bytes` has the name in it. */
	int (*names)(struct backend *b, int (*each)(void *arg, const void *bytes, size_t size), void *arg);
	int (*versions)(struct backend *b, const char *name, int (*each)(void *arg, uint64_t version), void *arg);

	/* A view for HDF5 programs; NULL: there is no place for one. view_file names a chunk's file as the view is to call it. */
	void (*view_file)(void *b, const struct umobject_id *id, uint64_t number, char *text, size_t size);
	int (*view_write)(struct backend *b, const struct umobject_id *id, const void *bytes, size_t size);

	/* Removes versions that nobody names or holds, and chunks to which none that is named or held refers. */
	int (*collect)(struct backend *b, struct umobject_garbage *removed);
	/* Removes one version, if nobody names or holds it, and these chunks of its id, to which no other version refers. */
	int (*version_remove)(struct backend *b, const struct umobject_id *id, const struct source *own, size_t n);
};

struct backend {
	const struct backend_ops *ops;
};

extern const struct backend_ops backend_folders;

#endif
