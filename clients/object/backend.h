/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface of a back end, which stores the chunks of a container by id and number, its
 * versions by id, and names that refer to versions. Chunks and versions are bytes to a back end.
 * Only the core knows which chunks a version needs, so the core collects garbage (gc.h).
 *
 * The back end for folders is in the library. Other back ends are files ummap-object-SCHEME.so,
 * which export umobject_backend and are loaded when a container SCHEME:... is opened. They include
 * this header, error.h and id.h only. tests/object/memory.c is a short example.
 *
 * Calls return 0, or -1 (NULL if they return a pointer) with errno and a message (error.h). Many
 * threads may call one back end at the same time.
 */
#ifndef OBJECT_BACKEND_H
#define OBJECT_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <ummap-object.h>

/* Changes with the interface below. A file with another number is refused. */
#define BACKEND_ABI 4

/* Bytes in memory from malloc(3). */
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

/* A hold on a version: its bytes and chunks exist until the release. If the holder dies, the hold
 * ends at once or some time later. Back ends append fields. */
struct lease {
	struct bytes record; /* bytes that the version had at the time; none after version_new */
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
	/* A write happens entirely or not at all, also if it replaces a chunk. It is durable after
	 * sync, which also reports late errors of this handle's writes of the id. */
	int (*write)(struct backend *b, const struct umobject_id *id, uint64_t number,
		     const struct iovec *iov, int n);
	int (*sync)(struct backend *b, const struct umobject_id *id);
	/* ENODATA, here or in the first read: there is no chunk. */
	struct stored *(*open)(struct backend *b, const struct umobject_id *id, uint64_t number);
	int (*exists)(struct backend *b, const struct umobject_id *id, uint64_t number,
		      bool *exists);
	/* Removes those of the chunks [first, first + count) that exist. */
	int (*remove)(struct backend *b, const struct umobject_id *id, uint64_t first,
		      uint64_t count);
	/* Announces that this chunk of about `bytes` bytes will be opened and read. May be NULL. */
	void (*prefetch)(struct backend *b, const struct umobject_id *id, uint64_t number,
			 uint64_t bytes);
	/* Removes all chunks that are garbage, and remainders of interrupted writes of them. */
	int (*sweep)(struct backend *b, garbage_fn *garbage, void *arg,
		     struct umobject_garbage *removed);
};

struct version_ops {
	/* Makes a version that no name refers to, and holds it. name: the name that it may get. */
	struct lease *(*create)(struct backend *b, const struct umobject_id *id, const char *name,
				const struct bytes *record);
	/* ENOENT: there is no such version. */
	struct lease *(*hold)(struct backend *b, const struct umobject_id *id);
	/* Ends a hold, and frees the lease with its record. */
	void (*release)(struct backend *b, struct lease *lease);
	/* Lists all versions, with or without names and holders. */
	int (*list)(struct backend *b, visit_id_fn *each, void *arg);
	int (*exists)(struct backend *b, const struct umobject_id *id, bool *exists);
	/* Claims a version without a name and holders: nobody can hold it or name it until it is
	 * removed with its view, or released. *claim NULL: the call has removed it already, and
	 * sweep finds its chunks. EBUSY: it has a name or holders, and *record receives its bytes.
	 * ENOENT. */
	int (*claim)(struct backend *b, const struct umobject_id *id, struct lease **claim,
		     struct bytes *record);
	/* Removes a claimed version. NULL if `claim` removes all versions. */
	void (*remove)(struct backend *b, struct lease *claim);
};

/* The caller of publish, settle, remove and restore holds the lock of the name. */
struct name_ops {
	/* Holds a version of a name (0: the newest). ENOENT. */
	struct lease *(*hold)(struct backend *b, const char *name, uint64_t version);
	/* While a name is locked, nobody else changes its records. The empty name is the
	 * collector's. Both are NULL if publish compares and swaps. */
	int (*lock)(struct backend *b, const char *name, void **lock);
	void (*unlock)(struct backend *b, void *lock);
	/* Gives a held version this record, makes it, its chunks and its view durable, and then
	 * lets the name refer to it, in one step for all readers. All versions of the name but the
	 * newest `keep` lose it. Without locks: EAGAIN if the newest version is not number
	 * `version` - 1. */
	int (*publish)(struct backend *b, struct lease *lease, const char *name, uint64_t version,
		       unsigned keep, const struct bytes *record);
	/* Takes the name from all its versions, even if some records of it are missing. ENOENT. */
	int (*remove)(struct backend *b, const char *name);
	int (*list)(struct backend *b, visit_name_fn *each, void *arg);
	/* Lists the numbers of the kept versions, the oldest first. */
	int (*list_versions)(struct backend *b, const char *name, visit_number_fn *each, void *arg);
	/* Both are NULL if publish and remove are single steps. settle completes an interrupted
	 * publish of a name, whose newest version this is; end_removals completes all interrupted
	 * removals. On an error the collector cannot tell what is garbage. */
	int (*settle)(struct backend *b, const char *name, const struct umobject_id *newest,
		      uint64_t version);
	int (*end_removals)(struct backend *b);
	/* For checks; NULL if a name has a single record. list_lost lists the names that are
	 * missing while other records of them exist, because a record was removed by other means
	 * than `remove`; it may list a name more than once. restore lets the name refer to a held
	 * version, as its newest version or as an older one. It may replace a damaged record of the
	 * newest version. EEXIST: the name has such a version, or a damaged record that stays. */
	int (*list_lost)(struct backend *b, visit_name_fn *each, void *arg);
	int (*restore)(struct backend *b, const char *name, const struct umobject_id *id,
		       uint64_t version, bool is_newest);
};

/* Views for HDF5 programs. */
struct view_ops {
	name_file_fn *name_chunk; /* arg: the back end */
	int (*write)(struct backend *b, const struct umobject_id *id, const struct bytes *view);
	int (*read)(struct backend *b, const struct umobject_id *id, struct bytes *view);
	/* Whether the view that users find by the name is this version's. settle repairs it. */
	bool (*is_shown)(struct backend *b, const char *name, const struct umobject_id *id);
};

struct backend_ops {
	unsigned abi;       /* BACKEND_ABI */
	const char *scheme; /* name before the colon; NULL: containers are paths */
	/* Opens the container that `where`, the text behind "SCHEME:", names. wanted: description
	 * of the container if it must be created; NULL: it must exist (ENOENT). *description: the
	 * description that it has, for the caller to free. */
	int (*open)(const char *where, const struct bytes *wanted, struct bytes *description,
		    struct backend **b);
	void (*close)(struct backend *b);
	const struct chunk_ops *chunks;
	const struct version_ops *versions;
	const struct name_ops *names;
	const struct view_ops *views; /* NULL: the back end has no files for views */
};

extern const struct backend_ops backend_folders;
/* Exported by each back end that is loaded. */
extern const struct backend_ops umobject_backend;

#endif
