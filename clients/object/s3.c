/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Containers in S3: s3:BUCKET/PREFIX has these objects behind PREFIX/:
 *
 *	container    the description of the container
 *	n/NAME       a name: the name, and numbers and ids of its versions, the newest first
 *	v/UUID       a version: its state, its name, now or later, and its record
 *	h/UUID/P.N   a hold of a process on a version
 *	p/P          the lease of a process, whose time of change tells that the process lives. P
 *	             ends with the seconds that the lease lasts
 *	c/UUID.N     a chunk, as an HDF5 file like those of containers in folders
 *
 * A commit replaces n/NAME under the condition that it is the one that was read, so no process
 * waits for locks. A server that ignores such conditions is refused.
 */
#include "object/s3.h"

#include "../drivers/http/options.h"
#include "../drivers/http/s3_bucket.h"
#include "../drivers/key_tables.h"
#include "common/size.h"
#include "object/error.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int store_check(const struct bucket *c, int error, const struct reply *reply, const char *format,
		...)
{
	char text[700];
	va_list args;

	if (error == 0)
		return 0;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return object_fail(-error, "%s (s3:%s): %s", text, c->name,
			   *reply->why ? reply->why : strerror(-error));
}

/* ---- Calls ---- */

/* Times of HTTP and of lists. 0: unknown. */
static time_t parse_time(const char *text)
{
	struct tm tm = { 0 };

	if (!strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) &&
	    !strptime(text, "%a, %d %b %Y %H:%M:%S", &tm))
		return 0;
	return timegm(&tm);
}

static int make_call(struct bucket *c, struct s3_call *call, struct reply *reply)
{
	int err = s3_call(c->calls, call);

	memset(reply, 0, sizeof(*reply));
	if (!err)
		strcpy(reply->etag, call->head.etag);
	reply->now = parse_time(call->head.date);
	reply->modified = parse_time(call->head.modified);
	snprintf(reply->why, sizeof(reply->why), "%s", call->why);
	return err;
}

int store_get(struct bucket *c, const char *key, struct bytes *body, struct reply *reply)
{
	struct s3_call call = { .method = "GET", .key = key };
	int err = make_call(c, &call, reply);

	*body = (struct bytes){ NULL, 0 };
	if (!err) {
		*body = (struct bytes){ call.answer ? call.answer : calloc(1, 1), call.got };
		call.answer = NULL;
		err = body->data ? 0 : -ENOMEM;
	}
	s3_call_free(&call);
	return err;
}

/* Whether the object has these bytes. Its ETag is in the reply. */
static bool has_bytes(struct bucket *c, const char *key, const struct bytes *body,
		      struct reply *reply)
{
	struct bytes now;
	bool same = store_get(c, key, &now, reply) == 0 && now.size == body->size &&
		    memcmp(now.data, body->data, now.size) == 0;

	free(now.data);
	return same;
}

static int put(struct bucket *c, const char *key, const struct bytes *body, const char *condition,
	       struct reply *reply)
{
	struct iovec iov = { body->data, body->size };
	struct s3_call call = { .method = "PUT", .key = key, .body = &iov, .nbody = 1,
				.etag = condition };
	int err = make_call(c, &call, reply);

	s3_call_free(&call);
	return condition && err == -ENOENT ? -ESTALE : err;
}

/* If an answer is lost, the repetition by this library or by a gateway fails because of the first
 * success. Bodies that are written under a condition are different from all others. */
int store_put(struct bucket *c, const char *key, const struct bytes *body, const char *condition,
	      struct reply *reply)
{
	int err = put(c, key, body, condition, reply);

	return err == -ESTALE && has_bytes(c, key, body, reply) ? 0 : err;
}

int store_delete(struct bucket *c, const char *key, struct reply *reply)
{
	struct s3_call call = { .method = "DELETE", .key = key };
	int err = make_call(c, &call, reply);

	s3_call_free(&call);
	return err == -ENOENT ? 0 : err;
}

/* ---- Lists ---- */

/* Replaces %XX by its character. */
static void decode_key(char *text)
{
	char *to = text;

	for (; *text; text++) {
		unsigned value;

		if (*text == '%' && sscanf(text + 1, "%2x", &value) == 1) {
			*to++ = (char)value;
			text += 2;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

static int visit_contents(const char *at, size_t prefix_len, visit_key_fn *each, void *arg)
{
	int result = 0;

	while (result == 0 && (at = strstr(at, "<Contents>"))) {
		char key[3 * 1100], size[24], modified[40];
		const char *k = at, *s = at, *m = at;

		if (!s3_element(&k, "Key", key, sizeof(key)) ||
		    !s3_element(&s, "Size", size, sizeof(size)) ||
		    !s3_element(&m, "LastModified", modified, sizeof(modified)))
			return -EBADMSG;
		decode_key(key);
		if (strlen(key) >= prefix_len)
			result = each(arg, key + prefix_len, strtoull(size, NULL, 10),
				      parse_time(modified));
		at += strlen("<Contents>");
	}
	return result;
}

int store_list(struct bucket *c, const char *prefix, visit_key_fn *each, void *arg,
	       struct reply *reply)
{
	const char *folder = strchr(c->remote.shown, '/') + 1;
	char token[1100] = "", query[8192], encoded[3 * 1100], whole[1100];
	int result = 0;

	snprintf(whole, sizeof(whole), "%s%s", folder, prefix);
	do {
		struct s3_call call = { .method = "GET", .is_bucket = true, .query = query };
		const char *at;

		s3_encode(encoded, token, "");
		snprintf(query, sizeof(query), "%s%s%sencoding-type=url&list-type=2&prefix=",
			 *token ? "continuation-token=" : "", encoded, *token ? "&" : "");
		s3_encode(query + strlen(query), whole, "");
		*token = '\0';
		result = make_call(c, &call, reply);
		if (result == 0 && call.answer) {
			result = visit_contents(call.answer, strlen(folder), each, arg);
			at = call.answer;
			s3_element(&at, "NextContinuationToken", token, sizeof(token));
		}
		s3_call_free(&call);
	} while (result == 0 && *token);
	return result;
}

/* ---- Opening ---- */

#define MAX_KEYS 16

/* Whether the driver s3 has the key. */
static bool is_key(const char *key)
{
	char word[64];

	snprintf(word, sizeof(word), " %s ", key);
	return strstr(" " S3_KEYS(KEY_NAME), word);
}

/* Takes the key `lease`, and collects the others for the driver. */
static int parse_keys(struct bucket *c, char *text, struct ummap_key *keys, unsigned *n)
{
	char *key;

	*n = 0;
	while ((key = strsep(&text, "&"))) {
		char *value = strchr(key, '=');
		uint64_t seconds;

		if (!value || *n == MAX_KEYS)
			return object_fail(EINVAL, "cannot use the key '%.60s' of the container: "
					   "it has no value, or there are too many", key);
		*value++ = '\0';
		if (strcmp(key, "lease") != 0) {
			if (!is_key(key))
				return object_fail(EINVAL, "cannot use the key '%.60s' of a "
						   "container in S3: the keys are lease and those "
						   "of the driver s3", key);
			keys[(*n)++] = (struct ummap_key){ key, value };
		} else if (size_parse_count(value, &seconds) == 0 && seconds >= 1 &&
			   seconds <= 86400) {
			c->lease = (unsigned)seconds;
		} else {
			return object_fail(EINVAL, "cannot use lease='%.40s': it must be 1 to "
					   "86400, in seconds", value);
		}
	}
	return 0;
}

static int set_place(struct bucket *c, const char *where)
{
	char *text = strdup(where), *path = NULL, *rest = text;
	struct ummap_geom geom = { .size = 0 };
	struct ummap_key keys[MAX_KEYS];
	struct ummap_uri uri = { .scheme = "s3", .keys = keys };
	int err = 0;

	strsep(&rest, "?");
	c->name = text ? strdup(text) : NULL;
	if (!c->name || asprintf(&path, "%s/", text) < 0)
		return fail_no_memory("open the container");
	if (!strchr(text, '/') || text[strlen(text) - 1] == '/')
		err = object_fail(EINVAL, "cannot open 's3:%.200s': a container has the form "
				  "s3:BUCKET/PREFIX", text);
	if (!err && rest && *rest)
		err = parse_keys(c, rest, keys, &uri.nkeys);
	uri.path = path;
	if (!err && (err = s3_set_up(&c->remote, &uri, &geom)) != 0)
		err = object_fail(-err, "%s", *geom.why ? geom.why : strerror(-err));
	free(path);
	free(text);
	return err;
}

/* Creates the container, and checks that the server minds conditions. */
static int create_container(struct bucket *c, const struct bytes *wanted)
{
	struct reply reply;
	int err = store_put(c, "container", wanted, "", &reply);

	if (!err) {
		err = put(c, "container", wanted, "", &reply);
		if (!err)
			return object_fail(EOPNOTSUPP, "cannot create 's3:%s': the server ignores "
					   "the condition If-None-Match, without which writers "
					   "would overwrite each other", c->name);
	}
	return err == -ESTALE ? 0 : store_check(c, err, &reply, "cannot create the container");
}

static int read_description(struct bucket *c, struct bytes *description)
{
	struct reply reply;
	int err = store_get(c, "container", description, &reply);

	if (err == -ENOENT)
		return object_fail(ENOENT, "cannot open 's3:%s': there is no container. Try "
				   "\"umobject create\"", c->name);
	return store_check(c, err, &reply, "cannot read the container");
}

static void s3_close(struct backend *b)
{
	struct bucket *c = bucket_of(b);

	if (c->calls) {
		end_s3_chunks(c);
		stop_lease(c);
	}
	s3_calls_free(c->calls);
	options_free(&c->remote);
	pthread_mutex_destroy(&c->chunk_lock);
	pthread_mutex_destroy(&c->beat_lock);
	pthread_cond_destroy(&c->wake);
	free(c->name);
	free(c);
}

static int s3_open(const char *where, const struct bytes *wanted, struct bytes *description,
		   struct backend **b)
{
	struct bucket *c = calloc(1, sizeof(*c));
	pthread_condattr_t monotonic;
	int err;

	if (!c || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		free(c);
		return fail_no_memory("open the container");
	}
	c->b.ops = &umobject_backend;
	c->lease = 60;
	pthread_mutex_init(&c->chunk_lock, NULL);
	pthread_mutex_init(&c->beat_lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&c->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	err = set_place(c, where);
	if (!err && !(c->calls = s3_calls_new(&c->remote)))
		err = fail_no_memory("open the container");
	if (!err && wanted)
		err = create_container(c, wanted);
	if (!err)
		err = read_description(c, description);
	if (!err && (err = start_lease(c)) < 0)
		free(description->data);
	if (err) {
		int error = errno;

		s3_close(&c->b);
		errno = error;
		return -1;
	}
	*b = &c->b;
	return 0;
}

__attribute__((visibility("default")))
const struct backend_ops umobject_backend = {
	.abi = BACKEND_ABI,
	.scheme = "s3",
	.open = s3_open,
	.close = s3_close,
	.chunks = &s3_chunks,
	.versions = &s3_versions,
	.names = &s3_names,
};
