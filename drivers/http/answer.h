/* SPDX-License-Identifier: BSD-3-Clause */
/* The header of a server's answer: its fields, and whether they fit a request. */
#ifndef DRIVERS_HTTP_ANSWER_H
#define DRIVERS_HTTP_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_ETAG_BYTES 256
#define MAX_DATE_BYTES 64
#define MAX_REGION_BYTES 40
#define MAX_MARK_BYTES 40

/* The fields of a header. A field that a line has spoiled counts as missing. */
struct answer {
	unsigned status;               /* status code; 0: there is no status line yet */
	unsigned retry_after;          /* seconds of Retry-After */
	bool is_complete;              /* whether the end of the header has come */
	bool has_range;                /* whether first and last are valid */
	bool has_total;                /* whether total is valid */
	bool has_length;               /* whether length is valid */
	bool is_encoded;               /* whether the body is compressed */
	bool is_chunked;               /* whether the body tells its end itself */
	bool is_malformed;             /* whether lines contradict each other */
	uint64_t first, last;          /* Content-Range: first and last byte */
	uint64_t total;                /* Content-Range: length of the object */
	uint64_t length;               /* Content-Length */
	char etag[MAX_ETAG_BYTES];     /* strong ETag with its quotes; "": none */
	char modified[MAX_DATE_BYTES]; /* Last-Modified; "": none */
	char date[MAX_DATE_BYTES];     /* Date; "": none */
	char region[MAX_REGION_BYTES]; /* region of an S3 bucket; "": none */
	char mark[MAX_MARK_BYTES];     /* mark that this driver has given an object; "": none */
};

/* Identifies one state of an object by its strong ETag; if it has none, by Last-Modified. */
struct validator {
	char etag[MAX_ETAG_BYTES];
	char modified[MAX_DATE_BYTES];
	uint64_t total;                /* length of the object */
};

enum verdict {
	ANSWER_GOOD,                   /* the body has bytes of the request, from the first on */
	ANSWER_REPEAT,                 /* the server cannot serve the request now */
	ANSWER_CHANGED,                /* the object is not the one of the validator */
	ANSWER_MISSING,                /* there is no such object */
	ANSWER_DENIED,                 /* the server refuses the access */
	ANSWER_NO_RANGES,              /* the server sends the whole object */
	ANSWER_BAD                     /* the answer fits no request of ours */
};

/* Reads one line of a header, which may end with CR LF. A status line begins a new header. */
void answer_line(struct answer *a, const char *line, size_t len);
/* Whether the server cannot serve the request now, and a repetition may succeed. */
bool answer_is_busy(const struct answer *a);
/*
 * Judges the answer to a request for the bytes [first, last] of an object. The body of a good
 * answer has at most these bytes: from `first` to a->last.
 */
enum verdict answer_check(const struct answer *a, const struct validator *v, uint64_t first,
			  uint64_t last);
/* Judges the answer to a request for the first byte of an object. If it is good, *v describes the
 * object. An empty object has no first byte, but its answer is good. */
enum verdict answer_check_first(const struct answer *a, struct validator *v);

#endif
