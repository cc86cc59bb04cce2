/* SPDX-License-Identifier: BSD-3-Clause */
/* These functions run while a store is opened, and options_set also in the thread of the loop. */
#include "options.h"

#include "../keys.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REDIRECTS 10L
#define MIN_PART_BYTES 5242880u /* shortest part of an upload that is not the last one */
#define MAX_PART_BYTES ((uint64_t)1 << 30)
#define FIRST_DELAY_MS 100      /* time until the first repetition */
#define MAX_DELAY_MS 5000       /* time until a repetition if the server gives none */
#define MIN_BYTES_PER_S 100L    /* least progress of a long exchange */

/* ---- Keys ---- */

bool options_is_endpoint(const char *text)
{
	bool has_user;

	return (strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0) &&
	       !strpbrk(text, "?#") && options_is_url(text, &has_user) && !has_user;
}

bool options_is_region(const char *text)
{
	size_t len = 0;

	while (isalnum((unsigned char)text[len]) || text[len] == '-')
		len++;
	return len > 0 && len <= 32 && !text[len];
}

static bool parse_word(const char *value, const char *const *words, int *index)
{
	*index = keys_word(value, words);
	return *index >= 0;
}

static bool parse_s3_key(const struct ummap_key *key, struct http_keys *keys)
{
	static const char *const sources[] = { "auto", "none", NULL };
	const char *name = key->name, *value = key->value;
	int word = 0;

	if (strcmp(name, "endpoint") == 0) {
		keys->endpoint = value;
		return options_is_endpoint(value);
	}
	if (strcmp(name, "region") == 0) {
		keys->region = value;
		return options_is_region(value);
	}
	if (strcmp(name, "part") == 0)
		return keys_size(value, &keys->part) && keys->part >= MIN_PART_BYTES &&
		       keys->part <= MAX_PART_BYTES && keys->part % 4096 == 0;
	if (strcmp(name, "profile") == 0) {
		keys->profile = value;
		return *value != '\0';
	}
	keys->is_anonymous = parse_word(value, sources, &word) && word == 1;
	return word >= 0;
}

static bool parse_key(const struct ummap_key *key, struct http_keys *keys)
{
	static const char *const versions[] = { "auto", "1.1", "2", NULL };
	static const long curl_versions[] = { CURL_HTTP_VERSION_2TLS, CURL_HTTP_VERSION_1_1,
					      CURL_HTTP_VERSION_2_0 };
	static const char *const answers[] = { "no", "yes", NULL };
	static const char *const needs[] = { "none", "required", NULL };
	const char *name = key->name, *value = key->value;
	int word = 0;
	bool ok;

	if (strcmp(name, "timeout") == 0)
		return keys_number(value, 1, 86400, &keys->timeout);
	if (strcmp(name, "retries") == 0)
		return keys_number(value, 0, 100, &keys->retries);
	if (strcmp(name, "requests") == 0)
		return keys_number(value, 1, 128, &keys->requests);
	if (strcmp(name, "range") == 0)
		return strcmp(value, "auto") == 0 ||
		       (keys_size(value, &keys->range) && keys->range >= 4096 &&
			keys->range <= (uint64_t)1 << 30);
	if (strcmp(name, "version") == 0) {
		ok = parse_word(value, versions, &word);
		keys->version = curl_versions[ok ? word : 0];
		return ok;
	}
	if (strcmp(name, "validator") == 0) {
		ok = parse_word(value, needs, &word);
		keys->needs_validator = word == 1;
		return ok;
	}
	if (strcmp(name, "whole") == 0) {
		ok = parse_word(value, answers, &word);
		keys->whole = word == 1;
		return ok;
	}
	return parse_s3_key(key, keys);
}

int options_parse_keys(const struct ummap_uri *uri, struct http_keys *keys,
		       struct ummap_geom *geom)
{
	static const struct key_type types[] = { HTTP_KEYS(KEY_TYPE) S3_ONLY_KEYS(KEY_TYPE)
		KEY_TYPES_END };

	*keys = (struct http_keys){ .timeout = 60, .retries = 8, .requests = 64,
				    .part = 8 << 20,
				    .version = CURL_HTTP_VERSION_2TLS, .needs_validator = true };
	for (unsigned i = 0; i < uri->nkeys; i++) {
		if (!parse_key(&uri->keys[i], keys))
			return keys_refuse_value(geom, "", &uri->keys[i], types);
	}
	return 0;
}

/* ---- URL ---- */

/* The library has decoded the path. Encodes what a URL must not contain, except for '%' before two
 * hexadecimal digits, which the user has written as %25. */
static char *encode(const char *scheme, const char *path)
{
	char *url = malloc(strlen(scheme) + 3 * strlen(path) + 2), *to = url;

	if (!url)
		return NULL;
	to += sprintf(to, "%s:", scheme);
	for (; *path; path++) {
		unsigned char c = (unsigned char)*path;
		bool is_code = c == '%' && isxdigit((unsigned char)path[1]) &&
			       isxdigit((unsigned char)path[2]);

		if (c <= ' ' || c >= 0x7f || strchr("\"<>\\^`{|}#", c) || (c == '%' && !is_code))
			to += sprintf(to, "%%%02X", c);
		else
			*to++ = (char)c;
	}
	*to = '\0';
	return url;
}

bool options_is_url(const char *url, bool *has_user)
{
	CURLU *parts = curl_url();
	char *user = NULL, *password = NULL;
	bool ok = parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK;

	*has_user = ok && (curl_url_get(parts, CURLUPART_USER, &user, 0) == CURLUE_OK ||
			   curl_url_get(parts, CURLUPART_PASSWORD, &password, 0) == CURLUE_OK);
	curl_free(user);
	curl_free(password);
	curl_url_cleanup(parts);
	return ok;
}

int options_make_url(const struct ummap_uri *uri, char **url, char **shown,
		     struct ummap_geom *geom)
{
	bool has_user;

	*url = encode(uri->scheme, uri->path);
	*shown = *url ? strndup(*url, strcspn(*url, "?")) : NULL;
	if (!*shown)
		return -ENOMEM;
	if (strncmp(uri->path, "//", 2) != 0 || !options_is_url(*url, &has_user))
		return keys_refuse(geom, EINVAL, "cannot open '%.200s': it is not a URL. Try "
				   "%s://HOST/PATH", *shown, uri->scheme);
	if (has_user)
		return keys_refuse(geom, EINVAL, "cannot open a URL with a user name or a "
				   "password, because URIs appear in logs. Try ~/.netrc");
	return 0;
}

void options_free(struct remote *remote)
{
	struct signer *signer = &remote->signer;

	for (int i = 0; i < 2; i++) {
		char *text = i ? signer->token : signer->secret;

		if (text)
			explicit_bzero(text, strlen(text));
		free(text);
	}
	free(signer->user);
	free(signer->region);
	free(remote->shown);
	free(remote->url);
}

int options_add_line(struct curl_slist **lines, const char *name, const char *value)
{
	struct curl_slist *longer;
	char *line = NULL;

	if (name && asprintf(&line, "%s: %s", name, value) < 0)
		return -ENOMEM;
	longer = curl_slist_append(*lines, line ? line : value);
	if (line)
		explicit_bzero(line, strlen(line));
	free(line);
	*lines = longer ? longer : *lines;
	return longer ? 0 : -ENOMEM;
}

/* ---- Repetitions ---- */

/* The other results are errors of the request, of certificates, and of this machine. */
bool options_is_transient(CURLcode result)
{
	switch (result) {
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_CONNECT:
	case CURLE_PARTIAL_FILE:
	case CURLE_OPERATION_TIMEDOUT:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_GOT_NOTHING:
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_HTTP2:
	case CURLE_HTTP2_STREAM:
		return true;
	default:
		return false;
	}
}

bool options_is_reused(CURL *easy)
{
	long connects = 1;

	curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &connects);
	return connects == 0;
}

/* libcurl also reports success if a connection ends within a header. It has two results for bytes
 * that are not HTTP. */
CURLcode options_result(CURL *easy, const struct answer *head, CURLcode result)
{
	if (result == CURLE_OK && !head->is_complete)
		return CURLE_GOT_NOTHING;
	if ((result != CURLE_UNSUPPORTED_PROTOCOL && result != CURLE_WEIRD_SERVER_REPLY) ||
	    head->status)
		return result;
	return options_is_reused(easy) ? CURLE_GOT_NOTHING : CURLE_WEIRD_SERVER_REPLY;
}

const char *options_error_text(CURLcode result, const char *text)
{
	if (result == CURLE_WEIRD_SERVER_REPLY)
		return "the answer of the server is not HTTP";
	/* libcurl has no other result for a line of a header that is too long. */
	if (result == CURLE_OUT_OF_MEMORY)
		return "a line of the answer is too long, or there is not enough memory";
	return *text ? text : curl_easy_strerror(result);
}

int64_t options_delay(unsigned tries, const struct answer *head)
{
	int64_t delay = (int64_t)FIRST_DELAY_MS << (tries < 6 ? tries : 6);
	int64_t least = (int64_t)head->retry_after * 1000;

	delay = delay < MAX_DELAY_MS ? delay : MAX_DELAY_MS;
	/* Exchanges that have failed together are not repeated together. */
	delay += (int64_t)((uintptr_t)head >> 6) % (delay / 4);
	return delay > least ? delay : least;
}

/* ---- Options of libcurl ---- */

/* libcurl itself does not read these variables; its command curl does. */
static void set_certificates(CURL *easy)
{
	const char *file = secure_getenv("CURL_CA_BUNDLE");
	const char *folder = secure_getenv("SSL_CERT_DIR");

	if (!file || !*file)
		file = secure_getenv("SSL_CERT_FILE");
	if (file && *file)
		curl_easy_setopt(easy, CURLOPT_CAINFO, file);
	if (folder && *folder)
		curl_easy_setopt(easy, CURLOPT_CAPATH, folder);
}

/* A signature is valid for one host only, so there are no redirects. */
static void set_s3(CURL *easy)
{
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
}

long options_stall(const struct http_keys *keys)
{
	return keys->timeout / 4 > 1 ? (long)(keys->timeout / 4) : 1;
}

void options_set(CURL *easy, const struct remote *remote)
{
	const struct http_keys *keys = &remote->keys;
	const char *scheme = remote->scheme;
	long stall = options_stall(keys);

	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, scheme);
	curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR,
			 strcmp(scheme, "http") == 0 ? "http,https" : scheme);
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 1L);
	curl_easy_setopt(easy, CURLOPT_MAXREDIRS, MAX_REDIRECTS);
	curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "libummap/" UMMAP_VERSION);
	curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, keys->version);
	curl_easy_setopt(easy, CURLOPT_PIPEWAIT, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, stall);
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, stall);
	set_certificates(easy);
	if (remote->is_s3)
		set_s3(easy);
}

void options_limit_stall(CURL *easy, const struct http_keys *keys)
{
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, MIN_BYTES_PER_S);
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)keys->timeout);
}
