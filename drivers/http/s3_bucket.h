/* SPDX-License-Identifier: BSD-3-Clause */
/* The bucket and the account of an object of S3. */
#ifndef DRIVERS_HTTP_S3_BUCKET_H
#define DRIVERS_HTTP_S3_BUCKET_H

#include "http.h"

/*
 * Sets keys, URL and signature of a handle from a URI. Returns 0, or a negative errno value, mostly
 * with a message in geom->why.
 */
int s3_set_up(struct remote *remote, const struct ummap_uri *uri, struct ummap_geom *geom);
/* Encodes all characters, except those that signatures leave as they are and those of `also`. `to`
 * has room for three times the text. */
void s3_encode(char *to, const char *text, const char *also);

#endif
