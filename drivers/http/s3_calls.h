/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of S3: requests with short answers that the calling thread waits for, several at a time.
 * They are for all requests but the loads of a mapping. Not in a signal handler.
 */
#ifndef DRIVERS_HTTP_S3_CALLS_H
#define DRIVERS_HTTP_S3_CALLS_H

#include "http.h"

#include <sys/uio.h>

/* One request and its answer. Fields that are not set are 0. */
struct s3_call {
	const char *method;            /* GET, HEAD, PUT, POST or DELETE */
	const char *key;               /* encoded text behind the URL of the handle; NULL: none */
	bool is_bucket;                /* whether the request is for the bucket */
	const char *query;             /* encoded and sorted; NULL: none */
	const char *range;             /* bytes to read, as FIRST-LAST; NULL: all */
	const char *etag;              /* ETag that the object must have; "": there must be none;
					  NULL: no condition */
	struct curl_slist *lines;      /* more lines of the header */
	const struct iovec *body;      /* body of the request */
	int nbody;
	char *to;                      /* memory for the body of a good answer; NULL: `answer` */
	size_t room;                   /* bytes of `to` */
	int64_t end;                   /* time in ms at which the call fails; 0: none */
	/* Results. */
	int res;                       /* 0, or a negative errno value: ENOENT (status 404), ESTALE
					  (a condition was not met), EACCES, ERANGE (status 416),
					  EOVERFLOW (the answer does not fit), EIO, ENOMEM */
	unsigned tries;                /* number of exchanges */
	struct answer head;            /* header of the answer */
	char *answer;                  /* body of the answer, with a zero behind it; NULL: empty */
	size_t got;                    /* bytes of the body of the answer */
	char why[200];                 /* reason of an error */
};

/* Calls with one account. Threads may use it at the same time. */
struct s3_calls;

/* Prepares a call before its first exchange, or takes its result. Returns 0 or a negative errno
 * value. Both run in the thread of s3_run. */
typedef int s3_call_fn(void *arg, struct s3_call *call);

/* remote: URL, keys and signature, which remain. NULL: no memory. */
struct s3_calls *s3_calls_new(const struct remote *remote);
void s3_calls_free(struct s3_calls *s);
/*
 * Makes n calls, at most `parallel` at a time. begin and end: NULL, or functions for each call.
 * When a call has failed, the calls that have not begun do not begin, and have the result
 * -ECANCELED. Returns 0, or the error of the call that failed first.
 */
int s3_run(struct s3_calls *s, struct s3_call *calls, unsigned n, unsigned parallel,
	   s3_call_fn *begin, s3_call_fn *end, void *arg);
/* Makes one call. */
int s3_call(struct s3_calls *s, struct s3_call *call);
/* Frees the lines and the answer of a call. */
void s3_call_free(struct s3_call *call);
/*
 * Finds the text of the next element <name> at or behind *at, and decodes it. Returns false if
 * there is none, or if it does not fit. If it returns true, *at is behind the element.
 */
bool s3_element(const char **at, const char *name, char *text, size_t room);

#endif
