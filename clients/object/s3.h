/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations for the files of the back end for S3, s3*.c. s3.c has its layout. */
#ifndef OBJECT_S3_H
#define OBJECT_S3_H

#include "object/backend.h"
#include "object/id.h"

#include "../drivers/http/s3_calls.h"

#include <pthread.h>
#include <time.h>

#define KEY_BYTES 320                  /* bytes of a key behind the prefix, at most */

/* A chunk that write has been given, and that has not been sent. */
struct pending {
	struct pending *next;
	struct umobject_id id;
	uint64_t number;
	struct iovec body;
	char key[KEY_BYTES];
	int error;                     /* negative errno value */
	char why[200];                 /* reason of the error */
};

struct bucket {
	struct backend b;
	struct remote remote;          /* URL that ends with the prefix, keys and signature */
	struct s3_calls *calls;
	char *name;                    /* BUCKET/PREFIX, for messages */
	unsigned lease;                /* seconds that a process holds its versions */
	char process[ID_TEXT + 12];    /* name of this process and its lease */
	_Atomic unsigned holds;        /* number of holds so far */
	bool holds_nothing;            /* whether the user may not write, so there are no holds */
	pthread_mutex_t beat_lock;     /* protects the next three */
	pthread_cond_t wake;           /* wakes the thread when is_ending is set */
	bool is_ending, has_thread;
	pthread_t thread;              /* renews the lease of the process */
	pthread_mutex_t chunk_lock;    /* protects the rest, and is held while chunks are sent */
	struct pending *pending;       /* chunks to send */
	unsigned npending;
	size_t bytes_pending;
	struct pending *failed;        /* failed chunks that sync has not reported */
};

static inline struct bucket *bucket_of(struct backend *b)
{
	return (struct bucket *)b;
}

/* The facts of an answer. */
struct reply {
	char etag[MAX_ETAG_BYTES];     /* "": there is no object */
	time_t now, modified;          /* time of the server, and of the object's last change */
	char why[200];                 /* reason of an error */
};

/*
 * Calls for an object of the container. They return 0 or a negative errno value (s3_calls.h).
 * store_put: condition NULL: none; "": there is no object; else the ETag of the present object. If
 * it is not met: -ESTALE. The new ETag is in reply->etag.
 */
int store_get(struct bucket *c, const char *key, struct bytes *body, struct reply *reply);
int store_put(struct bucket *c, const char *key, const struct bytes *body, const char *condition,
	      struct reply *reply);
int store_delete(struct bucket *c, const char *key, struct reply *reply);
/* Visits the keys with a prefix, until a visit returns other than 0; returns that value. */
typedef int visit_key_fn(void *arg, const char *key, uint64_t size, time_t modified);
int store_list(struct bucket *c, const char *prefix, visit_key_fn *each, void *arg,
	       struct reply *reply);
/* Returns 0, or stores a message with the container and the reason, and returns -1. */
__attribute__((format(printf, 4, 5)))
int store_check(const struct bucket *c, int error, const struct reply *reply, const char *format,
		...);

/* ---- s3_chunks.c ---- */

extern const struct chunk_ops s3_chunks;

void end_s3_chunks(struct bucket *c);

/* ---- s3_versions.c ---- */

extern const struct version_ops s3_versions;

/* Starts and ends the lease of the process. */
int start_lease(struct bucket *c);
void stop_lease(struct bucket *c);
/* Holds a version. -ENOENT: it is gone or claimed. */
int hold_id(struct bucket *c, const struct umobject_id *id, struct lease **lease,
	    struct reply *reply);
/* Writes the record of a held version. -ESTALE: the version is claimed or gone. */
int write_record(struct bucket *c, struct lease *lease, const struct bytes *record,
		 struct reply *reply);
const struct umobject_id *id_of_lease(const struct lease *lease);

/* ---- s3_names.c ---- */

extern const struct name_ops s3_names;

/* 1: a name refers to the version; 0, or a negative errno value. */
int is_named_s3(struct bucket *c, const char *name, const struct umobject_id *id,
		struct reply *reply);

#endif
