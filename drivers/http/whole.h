/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects of servers that cannot send ranges: the whole object in a temporary file. */
#ifndef DRIVERS_HTTP_WHOLE_H
#define DRIVERS_HTTP_WHOLE_H

#include "http.h"

/* Downloads the object. Returns 0, or a negative errno value with a message. Not in a signal
 * handler. */
int whole_download(struct remote *remote, struct ummap_geom *geom);
/* Makes a temporary file without a name. Returns its descriptor, or a negative errno value with a
 * message. */
int whole_make_file(struct ummap_geom *geom);
/* Reads bytes inside the object. */
int whole_read(const struct remote *remote, void *buf, size_t len, uint64_t off);

#endif
