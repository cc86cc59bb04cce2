/* SPDX-License-Identifier: BSD-3-Clause */
/* The bucket and the account of an object of S3, and the lines of signed requests. */
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
/* Appends the lines of the signature of a request with or without a body. Returns 0 or -ENOMEM. */
int s3_add_signature(struct curl_slist **lines, const struct signer *signer, bool has_body);

#endif
