/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations for the files of the back end for RADOS, rados*.c. rados.c has its layout. */
#ifndef OBJECT_RADOS_H
#define OBJECT_RADOS_H

#include "object/backend.h"
#include "object/id.h"

#include <pthread.h>
#include <rados/librados.h>

/* Bytes of the name of an object of RADOS. */
#define OID_TEXT 72

/* A write of a chunk that has not been answered, or has failed. */
struct flight {
	struct flight *next;
	struct umobject_id id;
	uint64_t number;
	size_t bytes;
	rados_completion_t done;
	int error;                  /* negative errno value */
};

/* A chunk that is read before it is opened. */
struct ahead {
	struct ahead *next;
	char oid[OID_TEXT];
	char *bytes;
	size_t size;                /* number of bytes that were read, if done is NULL */
	rados_completion_t done;    /* NULL: the read has ended */
};

struct rados_lease {
	struct lease lease;
	struct rados_lease *next;
	struct umobject_id id;
	char oid[OID_TEXT];         /* the version's object */
	char cookie[24];            /* identifies the lock among those of this process */
	bool is_exclusive;
	bool is_doubtful;           /* its version may have a name: kept until the end */
};

struct cluster {
	struct backend b;
	rados_t rados;
	rados_ioctx_t io;           /* in the namespace of the container */
	char *name;                 /* POOL/CONTAINER, for messages */
	unsigned timeout;           /* seconds that the cluster has to answer */
	unsigned lease;             /* seconds that a lease lasts */
	pthread_mutex_t lease_lock; /* protects the next four */
	pthread_cond_t wake;        /* wakes the thread when is_ending is set */
	struct rados_lease *leases;
	uint64_t cookies;           /* number of leases so far */
	bool is_ending;
	pthread_t renewer;          /* 0: not started */
	pthread_mutex_t chunk_lock; /* protects the rest */
	struct flight *flights;     /* the oldest first */
	struct flight **last_flight; /* the pointer at the end of that list */
	size_t flying;              /* bytes of the flights */
	struct flight *failed;      /* failed writes that sync has not reported */
	struct ahead *ahead;        /* the newest first */
	unsigned nahead;
};

static inline struct cluster *of(struct backend *b)
{
	return (struct cluster *)b;
}

/* ---- rados.c. Results are 0 or a negative errno value. ---- */

/* Returns 0, or stores a message with the container and the reason, and returns -1. error: as
 * librados returns it. */
__attribute__((format(printf, 3, 4)))
int rados_check(const struct cluster *c, int error, const char *format, ...);
/* Executes an operation and releases it. -ENOSPC: the cluster is full. */
int rados_do(const struct cluster *c, rados_write_op_t op, const char *oid);
/* Begins an operation and releases it. *done is NULL on an error. */
int rados_begin(const struct cluster *c, rados_write_op_t op, const char *oid,
		rados_completion_t *done);
/* Waits for an operation. */
int rados_finish(rados_completion_t done);
/* Whether an object exists. Returns 0, or -1 with a message. */
int rados_find(const struct cluster *c, const char *oid, bool *exists);

/* ---- rados_lease.c ---- */

/* Adds to an operation: it fails if a collector has claimed this version. */
void lease_require_unclaimed(rados_write_op_t op);
/* Adds to an operation: it takes the lease, or renews it. */
void lease_take(rados_write_op_t op, const struct cluster *c, const struct rados_lease *l);
struct rados_lease *lease_make(struct cluster *c, const struct umobject_id *id, bool exclusive);
/* Renews a lease that has been taken, until it ends. */
void lease_keep(struct cluster *c, struct rados_lease *l);
/* Frees a lease, without or with giving it back. */
void lease_forget(struct cluster *c, struct rados_lease *l);
void lease_end(struct cluster *c, struct rados_lease *l);
int lease_start(struct cluster *c);
void lease_stop(struct cluster *c);

/* ---- rados_chunks.c, rados_versions.c, rados_names.c ---- */

extern const struct chunk_ops rados_chunks;
extern const struct version_ops rados_versions;
extern const struct name_ops rados_names;

void end_chunks(struct cluster *c);

/* Values of up to 2 keys of an omap; data NULL: there is no such key. */
struct values {
	struct bytes v[2];
};

void free_values(struct values *values);
int read_values(const struct cluster *c, const char *oid, const char *const *keys, size_t n,
		struct values *values);
/* Holds a version. -ENOENT: it is gone or claimed, -EBUSY: a collector looks at it, -EBADMSG. */
int try_hold(struct cluster *c, const struct umobject_id *id, struct lease **lease);
/* Stores the message of a failed try_hold. Returns NULL. */
struct lease *refuse_hold(const struct cluster *c, int error, const struct umobject_id *id);

int create_names(struct cluster *c);
/* 1: a name refers to the version; 0, or a negative errno value. */
int is_named(const struct cluster *c, const char *name, const struct umobject_id *id);

#endif
