/* SPDX-License-Identifier: BSD-3-Clause */
/* Names as objects of S3, which are replaced if they are as they were read. The object has the name
 * with a zero, and a line for each version: its number and its id, the newest first. */
#include "object/s3.h"

#include "object/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINE_BYTES (21 + ID_TEXT)

struct entry {
	struct umobject_id id;
	uint64_t version;
};

/* The versions of a name, the newest first. */
struct entries {
	struct entry *list;
	size_t n;
	struct reply reply;            /* its ETag: "" if there is no such name */
};

static void name_key(const char *name, char key[static KEY_BYTES])
{
	char text[NAME_TEXT], encoded[3 * NAME_TEXT];
	char *to = encoded;

	name_escape(name, text);
	/* The only other character of an escaped name is '%'. */
	for (const char *at = text; *at; at++)
		to += sprintf(to, *at == '%' ? "%%25" : "%c", *at);
	snprintf(key, KEY_BYTES, "n/%.*s", KEY_BYTES - 3, encoded);
}

/* ---- Reading ---- */

static bool parse_entries(char *text, struct entries *e)
{
	while (*text) {
		struct entry *longer = realloc(e->list, (e->n + 1) * sizeof(*longer));
		const char *rest;

		if (!longer)
			return false;
		e->list = longer;
		longer[e->n].version = strtoull(text, &text, 10);
		rest = *text == ' ' ? id_parse(text + 1, &longer[e->n].id) : NULL;
		if (!rest || *rest != '\n' || !longer[e->n].version)
			return false;
		text += rest + 1 - text;
		e->n++;
	}
	return e->n > 0;
}

/* -ENOENT, -EBADMSG. */
static int read_entries(struct bucket *c, const char *name, struct entries *e)
{
	char key[KEY_BYTES], *text;
	struct bytes body;
	int err;

	*e = (struct entries){ .n = 0 };
	name_key(name, key);
	err = store_get(c, key, &body, &e->reply);
	if (err)
		return err;
	text = body.data;
	/* A body ends with a zero that is not counted. */
	if (strnlen(text, body.size) >= body.size || strcmp(text, name) != 0 ||
	    !parse_entries(text + strlen(text) + 1, e))
		err = -EBADMSG;
	free(body.data);
	if (err) {
		free(e->list);
		e->list = NULL;
	}
	return err;
}

static int refuse_name(const struct bucket *c, int err, const struct reply *reply,
		       const char *name)
{
	if (err == -EBADMSG)
		return object_fail(EBADMSG, "the name '%s' in 's3:%s' is damaged", name, c->name);
	return store_check(c, err, reply, "cannot read the name '%s'", name);
}

int is_named_s3(struct bucket *c, const char *name, const struct umobject_id *id,
		struct reply *reply)
{
	struct entries e;
	int err = *name ? read_entries(c, name, &e) : -ENOENT, found = 0;

	if (err) {
		*reply = *name ? e.reply : (struct reply){ .now = 0 };
		return err == -ENOENT ? 0 : err;
	}
	for (size_t i = 0; i < e.n; i++)
		found |= id_same(&e.list[i].id, id);
	free(e.list);
	return found;
}

/* Finds a version of a name (0: the newest). */
static int find_entry(struct bucket *c, const char *name, uint64_t version, struct entry *found,
		      struct reply *reply)
{
	struct entries e;
	int err = read_entries(c, name, &e);
	size_t i = 0;

	*reply = e.reply;
	if (err)
		return err;
	while (i < e.n && version && e.list[i].version != version)
		i++;
	if (i < e.n)
		*found = e.list[i];
	free(e.list);
	return i < e.n ? 0 : -ENOENT;
}

static struct lease *hold_name(struct backend *b, const char *name, uint64_t version)
{
	struct bucket *c = bucket_of(b);
	struct entry e, before = { .version = 0 };
	struct reply reply = { .now = 0 };
	struct lease *lease;
	char text[ID_TEXT];

	/* A version that is gone has been replaced by a newer one, so the loop ends. */
	for (;;) {
		int err = find_entry(c, name, version, &e, &reply);

		if (err) {
			refuse_name(c, err, &reply, name);
			return NULL;
		}
		err = hold_id(c, &e.id, &lease, &reply);
		if (!err)
			return lease;
		id_text(&e.id, text);
		if (err != -ENOENT) {
			store_check(c, err, &reply, "cannot read version '%s'", text);
			return NULL;
		}
		if (before.version && id_same(&e.id, &before.id)) {
			object_fail(EBADMSG, "the name '%s' in 's3:%s' is damaged: its version "
				    "'%s' is missing", name, c->name, text);
			return NULL;
		}
		before = e;
	}
}

/* ---- Committing ---- */

/* Replaces a name that had the ETag (""; none) by its first n versions. */
static int write_entries(struct bucket *c, const char *name, const struct entry *list, size_t n,
			 const char *etag, struct reply *reply)
{
	struct bytes body = { malloc(strlen(name) + 2 + n * LINE_BYTES), 0 };
	char *text = body.data, id[ID_TEXT], key[KEY_BYTES];
	int err;

	if (!text)
		return -ENOMEM;
	body.size = (size_t)sprintf(text, "%s", name) + 1;
	for (size_t i = 0; i < n; i++) {
		id_text(&list[i].id, id);
		body.size += (size_t)sprintf(text + body.size, "%" PRIu64 " %s\n", list[i].version,
					     id);
	}
	name_key(name, key);
	err = store_put(c, key, &body, etag, reply);
	free(text);
	return err;
}

static double read_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Undoes a commit, unless another process has changed the name since. etag: of the commit. */
static void undo(struct bucket *c, const char *name, const struct entries *old, const char *etag)
{
	char key[KEY_BYTES];
	struct reply reply;

	name_key(name, key);
	if (old->n)
		write_entries(c, name, old->list, old->n, etag, &reply);
	else
		store_delete(c, key, &reply);
}

static int name_version(struct bucket *c, struct lease *lease, const char *name, uint64_t version,
			unsigned keep, const struct bytes *record, struct reply *reply)
{
	struct entries old;
	struct entry *list;
	double since = read_clock();
	int err = read_entries(c, name, &old);
	char etag[MAX_ETAG_BYTES];

	*reply = old.reply;
	if (err && err != -ENOENT)
		return err;
	list = calloc(old.n + 1, sizeof(*list));
	if ((old.n ? old.list[0].version : 0) != version - 1)
		err = -EAGAIN;
	else
		err = list ? 0 : -ENOMEM;
	if (!err) {
		list[0] = (struct entry){ *id_of_lease(lease), version };
		for (size_t i = 0; i < old.n; i++)
			list[i + 1] = old.list[i];
		err = write_entries(c, name, list, old.n + 1 < keep ? old.n + 1 : keep,
				    old.reply.etag, reply);
		err = err == -ESTALE ? -EAGAIN : err;
		strcpy(etag, reply->etag);
	}
	/* The version may have lost its holder before it had the name. */
	if (!err && read_clock() - since >= c->lease &&
	    write_record(c, lease, record, reply) < 0) {
		undo(c, name, &old, etag);
		err = -ESTALE;
	}
	free(list);
	free(old.list);
	return err;
}

static int publish_version(struct backend *b, struct lease *lease, const char *name,
			   uint64_t version, unsigned keep, const struct bytes *record)
{
	struct bucket *c = bucket_of(b);
	struct reply reply = { .now = 0 };
	int err;

	if (s3_chunks.sync(b, id_of_lease(lease)) < 0)
		return -1;
	err = write_record(c, lease, record, &reply);
	if (!err)
		err = name_version(c, lease, name, version, keep, record, &reply);
	if (err == -EAGAIN)
		return object_fail(EAGAIN, "cannot commit '%s': another version was committed in "
				   "the meantime", name);
	if (err == -ESTALE)
		return object_fail(ESTALE, "cannot commit '%s': its lease of %u s in 's3:%s' "
				   "expired, and gc may have removed the version. Try a greater "
				   "lease=", name, c->lease, c->name);
	if (err == -EBADMSG)
		return refuse_name(c, err, &reply, name);
	return store_check(c, err, &reply, "cannot commit a version of '%s'", name);
}

static int remove_name(struct backend *b, const char *name)
{
	struct bucket *c = bucket_of(b);
	char key[KEY_BYTES];
	struct entries e;
	int err = read_entries(c, name, &e);

	if (err && err != -EBADMSG)
		return refuse_name(c, err, &e.reply, name);
	free(e.list);
	name_key(name, key);
	err = store_delete(c, key, &e.reply);
	return store_check(c, err, &e.reply, "cannot delete the object '%s'", name);
}

/* ---- Listing ---- */

struct name_visit {
	struct bucket *c;
	visit_name_fn *each;
	void *arg;
	int returned;                  /* by `each` */
};

/* The key of a long name is its hash. */
static char *read_name(struct bucket *c, const char *key)
{
	char *name = name_unescape(key + 2), encoded[KEY_BYTES];
	struct reply reply;
	struct bytes body;

	if (name)
		return name;
	snprintf(encoded, sizeof(encoded), "n/%%25%%25%.200s", strncmp(key, "n/%%", 4) == 0 ?
		 key + 4 : "");
	if (store_get(c, encoded, &body, &reply) < 0)
		return NULL;
	if (strnlen(body.data, body.size) < body.size)
		name = strdup(body.data);
	free(body.data);
	return name;
}

static int visit_name(void *arg, const char *key, uint64_t size, time_t modified)
{
	struct name_visit *l = arg;
	char *name = read_name(l->c, key);

	(void)size;
	(void)modified;
	if (name)
		l->returned = l->each(l->arg, name);
	free(name);
	return l->returned != 0;
}

static int list_names(struct backend *b, visit_name_fn *each, void *arg)
{
	struct name_visit l = { bucket_of(b), each, arg, 0 };
	struct reply reply;
	int err = store_list(l.c, "n/", visit_name, &l, &reply);

	return err < 0 ? store_check(l.c, err, &reply, "cannot list the names") : l.returned;
}

static int list_numbers(struct backend *b, const char *name, visit_number_fn *each, void *arg)
{
	struct entries e;
	int result = read_entries(bucket_of(b), name, &e);

	if (result < 0)
		return refuse_name(bucket_of(b), result, &e.reply, name);
	for (size_t i = e.n; i > 0 && result == 0; i--)
		result = each(arg, e.list[i - 1].version);
	free(e.list);
	return result;
}

const struct name_ops s3_names = {
	.hold = hold_name,
	.publish = publish_version,
	.remove = remove_name,
	.list = list_names,
	.list_versions = list_numbers,
};
