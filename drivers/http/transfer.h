/* SPDX-License-Identifier: BSD-3-Clause */
/* Exchanges with servers. Only the thread of the loop calls these functions, except
 * transfer_free. */
#ifndef DRIVERS_HTTP_TRANSFER_H
#define DRIVERS_HTTP_TRANSFER_H

#include "http.h"

struct transfer {
	struct transfer *next;         /* next one in a list of the loop or of the handle */
	CURL *easy;                    /* handle of libcurl */
	struct request *request;       /* request that the next bytes are for */
	struct request *more;          /* requests for the bytes after those of `request` */
	uint32_t order;                /* position in the order of service; it wraps around */
	size_t at, len;                /* bytes to read, from those of `request` on */
	size_t got;                    /* bytes of these that have been stored */
	size_t received;               /* bytes that the present exchange has stored */
	unsigned version;              /* version of the object in `expected` and `lines` */
	struct validator expected;     /* state of the object that the answer must have */
	struct curl_slist *lines;      /* lines of the request */
	struct answer answer;          /* header of the answer */
	enum verdict verdict;          /* judgment of the answer */
	char code[40];                 /* code of an error that S3 reports; "": none */
	bool is_judged;                /* whether verdict is valid */
	bool is_doubtful;              /* whether the next exchange needs a new connection */
	bool is_retry_of_url;          /* whether the URL replaces one that a redirect has given */
	bool runs;                     /* whether libcurl works on it */
	unsigned tries;                /* repetitions so far */
	int64_t again_at;              /* time in ms of the next repetition */
	char error[CURL_ERROR_SIZE];   /* message of libcurl */
};

/* The consequence of the end of an exchange. */
enum outcome {
	OUTCOME_DONE,                  /* all bytes of the transfer are there */
	OUTCOME_AGAIN,                 /* repeat the transfer at again_at */
	OUTCOME_FAILED                 /* the request fails; request->res has the error */
};

/* Takes an idle transfer of the handle, or makes one. NULL: no memory. */
struct transfer *transfer_take(struct remote *remote);
/* Prepares the exchange for the bytes that the transfer lacks. Returns 0 or a negative errno
 * value. */
int transfer_prepare(struct transfer *t);
/* Decides what follows an exchange that has ended with this result. */
enum outcome transfer_finish(struct transfer *t, CURLcode result);
/* Makes the transfer idle. */
void transfer_release(struct transfer *t);
/* Frees all idle transfers of a handle that has no others. */
void transfer_free(struct remote *remote);

#endif
