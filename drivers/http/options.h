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
/* Whether an exchange used a connection of earlier ones. Its answer may then be the rest of an
 * earlier answer. */
bool options_is_reused(CURL *easy);
/* The result of an exchange, from the header of its answer and the result that libcurl reports. */
CURLcode options_result(CURL *easy, const struct answer *head, CURLcode result);
/* The reason of a failed exchange. text: message of libcurl, "" if there is none. */
const char *options_error_text(CURLcode result, const char *text);
/* Milliseconds until the repetition of an exchange that has been repeated `tries` times. head: the
 * answer, at an address that differs for other exchanges. */
int64_t options_delay(unsigned tries, const struct answer *head);
/* Seconds without progress after which an exchange fails, early enough for repetitions. */
long options_stall(const struct http_keys *keys);
/* Lets a long exchange go on as long as it makes progress. */
void options_limit_stall(CURL *easy, const struct http_keys *keys);
/* Sets all options that are equal for all exchanges of a handle. */
void options_set(CURL *easy, const struct remote *remote);

#endif
