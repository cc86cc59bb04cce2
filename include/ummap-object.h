/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-object.h - arrays as immutable objects with flat names; see ummap-object(7).
 *
 * A container contains objects. A put makes a new version of an object, entirely or not at all. A
 * get reads one version, which never changes. Readers and writers do not wait for each other.
 * (Chien et al., "Exploring Scientific Application Performance Using Large Scale Object Storage",
 * sections 3.1 to 3.1.3.)
 *
 * Calls return 0, or -1 with errno set; umobject_errormsg() returns the message. Any thread may
 * make calls; one put, one draft, or one held version may be used by one thread at a time. Sizes
 * and offsets are in elements, unless a comment says bytes.
 */
#ifndef UMMAP_OBJECT_H
#define UMMAP_OBJECT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct umobject_container umobject_container; /* an open container */
typedef struct umobject_put umobject_put;             /* a version in progress */
typedef struct umobject_version umobject_version;     /* a version that is held for reading */
typedef struct umobject_draft umobject_draft;         /* an array whose bytes can be changed */

#define UMOBJECT_RANK_MAX 32
#define UMOBJECT_NAME_MAX 4096 /* bytes */

/* Types of elements: types of C and the corresponding native types of HDF5. */
enum umobject_type {
	UMOBJECT_INT8 = 1, UMOBJECT_UINT8, UMOBJECT_INT16, UMOBJECT_UINT16,
	UMOBJECT_INT32, UMOBJECT_UINT32, UMOBJECT_INT64, UMOBJECT_UINT64,
	UMOBJECT_FLOAT, UMOBJECT_DOUBLE, UMOBJECT_LDOUBLE
};

/* Returns the bytes of an element, or 0 if there is no such type. */
size_t umobject_type_size(enum umobject_type type);

/* An array in row-major order, divided into chunks. Chunks at the ends of the array are shorter if
 * dims are no multiples of chunk. */
struct umobject_shape {
	enum umobject_type type;
	unsigned rank;                     /* number of dimensions; 0: a single element */
	uint64_t dims[UMOBJECT_RANK_MAX];  /* extents of the array, none of them 0 */
	uint64_t chunk[UMOBJECT_RANK_MAX]; /* extents of a chunk; 0: the whole dimension */
};

/* A UUID that identifies one version of one object. */
struct umobject_id {
	uint8_t bytes[16];
};

/* ---- Containers ---- */

#define UMOBJECT_CREATE 1u    /* make the container if it does not exist */
#define UMOBJECT_READ_ONLY 2u /* refuse puts */

struct umobject_attr {
	size_t struct_size;         /* sizeof(struct umobject_attr) */
	unsigned flags;             /* UMOBJECT_CREATE, UMOBJECT_READ_ONLY */
	unsigned keep;              /* new container: versions of a name to keep; 0: one */
	const char *const *devices; /* new container: folders for chunks; NULL: the container */
	unsigned ndevices;          /* number of devices */
};
#define UMOBJECT_ATTR_INIT { sizeof(struct umobject_attr), 0, 0, NULL, 0 }

/*
 * Opens a container: the path of a folder, "rados:POOL/NAME" or "s3:BUCKET/PREFIX". attr NULL: the
 * defaults. Errors: ENOENT (does not exist), EINVAL (attr), EBADMSG (damaged), EPROTO (made by a
 * newer release), EPROTONOSUPPORT (no such back end), ETIMEDOUT (the cluster does not answer),
 * those of the system.
 */
int umobject_open(const char *where, const struct umobject_attr *attr,
		  umobject_container **container);
/*
 * Opens the container in the path of an object: in "/data/box/field", the longest beginning that is
 * a container; in "rados:POOL/CONTAINER/field", the part before the second slash. options: keys of
 * a container in RADOS or S3, "?conf=...", or NULL. *name becomes the rest of path, which may be
 * empty.
 */
int umobject_open_path(const char *path, const char *options, const struct umobject_attr *attr,
		       umobject_container **container, const char **name);
/* Closes a container. No version may be held, and no put may be in progress. */
void umobject_close(umobject_container *container);

/* ---- Puts ---- */

/* Makes the whole array at data the newest version of name. The version is durable when the call
 * returns 0; before that, and on error, no part of it is visible. Errors: EINVAL (name, shape),
 * ENOMEM, EROFS, ENOSPC and others of storage. */
int umobject_put_array(umobject_container *container, const char *name,
		       const struct umobject_shape *shape, const void *data);

/*
 * Begins a version that any number of processes make together: other processes join it by its id,
 * all of them put chunks by their numbers, and then one commits. id may be NULL if no other process
 * joins. A put that is never committed makes nothing visible; umobject_gc removes its chunks.
 */
int umobject_begin(umobject_container *container, const char *name,
		   const struct umobject_shape *shape, umobject_put **put,
		   struct umobject_id *id);
/* Joins a put in progress. Errors: ENOENT (no put with this id), and those of umobject_begin. */
int umobject_join(umobject_container *container, const struct umobject_id *id,
		  umobject_put **put);
/* Begins a new version from a held one. Chunks that are not put are those of the old version. */
int umobject_begin_from(umobject_version *old, umobject_put **put, struct umobject_id *id);
/* Puts all elements of a chunk (umobject_chunk returns their number) in row-major order. The chunk
 * is durable after umobject_put_sync, umobject_put_end or umobject_commit, and may be put again.
 * Errors: EINVAL (number), those of storage. */
int umobject_put_chunk(umobject_put *put, uint64_t number, const void *data);
/* Makes the chunks that this process has put durable. */
int umobject_put_sync(umobject_put *put);
/* Stores the shape of the array, without zeros in chunk. */
void umobject_put_shape(const umobject_put *put, struct umobject_shape *shape);
/* Sets an attribute: a name and a value of any bytes. The attributes of the committing process
 * count. Errors: EINVAL, ENOMEM. */
int umobject_put_attribute(umobject_put *put, const char *name, const void *value, size_t size);
#define UMOBJECT_SPARSE 1u /* missing chunks are zeros, and not an error */
/*
 * Makes the version visible, and ends the put, even on error. All other processes must have called
 * umobject_put_sync or umobject_put_end. *version becomes the number of the version; version may be
 * NULL. Errors: ENODATA (a chunk is missing: the message names it), ESTALE (the version was removed
 * while this process could not reach the cluster), those of storage.
 */
int umobject_commit(umobject_put *put, unsigned flags, uint64_t *version);
/* Commits, and holds the new version, so that another commit cannot remove it. */
int umobject_commit_hold(umobject_put *put, unsigned flags, umobject_version **held);
/* Ends a put in this process. Its chunks remain, and are durable when the call returns 0. */
int umobject_put_end(umobject_put *put);
/* Ends a put in this process, and removes the chunks that the process has put. */
void umobject_abandon(umobject_put *put);

/* ---- Drafts: arrays whose bytes are changed in place, until a put makes a version of them ---- */

/*
 * Begins a draft over a held version, which must be held until the draft ends or has another base;
 * base NULL: zeros. A shape with one dimension of extent 0 grows with the bytes that are written,
 * and must be set before the put. Changes are kept in a file without a name in TMPDIR or /var/tmp.
 * Errors of all calls on drafts: ENOMEM, EINVAL (the shape differs from that of the base or the
 * put), those of umobject_read, and those of the file.
 */
int umobject_draft_begin(umobject_version *base, const struct umobject_shape *shape,
			 umobject_draft **draft);
/* Sets the shape of a draft that has grown. */
void umobject_draft_reshape(umobject_draft *draft, const struct umobject_shape *shape);
/* Read or write bytes of the array in row-major order, from byte `offset` on. Error of a write:
 * EFBIG (beyond the end). */
int umobject_draft_read(umobject_draft *draft, void *data, size_t size, uint64_t offset);
int umobject_draft_write(umobject_draft *draft, const void *data, size_t size, uint64_t offset);
/* Returns whether the draft has changes. */
int umobject_draft_is_written(const umobject_draft *draft);
/* Puts the changed chunks among the `count` chunks of the draft that begin with number `first`. A
 * chunk has changed if it was written, and if the new version does not have the same contents from
 * the base already. A second call with the same put puts the changes since the first. */
int umobject_draft_put(umobject_draft *draft, umobject_put *put, uint64_t first, uint64_t count);
/* Makes a version that contains the chunks put by umobject_draft_put the base of the draft. Keeps
 * the changes since the last umobject_draft_put. */
void umobject_draft_rebase(umobject_draft *draft, umobject_version *base);
/* Ends the draft, and drops its changes. draft may be NULL. */
void umobject_draft_end(umobject_draft *draft);

/* ---- Gets ---- */

/* Reads a part of the newest version: count[d] elements of dimension d, from start[d] on; or all of
 * it, if start and count are NULL. All bytes are checked. Errors: ENOENT; EINVAL (not within the
 * array); EBADMSG (a chunk is damaged), ENODATA (a chunk is missing): the message names it. */
int umobject_get(umobject_container *container, const char *name, const uint64_t *start,
		 const uint64_t *count, void *data);

/* Hold a version by its number (0: the newest) or id. It can be read until it is released, even if
 * its name is deleted or gets newer versions. Errors: ENOENT. */
int umobject_hold(umobject_container *container, const char *name, uint64_t version,
		  umobject_version **held);
int umobject_hold_id(umobject_container *container, const struct umobject_id *id,
		     umobject_version **held);
/* Reads a part of a held version, as umobject_get does. */
int umobject_read(umobject_version *held, const uint64_t *start, const uint64_t *count,
		  void *data);
/* Reads bytes of the array in row-major order, from byte `offset` on; zeros follow its end. */
int umobject_read_bytes(umobject_version *held, void *data, size_t size, uint64_t offset);
/* Releases a held version. */
void umobject_release(umobject_version *held);

struct umobject_stat {
	size_t struct_size;       /* set by the caller: sizeof(struct umobject_stat) */
	struct umobject_shape shape; /* shape, without zeros in chunk */
	struct umobject_id id;    /* UUID */
	uint64_t version;         /* number; counts from 1 with each commit of the name */
	uint64_t created;         /* nanoseconds since 1970 */
	uint64_t bytes;           /* bytes of the array */
	uint64_t chunks;          /* number of chunks */
	uint64_t stored;          /* number of chunks that were put; all others are zeros */
	const char *name;         /* name; valid while the version is held */
	unsigned attributes;      /* number of attributes */
};
/* Fills *stat with the properties of a held version. */
int umobject_stat(const umobject_version *held, struct umobject_stat *stat);
/* Returns the value of an attribute, valid while the version is held; NULL: no such attribute. */
const void *umobject_attribute(const umobject_version *held, const char *name, size_t *size);
/* Returns the name of the attribute with an index below stat.attributes. */
const char *umobject_attribute_name(const umobject_version *held, unsigned index);

/* Stores the first element of a chunk and its extent in each dimension. Returns the number of its
 * elements, or 0 if there is no such chunk. */
uint64_t umobject_chunk(const struct umobject_shape *shape, uint64_t number, uint64_t *start,
			uint64_t *count);
/* Returns the number of chunks of an array, or 0 if the shape is invalid. */
uint64_t umobject_chunks(const struct umobject_shape *shape);

/* ---- Names, checks and garbage ---- */

/* Calls each for all names, in no particular order, until it returns a value other than 0, which is
 * then returned. */
int umobject_list(umobject_container *container, int (*each)(void *arg, const char *name),
		  void *arg);
/* Calls each for the numbers of the kept versions of a name, from the oldest to the newest, until
 * it returns a value other than 0, which is then returned. */
int umobject_versions(umobject_container *container, const char *name,
		      int (*each)(void *arg, uint64_t version), void *arg);
/* Deletes a name and all its versions. Held versions can still be read. Errors: ENOENT. */
int umobject_delete(umobject_container *container, const char *name);

struct umobject_garbage {
	size_t struct_size;       /* set by the caller: sizeof(struct umobject_garbage) */
	uint64_t versions, chunks, bytes; /* removed versions, chunks, and bytes of chunks */
};
/* Removes versions and chunks to which no name refers, except those that are held, or that belong
 * to a put in progress. removed may be NULL. Errors: EBADMSG (the container is damaged, so that
 * garbage cannot be distinguished from data; see umobject_check_container), those of storage. */
int umobject_gc(umobject_container *container, struct umobject_garbage *removed);

/* Reads a whole version, and calls each with a message for every missing or damaged chunk. Returns
 * the number of these chunks, or -1. */
int umobject_check(umobject_version *held, void (*each)(void *arg, const char *message),
		   void *arg);
/*
 * Checks all kept versions of an object, or of all objects if name is NULL: their chunks, their
 * views and the records of their names. Calls each for every problem, with the name and a message.
 * flags: UMOBJECT_REPAIR also restores missing names and views from the versions that exist.
 * Returns the number of problems that are left, or -1. Errors: ENOENT (name), EROFS
 * (UMOBJECT_REPAIR in a container that was opened for reading only), those of storage.
 */
#define UMOBJECT_REPAIR 1u
int umobject_check_container(umobject_container *container, const char *name, unsigned flags,
			     void (*each)(void *arg, const char *name, const char *message),
			     void *arg);

/* The same as umerrormsg() of ummap.h: the message about this thread's last failed call. */
const char *umobject_errormsg(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
