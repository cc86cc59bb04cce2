/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The structures that the files of the drivers http, https and s3 share. A thread that needs bytes
 * fills in a request and hands it to the loop (loop.h), a thread that has all sockets. The loop
 * divides the request into transfers (transfer.h), each of which is one exchange with the server,
 * or its repetition.
 */
#ifndef DRIVERS_HTTP_H
#define DRIVERS_HTTP_H

#include "../notice.h"
#include "answer.h"
#include "range.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <ummap-driver.h>

struct transfer;

/* The values of a URI's keys. */
struct http_keys {
	uint64_t timeout;              /* seconds for a load, repetitions included */
	uint64_t retries;              /* repetitions of a transfer */
	uint64_t requests;             /* transfers at a time */
	uint64_t range;                /* longest range of a transfer, in bytes; 0: as measured */
	long version;                  /* CURL_HTTP_VERSION_* */
	bool needs_validator;          /* whether an object without validator is refused */
	bool whole;                    /* whether an object may be downloaded as a whole */
	uint64_t part;                 /* S3: bytes of a part of an upload */
	/* Keys of s3, which are valid only until the handle is open. NULL: none. */
	const char *endpoint, *region, *profile;
	bool is_anonymous;             /* whether requests are not signed */
};

/* The signature of requests for S3. The strings are copies. */
struct signer {
	char *region;                  /* region of the bucket; NULL: no signature */
	char *user, *secret;           /* access key */
	char *token;                   /* session token; "": none */
};

/* A handle. The loop changes the fields after `keys`; `fd` and the fields before do not change. */
struct remote {
	char *url;                     /* URL of the mapping */
	char *shown;                   /* URL without its query, or s3:BUCKET/KEY, for messages */
	const char *scheme;            /* scheme of the URL and of its redirects */
	bool is_s3;                    /* whether the server has the interface of S3 */
	size_t bucket_len;             /* S3: bytes of the URL of the bucket, in url */
	struct signer signer;          /* signature of the requests */
	bool may_create;               /* whether the object may be missing at opening */
	struct http_keys keys;
	pid_t owner;                   /* process that has opened it */
	int fd;                        /* temporary file of a whole object; -1: none */
	_Atomic uint32_t lock;         /* protects `object` and `why` while requests are made */
	struct validator object;       /* state of the object at opening, or after a replacement */
	_Atomic unsigned version;      /* number of that state; 1: before the handle is open */
	_Atomic bool is_replacing;     /* whether the handle may be replacing the object just now */
	_Atomic uint64_t total;        /* length of the object */
	char *current_url;             /* URL after redirects; NULL: unknown */
	/* Appends the signature to the header of a request (s3_sign.h); NULL: the server needs
	 * none. Returns 0 or -ENOMEM. */
	int (*sign)(struct curl_slist **lines, const struct signer *signer, const char *method,
		    const char *url, bool has_body);
	struct transfer *idle;         /* transfers without a request */
	unsigned active;               /* number of transfers with a request */
	struct pace pace;              /* measured time of transfers */
	unsigned lost;                 /* version that another object has replaced; 0: none */
	struct notice notice;          /* receiver of notices */
	bool has_noticed;              /* whether a failed load has been reported */
	char why[UMMAP_WHY_BYTES];     /* reason of the last failure */
};

/* Only in the last two states does `owner` name the thread of the request. */
enum request_state { REQUEST_FREE, REQUEST_TAKEN, REQUEST_BUSY, REQUEST_DONE };

/* A read of a range inside the object. The submitting thread fills it in; then it belongs to the
 * loop until its state is REQUEST_DONE. */
struct request {
	_Atomic uint32_t state;        /* enum request_state */
	struct request *next;          /* next one in a list of the loop or of a transfer */
	struct remote *remote;         /* object to read */
	struct ummap_io *io;           /* request of the library; NULL: opening */
	_Atomic pthread_t owner;       /* thread that reaps the request */
	char *buf;                     /* destination */
	size_t len;                    /* bytes to read */
	uint64_t off;                  /* first byte in the object */
	size_t begun;                  /* bytes for which there are or were transfers */
	unsigned active;               /* number of its transfers */
	int64_t deadline;              /* time in ms at which the request fails */
	int res;                       /* result: 0 or a negative errno value */
};

#endif
