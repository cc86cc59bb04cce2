/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the back end for RADOS share: rados.c, rados_lease.c, rados_chunks.c, rados_names.c. */
#ifndef OBJECT_RADOS_H
#define OBJECT_RADOS_H

#include "object/backend.h"

#include <pthread.h>
#include <rados/librados.h>

#define OID_TEXT 72

/* A write of a chunk that has not been answered. */
struct flight {
	struct flight *next;
	struct umobject_id id;
	uint64_t number;
	size_t bytes;
	rados_completion_t done;
};

/* A chunk that is read before it is asked for. */
struct ahead {
	struct ahead *next;
	char oid[OID_TEXT];
	char *bytes;
	size_t size;
	rados_completion_t done;
};

struct lease {
	struct lease *next;
	struct umobject_id id;
	char oid[OID_TEXT];
	char cookie[24];
	bool exclusive;
	bool doubtful;              /* it may have a name or not: kept until the container is closed */
};

struct cluster {
	struct backend b;
	rados_t rados;
	rados_ioctx_t io;           /* in the container's namespace */
	char *name;                 /* POOL/CONTAINER, for sentences */
	unsigned timeout, lease;    /* seconds */
	pthread_mutex_t lock;       /* around the next four */
	pthread_cond_t wake;
	struct lease *leases;
	uint64_t cookies;           /* leases so far */
	bool ending;
	pthread_t keeper;
	pthread_mutex_t turn;       /* around the rest */
	struct flight *first, *last;
	size_t flying;              /* bytes */
	struct flight *failed;      /* answered by an error (in `bytes`), of which nobody has been told */
	struct ahead *ahead;
	unsigned nahead;
};

static inline struct cluster *of(struct backend *b)
{
	return (struct cluster *)b;
}

/* -1 with errno and a sentence, to which the reason is added. error: as librados returns it. */
__attribute__((format(printf, 3, 4)))
int rados_refuse(const struct cluster *c, int error, const char *format, ...);

/* Carries the operation out, or is told -ENOSPC rather than waiting where the cluster is full; ends it. 0 or a negative errno. */
int rados_do(const struct cluster *c, rados_write_op_t op, const char *oid);
/* Begins it, and ends the operation. *done is NULL where that is refused. */
int rados_begin(const struct cluster *c, rados_write_op_t op, const char *oid, rados_completion_t *done);
/* Waits for what was begun. 0 or a negative errno. */
int rados_finish(rados_completion_t done);
/* Seconds that never jump. */
double rados_clock(void);

void rados_id(const struct umobject_id *id, char text[static 37]);
/* Of what stands at the beginning; NULL, or behind it. */
const char *rados_parse_id(const char *text, struct umobject_id *id);

/* ---- rados_lease.c ---- */

/* In an operation: this version has not been claimed by a collector. */
void lease_alive(rados_write_op_t op);
struct lease *lease_make(struct cluster *c, const struct umobject_id *id, bool exclusive);
/* In an operation: takes the lease, or makes it last again. */
void lease_take(rados_write_op_t op, const struct cluster *c, const struct lease *l);
/* It has been taken: it is renewed from now on. */
void lease_keep(struct cluster *c, struct lease *l);
/* Gives it back, if it was taken. */
void lease_end(struct cluster *c, struct lease *l);
/* It is not renewed any more, and its memory goes. */
void lease_forget(struct cluster *c, struct lease *l);
int lease_start(struct cluster *c);
void lease_stop(struct cluster *c);

/* ---- rados_chunks.c ---- */

int rados_chunk_write(struct backend *b, const struct umobject_id *id, uint64_t number, const struct iovec *iov, int n);
int rados_chunk_sync(struct backend *b, const struct umobject_id *id);
int rados_chunk_open(struct backend *b, const struct umobject_id *id, uint64_t number, struct stored **stored);
int rados_chunk_there(struct backend *b, const struct umobject_id *id, uint64_t number, bool *there);
int rados_chunks_remove(struct backend *b, const struct umobject_id *id, uint64_t first, uint64_t count);
void rados_chunk_ahead(struct backend *b, const struct umobject_id *id, uint64_t number, uint64_t bytes);
int rados_sweep(struct backend *b, bool (*garbage)(void *arg, const struct umobject_id *id, uint64_t number), void *arg,
		struct umobject_garbage *removed);
void rados_end_chunks(struct cluster *c);

/* ---- rados_names.c ---- */

#define SHARDS 16

int rados_make_names(struct cluster *c);
int rados_version_new(struct backend *b, const struct umobject_id *id, const char *name, const void *bytes, size_t size, struct lease **lease);
int rados_version_hold(struct backend *b, const struct umobject_id *id, struct lease **lease, void **bytes, size_t *size);
int rados_name_hold(struct backend *b, const char *name, uint64_t version, struct lease **lease, void **bytes, size_t *size);
void rados_release(struct backend *b, struct lease *lease);
int rados_publish(struct backend *b, struct lease *lease, const char *name, uint64_t version, unsigned keep, const void *bytes, size_t size);
int rados_name_remove(struct backend *b, const char *name);
int rados_names(struct backend *b, int (*each)(void *arg, const char *name), void *arg);
int rados_lost_names(struct backend *b, int (*each)(void *arg, const char *name), void *arg);
int rados_name_restore(struct backend *b, const char *name, const struct umobject_id *id, uint64_t version, bool is_newest);
int rados_versions(struct backend *b, const char *name, int (*each)(void *arg, uint64_t version), void *arg);
int rados_all_versions(struct backend *b, int (*each)(void *arg, const struct umobject_id *id), void *arg);
int rados_version_there(struct backend *b, const struct umobject_id *id, bool *there);
int rados_version_claim(struct backend *b, const struct umobject_id *id, struct lease **claim, void **bytes, size_t *size);
void rados_version_remove(struct backend *b, struct lease *claim);

#endif
