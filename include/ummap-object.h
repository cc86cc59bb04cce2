/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-object.h - arrays as immutable objects with flat names; see ummap-object(7).
 *
 * A container holds objects. A put makes a new version of a name, whole or not at all; a get reads one version, which nobody
 * changes any more. Nothing waits for anybody else. (Chien et al., "Exploring Scientific Application Performance Using Large
 * Scale Object Storage", sections 3.1 to 3.1.3.)
 *
 * Calls return 0, or -1 with errno set; umobject_errormsg() has the sentence. Any thread may make them; one put or one
 * version is used by one thread at a time. Sizes and offsets are in elements, unless they are said to be in bytes.
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
typedef struct umobject_put umobject_put;             /* a version that is being made */
typedef struct umobject_version umobject_version;     /* one that is held, to be read */
typedef struct umobject_draft umobject_draft;         /* bytes that are changed over a version */

#define UMOBJECT_RANK_MAX 32
#define UMOBJECT_NAME_MAX 4096 /* bytes */

/* Types of elements: C's, and with them HDF5's native ones. */
enum umobject_type {
	UMOBJECT_INT8 = 1, UMOBJECT_UINT8, UMOBJECT_INT16, UMOBJECT_UINT16, UMOBJECT_INT32, UMOBJECT_UINT32,
	UMOBJECT_INT64, UMOBJECT_UINT64, UMOBJECT_FLOAT, UMOBJECT_DOUBLE, UMOBJECT_LDOUBLE
};

/* Bytes of an element; 0: there is no such type. */
size_t umobject_type_size(enum umobject_type type);

/* An array in row-major order, cut into chunks: those at the ends are shorter where dims are no multiples of chunk. */
struct umobject_shape {
	enum umobject_type type;
	unsigned rank;                     /* 0: a single element */
	uint64_t dims[UMOBJECT_RANK_MAX];  /* none of them 0 */
	uint64_t chunk[UMOBJECT_RANK_MAX]; /* 0: the whole dimension */
};

/* 128 bits that name one version of one object for ever. */
struct umobject_id {
	uint8_t bytes[16];
};

/* ---- Containers ---- */

#define UMOBJECT_CREATE 1u   /* make the container if there is none */
#define UMOBJECT_READ_ONLY 2u

struct umobject_attr {
	size_t struct_size;       /* sizeof(struct umobject_attr) */
	unsigned flags;           /* UMOBJECT_CREATE, UMOBJECT_READ_ONLY */
	unsigned keep;            /* for UMOBJECT_CREATE: how many versions of a name are kept; 0: 1, the newest */
	const char *const *devices; /* for UMOBJECT_CREATE: folders for chunks, on storage of their own; NULL: one, inside */
	unsigned ndevices;
};
#define UMOBJECT_ATTR_INIT { .struct_size = sizeof(struct umobject_attr) }

/*
 * Opens a container: the path of a folder, or as "rados:POOL/NAME". attr NULL: the defaults. Errors: ENOENT (there is none), EINVAL
 * (attr), EBADMSG (it is damaged), EPROTO (it is of a newer release), EPROTONOSUPPORT (there is no such back end), ETIMEDOUT (the cluster
 * does not answer), those of the system.
 */
int umobject_open(const char *where, const struct umobject_attr *attr, umobject_container **container);
/*
 * The same for a path of a container and a name: "/data/box/field", where /data/box is the longest beginning that is a container, or
 * "rados:POOL/CONTAINER/field". options: what comes behind a container in RADOS, "?conf=...", or NULL. *name is the rest of path, and
 * may be empty.
 */
int umobject_open_path(const char *path, const char *options, const struct umobject_attr *attr, umobject_container **container,
		       const char **name);
/* Ends it, once nothing is held and no put is under way. */
void umobject_close(umobject_container *container);

/* ---- Puts ---- */

/* Makes data, all of the array, the newest version of name: durable when it returns 0. Before, and where it fails, nobody sees
 * anything of it. Errors: EINVAL (name, shape), ENOMEM, EROFS, ENOSPC and others of storage. */
int umobject_put_array(umobject_container *container, const char *name, const struct umobject_shape *shape, const void *data);

/*
 * The same in parts, by any number of processes: one begins, all join by the id and put chunks by their numbers, and when all
 * have done so one commits. A put that nobody commits leaves nothing visible, and its chunks to umobject_gc.
 */
int umobject_begin(umobject_container *container, const char *name, const struct umobject_shape *shape, umobject_put **put,
		   struct umobject_id *id);
/* Errors: ENOENT (there is no put of this id under way), and those of umobject_begin. */
int umobject_join(umobject_container *container, const struct umobject_id *id, umobject_put **put);
/* A new version of what is held: chunks that are not put are those of the old one. */
int umobject_begin_from(umobject_version *old, umobject_put **put, struct umobject_id *id);
/* Puts a chunk: all of its elements (umobject_chunk has how many), in row-major order. It is durable after
 * umobject_put_sync, umobject_put_end or umobject_commit. A chunk may be put again. Errors: EINVAL (number), those of storage. */
int umobject_put_chunk(umobject_put *put, uint64_t number, const void *data);
int umobject_put_sync(umobject_put *put);
/* The shape of the array, with no 0 in chunk: for who has joined. */
void umobject_put_shape(const umobject_put *put, struct umobject_shape *shape);
/* Attributes: names and values of any bytes. Those of the process that commits count. Errors: EINVAL, ENOMEM. */
int umobject_put_attribute(umobject_put *put, const char *name, const void *value, size_t size);
#define UMOBJECT_SPARSE 1u /* chunks that nobody has put are zeros, and no error */
/*
 * Makes the version visible and ends the put, also where it fails. All others have called umobject_put_sync, or have ended. Errors:
 * ENODATA (a chunk is missing: the sentence says which), ESTALE (the version was collected while this process was away from the cluster),
 * those of storage. *version: its number; NULL: not asked for.
 */
int umobject_commit(umobject_put *put, unsigned flags, uint64_t *version);
/* The same, and the version that was made is held: nobody can replace it and have it collected in between. */
int umobject_commit_hold(umobject_put *put, unsigned flags, umobject_version **held);
/* Ends a put in this process: chunks that were put stay, and are durable when it returns 0. */
int umobject_put_end(umobject_put *put);
/* Ends it and takes back what this process has put. */
void umobject_abandon(umobject_put *put);

/* ---- Drafts: an array's bytes that are changed in place, of which a put makes a version ---- */

/*
 * Over what is held, which stays so until the draft has another base or ends; base NULL: zeros. shape is the array's; of one dimension
 * that is 0: it grows with what is written, and gets its shape before it is put. What is written is kept in a file without a name in
 * TMPDIR, or /var/tmp. One thread at a time uses a draft. Errors of all: ENOMEM, EINVAL (the shape is not that of the base, or of what is
 * put), those of umobject_read and of the folder.
 */
int umobject_draft_begin(umobject_version *base, const struct umobject_shape *shape, umobject_draft **draft);
void umobject_draft_reshape(umobject_draft *draft, const struct umobject_shape *shape);
/* Bytes of the array in row-major order, from byte offset on. Errors of a write: EFBIG (behind the end). */
int umobject_draft_read(umobject_draft *draft, void *data, size_t size, uint64_t offset);
int umobject_draft_write(umobject_draft *draft, const void *data, size_t size, uint64_t offset);
/* Whether anything was written. */
int umobject_draft_is_written(const umobject_draft *draft);
/* Puts those of the chunks from first on, count at most, that were written, and differ from what the version would have otherwise. By the same put, a second call
 * puts what was written since. */
int umobject_draft_put(umobject_draft *draft, umobject_put *put, uint64_t first, uint64_t count);
/* What was put is in that version, and is forgotten here; what was written since stays. */
void umobject_draft_rebase(umobject_draft *draft, umobject_version *base);
/* What was written is lost. NULL: nothing. */
void umobject_draft_end(umobject_draft *draft);

/* ---- Gets ---- */

/* Reads a part of the newest version: count[d] elements of dimension d, from start[d] on. start and count NULL: all of it. Every
 * byte has been checked. Errors: ENOENT; EINVAL (not within the array); EBADMSG (a chunk is damaged), ENODATA (missing): the
 * sentence says which. */
int umobject_get(umobject_container *container, const char *name, const uint64_t *start, const uint64_t *count, void *data);

/* Holds a version, which can be read until it is released, whatever becomes of its name. version 0: the newest. Errors: ENOENT. */
int umobject_hold(umobject_container *container, const char *name, uint64_t version, umobject_version **held);
int umobject_hold_id(umobject_container *container, const struct umobject_id *id, umobject_version **held);
int umobject_read(umobject_version *held, const uint64_t *start, const uint64_t *count, void *data);
/* Bytes of the array in row-major order, from byte offset on; behind its end they are zeros. */
int umobject_read_bytes(umobject_version *held, void *data, size_t size, uint64_t offset);
void umobject_release(umobject_version *held);

struct umobject_stat {
	size_t struct_size;       /* in: sizeof(struct umobject_stat) */
	struct umobject_shape shape; /* no 0 in chunk */
	struct umobject_id id;
	uint64_t version;         /* counts up from 1 with each commit of the name */
	uint64_t created;         /* nanoseconds since 1970 */
	uint64_t bytes;           /* of the array */
	uint64_t chunks;          /* how many it has */
	uint64_t stored;          /* of these, not zeros that nobody has put */
	const char *name;         /* valid as long as it is held */
	unsigned attributes;
};
/* Of a version that is held. */
int umobject_stat(const umobject_version *held, struct umobject_stat *stat);
/* The attribute of that name; NULL: there is none. Valid as long as it is held. */
const void *umobject_attribute(const umobject_version *held, const char *name, size_t *size);
/* The attribute at an index below stat.attributes. */
const char *umobject_attribute_name(const umobject_version *held, unsigned index);

/* Where a chunk stands: its first element and its extent in each dimension. Returns its elements; 0: there is no such chunk. */
uint64_t umobject_chunk(const struct umobject_shape *shape, uint64_t number, uint64_t *start, uint64_t *count);
/* How many chunks an array has; 0: the shape is none. */
uint64_t umobject_chunks(const struct umobject_shape *shape);

/* ---- Names, and what nobody refers to ---- */

/* Calls each for all names, in no order, until it returns other than 0, which is then returned. */
int umobject_list(umobject_container *container, int (*each)(void *arg, const char *name), void *arg);
/* The same for the numbers of the versions of a name that are kept, from the oldest on. */
int umobject_versions(umobject_container *container, const char *name, int (*each)(void *arg, uint64_t version), void *arg);
/* Takes a name away, with all its versions. Who holds one can still read it. Errors: ENOENT. */
int umobject_delete(umobject_container *container, const char *name);

struct umobject_garbage {
	size_t struct_size;       /* in: sizeof(struct umobject_garbage) */
	uint64_t versions, chunks, bytes;
};
/* Removes versions and chunks to which no name refers, except those that are held, or that
 * belong to a put under way. removed NULL: nothing is counted. Errors: EBADMSG (the container is
 * damaged, so that garbage cannot be distinguished from data; see umobject_check_container), those
 * of storage. */
int umobject_gc(umobject_container *container, struct umobject_garbage *removed);

/* Reads all of a version, and calls each with a sentence for what is missing or damaged; returns how many there are, or -1. */
int umobject_check(umobject_version *held, void (*each)(void *arg, const char *sentence), void *arg);
/*
 * Checks all kept versions of an object, or of all objects if name is NULL: their chunks, their
 * views and the records of their names. Calls each for every fault, with the name and a message.
 * flags: UMOBJECT_REPAIR also restores missing names and views from the versions that exist.
 * Returns the number of faults that are left, or -1. Errors: ENOENT (name), EROFS (UMOBJECT_REPAIR
 * in a container that was opened for reading only), those of storage.
 */
#define UMOBJECT_REPAIR 1u
int umobject_check_container(umobject_container *container, const char *name, unsigned flags,
			     void (*each)(void *arg, const char *name, const char *sentence), void *arg);

/* The sentence behind this thread's last failure here; never NULL. */
const char *umobject_errormsg(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
