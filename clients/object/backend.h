/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a back end does for containers: it keeps chunks by id and number, versions by id, and names that refer to versions. What a chunk
 * and a version are is bytes to it; which chunks a version needs is known to the core alone, which collects garbage (gc.h).
 *
 * The back end for folders is in the library. Others are files ummap-object-SCHEME.so that export `umobject_backend`, and are loaded when
 * somebody opens SCHEME:... They include this header and error.h only. tests/object/memory.c is one in as few lines as can be.
 *
 * Calls return 0, or -1 with errno and a sentence (error.h). Calls of one back end may be made by many threads.
 */
#ifndef OBJECT_BACKEND_H
#define OBJECT_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <ummap-object.h>

/* Rises with each change of what is below: a file of another one is refused. */
#define BACKEND_ABI 3

struct backend {
	const struct backend_ops *ops;
};

/* A chunk that is open to be read. */
struct stored {
	const struct stored_ops *ops;
};

struct stored_ops {
	/* All of it, or it is an error: EBADMSG where there are fewer bytes, ENODATA where there is no such chunk. */
	int (*read)(struct stored *s, void *to, size_t size, uint64_t at);
	void (*close)(struct stored *s);
};

/* A version that is held: what it refers to stays. Whoever holds it may die, and holds nothing any more, at once or some time later. */
struct lease;

struct backend_ops {
	unsigned abi;       /* BACKEND_ABI */
	const char *scheme; /* NULL: containers are paths */
	/* where: what stands behind "scheme:". wanted: what the container is to say of itself if it has to be made; NULL: it has to be
	 * there already (ENOENT). *bytes, for the caller to free: what it does say. */
	int (*open)(const char *where, const void *wanted, size_t wanted_size, void **bytes, size_t *size, struct backend **b);
	void (*close)(struct backend *b);

	/* Chunks. A write is whole or it fails, also where a chunk is replaced; one that fails later is told of by sync. What was written is
	 * durable after sync, which is for this handle's writes of the id. */
	int (*chunk_write)(struct backend *b, const struct umobject_id *id, uint64_t number, const struct iovec *iov, int n);
	int (*chunk_sync)(struct backend *b, const struct umobject_id *id);
	/* ENODATA, here or when it is read: there is none. */
	int (*chunk_open)(struct backend *b, const struct umobject_id *id, uint64_t number, struct stored **stored);
	int (*chunk_there)(struct backend *b, const struct umobject_id *id, uint64_t number, bool *there);
	/* Chunks [first, first + count), as far as they are there. */
	int (*chunks_remove)(struct backend *b, const struct umobject_id *id, uint64_t first, uint64_t count);
	/* NULL, or: this chunk, of about so many bytes, will be opened soon and read from its beginning to its end. */
	void (*chunk_ahead)(struct backend *b, const struct umobject_id *id, uint64_t number, uint64_t bytes);

	/* A new version, under this id, of which nobody knows by name: it is held. name: which one it may be given. */
	int (*version_new)(struct backend *b, const struct umobject_id *id, const char *name, const void *bytes, size_t size,
			   struct lease **lease);
	/* Holds a version by its id, or by a name and its number (0: the newest), and gives its bytes, for the caller to free. ENOENT. */
	int (*version_hold)(struct backend *b, const struct umobject_id *id, struct lease **lease, void **bytes, size_t *size);
	int (*name_hold)(struct backend *b, const char *name, uint64_t version, struct lease **lease, void **bytes, size_t *size);
	void (*release)(struct backend *b, struct lease *lease);
	/* Nobody else names versions of this name from lock to unlock; the empty name is the collector's. Both NULL: there are no locks, and
	 * publish compares. */
	int (*name_lock)(struct backend *b, const char *name, void **lock);
	void (*name_unlock)(struct backend *b, void *lock);
	/* The bytes of a version that is held are these now, durably, and so are its chunks and its view, and name is this version's: at once
	 * for all others. Versions of the name older than the newest `keep` lose it. Under the name's lock; without locks, EAGAIN if the
	 * newest version is not the one before this one. */
	int (*publish)(struct backend *b, struct lease *lease, const char *name, uint64_t version, unsigned keep, const void *bytes,
		       size_t size);
	/* NULL where publish and name_remove are one step. Otherwise, behind one that was killed: what is not as it should be where
	 * this is the newest version of the name. Under its lock. -1: the collector cannot tell what is garbage. */
	int (*settle)(struct backend *b, const char *name, const struct umobject_id *newest, uint64_t version);
	/* Takes the name from all its versions, also where some records of it are missing. Under its lock. ENOENT. */
	int (*name_remove)(struct backend *b, const char *name);
	int (*names)(struct backend *b, int (*each)(void *arg, const char *name), void *arg);
	/* From the oldest on. */
	int (*versions)(struct backend *b, const char *name, int (*each)(void *arg, uint64_t version), void *arg);

	/* A view for HDF5 programs; NULL: there is no place for one. view_file names a chunk's file as the view is to call it. */
	void (*view_file)(void *b, const struct umobject_id *id, uint64_t number, char *text, size_t size);
	int (*view_write)(struct backend *b, const struct umobject_id *id, const void *bytes, size_t size);
	/* The bytes of a view, for the caller to free. ENOENT. Beside view_write. */
	int (*view_read)(struct backend *b, const struct umobject_id *id, void **bytes, size_t *size);
	/* Whether the view that users find by the name is this version's. Beside view_write; settle mends it. */
	bool (*view_shown)(struct backend *b, const char *name, const struct umobject_id *id);

	/* NULL where name_remove is one step. Otherwise: ends removals that were interrupted. */
	int (*end_removals)(struct backend *b);
	/* For checks. NULL where a name has a single record. Calls each for the names that are missing although other records of
	 * them are there, as after a record was removed by other means than name_remove. A name may be told more than once. */
	int (*lost_names)(struct backend *b, int (*each)(void *arg, const char *name), void *arg);
	/* Beside lost_names: gives the name to a version that the caller holds, as its newest version or as an older one
	 * that is kept. A damaged record of the newest version may be replaced. EEXIST: the name has such a version, or
	 * a damaged record that cannot be replaced. Under the name's lock. */
	int (*name_restore)(struct backend *b, const char *name, const struct umobject_id *id, uint64_t version, bool is_newest);

	/* For the collector. All versions that are there, named, held or neither. */
	int (*all_versions)(struct backend *b, int (*each)(void *arg, const struct umobject_id *id), void *arg);
	int (*version_there)(struct backend *b, const struct umobject_id *id, bool *there);
	/* A version that nobody names or holds: from now on nobody can, until it is removed, with its view, or released. *claim
	 * NULL: it has been removed at once; its chunks, of which no version knows any more, are found by sweep. EBUSY: somebody does, and
	 * these are its bytes. ENOENT. */
	int (*version_claim)(struct backend *b, const struct umobject_id *id, struct lease **claim, void **bytes, size_t *size);
	/* NULL where every claim does that. */
	void (*version_remove)(struct backend *b, struct lease *claim);
	/* Removes all chunks that `garbage` says are, and what is left of writes of theirs that were interrupted. */
	int (*sweep)(struct backend *b, bool (*garbage)(void *arg, const struct umobject_id *id, uint64_t number), void *arg,
		     struct umobject_garbage *removed);
};

extern const struct backend_ops backend_folders;
/* What a back end that is loaded exports. */
extern const struct backend_ops umobject_backend;

#endif
