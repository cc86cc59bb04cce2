/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface of a back end. It stores the chunks of a container by id and number, the versions
 * by id, and the names that refer to versions. A back end does not interpret the bytes of chunks
 * and versions. Only the core knows which chunks a version needs, so the core collects garbage
 * (gc.h).
 *
 * The back end for folders is part of the library. Each other back end is a file
 * ummap-object-SCHEME.so, which exports umobject_backend and is loaded when a container SCHEME:...
 * is opened. It includes only this header, error.h and id.h. tests/object/memory.c is a short
 * example.
 *
 * On success, calls return 0 or a pointer. On error, they return -1 or NULL, and set errno and a
 * message (error.h). Several threads may call one back end at the same time.
 */
#ifndef OBJECT_BACKEND_H
#define OBJECT_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <ummap-object.h>

/* Number of the interface below, which every change increases. The library refuses a back end with
 * another number. */
#define BACKEND_ABI 4

/* Bytes that malloc(3) has allocated. */
struct bytes {
	void *data;
	size_t size;
};

struct backend {
	const struct backend_ops *ops;
};

/* A chunk that is open for reading. */
struct stored {
	const struct stored_ops *ops;
};

struct stored_ops {
	/* Reads `size` bytes. Errors: EBADMSG (the chunk is shorter), ENODATA (there is no
	 * chunk). */
	int (*read)(struct stored *s, void *to, size_t size, uint64_t at);
	void (*close)(struct stored *s);
};

/* A hold on a version, whose bytes and chunks exist until the release. If the holder dies, the hold
 * ends at once or some time later. Back ends append fields. */
struct lease {
	struct bytes record; /* bytes of the version when it was held; none after `create` */
};

typedef int visit_name_fn(void *arg, const char *name);
typedef int visit_number_fn(void *arg, uint64_t version);
typedef int visit_id_fn(void *arg, const struct umobject_id *id);
/* Whether a chunk is garbage. */
typedef bool garbage_fn(void *arg, const struct umobject_id *id, uint64_t number);
/* Writes the path of a chunk's file, relative to the view, to text. */
typedef void name_file_fn(void *arg, const struct umobject_id *id, uint64_t number, char *text,
			  size_t size);

struct chunk_ops {
	/* Writes a chunk atomically, even if the chunk exists. The write is durable after sync,
	 * which also reports late errors of this handle's writes of the id. */
	int (*write)(struct backend *b, const struct umobject_id *id, uint64_t number,
		     const struct iovec *iov, int n);
	int (*sync)(struct backend *b, const struct umobject_id *id);
	/* Opens a chunk for reading. If there is no chunk, open or the first read fails with
	 * ENODATA. */
	struct stored *(*open)(struct backend *b, const struct umobject_id *id, uint64_t number);
	int (*exists)(struct backend *b, const struct umobject_id *id, uint64_t number,
		      bool *exists);
	/* Removes those of the chunks [first, first + count) that exist. */
	int (*remove)(struct backend *b, const struct umobject_id *id, uint64_t first,
		      uint64_t count);
	/* Announces that this chunk of about `bytes` bytes will be opened and read. The function
	 * may be NULL. */
	void (*prefetch)(struct backend *b, const struct umobject_id *id, uint64_t number,
			 uint64_t bytes);
	/* Removes all chunks that are garbage, and remainders of interrupted writes of these
	 * chunks. */
	int (*sweep)(struct backend *b, garbage_fn *garbage, void *arg,
		     struct umobject_garbage *removed);
};

struct version_ops {
	/* Makes and holds a version without a name. name: the name that a later publish may give
	 * it. */
	struct lease *(*create)(struct backend *b, const struct umobject_id *id, const char *name,
				const struct bytes *record);
	/* Holds a version. ENOENT: there is no such version. */
	struct lease *(*hold)(struct backend *b, const struct umobject_id *id);
	/* Ends a hold, and frees the lease with its record. */
	void (*release)(struct backend *b, struct lease *lease);
	/* Lists all versions, with or without names and holders. */
	int (*list)(struct backend *b, visit_id_fn *each, void *arg);
	int (*exists)(struct backend *b, const struct umobject_id *id, bool *exists);
	/* Claims a version that has no name and no holders. It cannot be held or named until the
	 * claim is released, or the version is removed with its view. If *claim is NULL, the call
	 * has already removed the version, and sweep finds its chunks. EBUSY: the version has a
	 * name or holders, and *record receives its bytes. ENOENT: there is no such version. */
	int (*claim)(struct backend *b, const struct umobject_id *id, struct lease **claim,
		     struct bytes *record);
	/* Removes a claimed version. NULL if `claim` removes all versions. */
	void (*remove)(struct backend *b, struct lease *claim);
};

/* The caller of publish, settle, remove and restore must hold the lock of the name. */
struct name_ops {
	/* Holds a version of a name (0: the newest). ENOENT: there is no such version. */
	struct lease *(*hold)(struct backend *b, const char *name, uint64_t version);
	/* While a name is locked, only the holder of the lock changes the records of the name. The
	 * garbage collector locks the empty name. Both functions are NULL if publish compares and
	 * swaps. */
	int (*lock)(struct backend *b, const char *name, void **lock);
	void (*unlock)(struct backend *b, void *lock);
	/* Gives a held version this record, and makes the version, its chunks and its view durable.
	 * Then lets the name refer to the version, in one step for all readers. Only the newest
	 * `keep` versions keep the name. Without locks: EAGAIN if the newest version is not number
	 * `version` - 1. */
	int (*publish)(struct backend *b, struct lease *lease, const char *name, uint64_t version,
		       unsigned keep, const struct bytes *record);
	/* Removes the name from all its versions, even if some records of the name are missing.
	 * ENOENT: there is no such name. */
	int (*remove)(struct backend *b, const char *name);
	int (*list)(struct backend *b, visit_name_fn *each, void *arg);
	/* Lists the numbers of the kept versions, the oldest first. */
	int (*list_versions)(struct backend *b, const char *name, visit_number_fn *each, void *arg);
	/* settle completes an interrupted publish of a name whose newest version is `newest`.
	 * end_removals completes all interrupted removals. Both functions are NULL if publish and
	 * remove are single steps. If one of them fails, the collector cannot find out which chunks
	 * are garbage. */
	int (*settle)(struct backend *b, const char *name, const struct umobject_id *newest,
		      uint64_t version);
	int (*end_removals)(struct backend *b);
	/* Both functions are for checks, and NULL if a name has a single record. list_lost lists
	 * missing names of which other records exist, because a record was removed by other means
	 * than `remove`; it may list a name more than once. restore lets the name refer to a held
	 * version, as the newest version or as an older one. It may replace a damaged record of the
	 * newest version. EEXIST: the name already has such a version, or a damaged record that
	 * must stay. */
	int (*list_lost)(struct backend *b, visit_name_fn *each, void *arg);
	int (*restore)(struct backend *b, const char *name, const struct umobject_id *id,
		       uint64_t version, bool is_newest);
};

/* Views for HDF5 programs. */
struct view_ops {
	name_file_fn *name_chunk; /* arg: the back end */
	int (*write)(struct backend *b, const struct umobject_id *id, const struct bytes *view);
	int (*read)(struct backend *b, const struct umobject_id *id, struct bytes *view);
	/* Whether the view that users find by the name is the view of this version. If it is not,
	 * settle repairs it. */
	bool (*is_shown)(struct backend *b, const char *name, const struct umobject_id *id);
};

struct backend_ops {
	unsigned abi;       /* BACKEND_ABI */
	const char *scheme; /* name before the colon; NULL: containers are paths */
	/* Opens the container `where`, which is the text after "SCHEME:". wanted: the description
	 * of the container if it must be created; NULL: the container must exist (ENOENT).
	 * *description: the description that the container has, which the caller frees. */
	int (*open)(const char *where, const struct bytes *wanted, struct bytes *description,
		    struct backend **b);
	void (*close)(struct backend *b);
	const struct chunk_ops *chunks;
	const struct version_ops *versions;
	const struct name_ops *names;
	const struct view_ops *views; /* NULL: the back end has no files for views */
};

extern const struct backend_ops backend_folders;
/* Each back end that is loaded exports this table. */
extern const struct backend_ops umobject_backend;

#endif
