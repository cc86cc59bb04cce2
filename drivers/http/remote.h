/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls that the drivers http, https and s3 have in common. */
#ifndef DRIVERS_HTTP_REMOTE_H
#define DRIVERS_HTTP_REMOTE_H

#include "http.h"

/* Makes a handle without a URL. NULL: no memory. */
struct remote *remote_new(void);
/*
 * Looks at the object of a handle whose URL and keys are set, and describes it. On success, stores
 * the handle in *h and returns 0. On error, frees the handle and returns a negative errno value,
 * mostly with a message in geom->why. err: an error of the caller's preparations, or 0.
 */
int remote_open(struct remote *remote, int err, void **h, struct ummap_geom *geom);
/* Makes remote_reap return a request of the library that has ended. Returns false if all requests
 * of the loop are in use. */
bool remote_submit_done(struct remote *remote, struct ummap_io *io, int res);
/* Stores the identity of the present version of the object. */
void remote_identity(const struct remote *remote, uint64_t id[2]);

/* Functions of struct ummap_driver. */
int remote_close(void *h);
int remote_read(void *h, void *buf, size_t len, uint64_t off);
int remote_submit(void *h, struct ummap_io **io, unsigned n);
int remote_reap(void *h, struct ummap_io **done, unsigned max, unsigned min);
void remote_set_notice(void *h, ummap_notice *notice, void *arg);

#endif
