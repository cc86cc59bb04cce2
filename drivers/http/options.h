/* SPDX-License-Identifier: BSD-3-Clause */
/* The keys of a URI, its URL, and the options of libcurl that follow from both. */
#ifndef DRIVERS_HTTP_OPTIONS_H
#define DRIVERS_HTTP_OPTIONS_H

#include "http.h"

/* Returns 0, or a negative errno value with a message in geom->why. */
int options_parse_keys(const struct ummap_uri *uri, struct http_keys *keys,
		       struct ummap_geom *geom);
/* Stores the URL of a URI and its form for messages, which the caller frees. Returns 0, or a
 * negative errno value with a message. */
int options_make_url(const struct ummap_uri *uri, char **url, char **shown,
		     struct ummap_geom *geom);
/* Whether the text can be the URL of a server, or the name of a region. */
bool options_is_endpoint(const char *text);
bool options_is_region(const char *text);
/* Whether libcurl accepts the URL. *has_user: whether it has a user name or a password. */
bool options_is_url(const char *url, bool *has_user);
/* Frees the URL, its form for messages and the signer. */
void options_free(struct remote *remote);
/* Appends a line to the header of a request. name: NULL if `value` is the whole line. Returns 0 or
 * -ENOMEM. */
int options_add_line(struct curl_slist **lines, const char *name, const char *value);
/* Whether a repetition of an exchange with this result may succeed. */
bool options_is_transient(CURLcode result);
/* Milliseconds until the repetition of a transfer that has been repeated `tries` times. place: any
 * address, which differs for other transfers. */
int64_t options_delay(unsigned tries, const void *place);
/* Sets all options that are equal for all exchanges of a handle. */
void options_set(CURL *easy, const struct remote *remote);

#endif
