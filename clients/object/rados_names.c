/* SPDX-License-Identifier: BSD-3-Clause */
/* Versions, and the names that refer to them: keys of omap that are compared before they are set. */
#include "object/rados.h"

#include "object/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Versions of a name that are kept at most, and one more. */
#define VERSIONS_MAX 1001
#define DIGITS 20

/* What n/NAME has: the newest version. v/NAME has only the id. */
struct entry {
	struct umobject_id id;
	uint64_t version;
};

/* A key of omap. */
struct key {
	char text[2 + UMOBJECT_NAME_MAX + 1 + DIGITS + 1];
	size_t len;
};

static void shard_of(const char *name, char oid[static OID_TEXT])
{
	snprintf(oid, OID_TEXT, "names.%x", (unsigned)(XXH3_64bits(name, strlen(name)) % SHARDS));
}

static void newest_key(const char *name, struct key *k)
{
	k->len = (size_t)sprintf(k->text, "n/%s", name);
}

/* Those of a name stand together, in the order of their numbers. */
static void version_key(const char *name, uint64_t version, struct key *k)
{
	size_t len = (size_t)sprintf(k->text, "v/%s", name) + 1;

	k->len = len + (size_t)sprintf(k->text + len, "%0*llu", DIGITS, (unsigned long long)version);
}

int rados_make_names(struct cluster *c)
{
	int shard, result;

	for (shard = 0; shard < SHARDS; shard++) {
		rados_write_op_t op = rados_create_write_op();
		char oid[OID_TEXT];

		snprintf(oid, sizeof(oid), "names.%x", (unsigned)shard);
		rados_write_op_create(op, LIBRADOS_CREATE_IDEMPOTENT, NULL);
		/* Where there is no omap it is better known now. */
		rados_write_op_omap_rm_keys2(op, (const char *[]){ "-" }, (size_t[]){ 1 }, 1);
		result = rados_do(c, op, oid);
		if (result < 0)
			return rados_refuse(c, result, "cannot create the container 'rados:%s'",
					    c->name);
	}
	return 0;
}

/* ---- Keys that are read ---- */

/* Up to 2 keys of an object at once, each as memory for the caller to free, or NULL. 0 or a negative errno. */
struct values {
	void *bytes[2];
	size_t size[2];
};

static void values_free(struct values *v)
{
	free(v->bytes[0]);
	free(v->bytes[1]);
}

static int take_values(rados_omap_iter_t iter, const char *const *keys, size_t n, struct values *v)
{
	char *key, *value;
	size_t len, size, i;
	int result;

	while ((result = rados_omap_get_next2(iter, &key, &value, &len, &size)) == 0 && key) {
		for (i = 0; i < n; i++) {
			if (strlen(keys[i]) != len || memcmp(keys[i], key, len) != 0)
				continue;
			v->bytes[i] = malloc(size + 1);
			if (!v->bytes[i])
				return -ENOMEM;
			memcpy(v->bytes[i], value, size);
			v->size[i] = size;
		}
	}
	return result;
}

/* The read of keys that end with a zero, begun and finished. */
struct reading {
	rados_read_op_t op;
	rados_omap_iter_t iter;
	rados_completion_t done;
	int refused, result;
};

static void begin_reading(const struct cluster *c, const char *oid, const char *const *keys, size_t n, struct reading *r)
{
	size_t lens[2] = { strlen(keys[0]), n > 1 ? strlen(keys[1]) : 0 };

	*r = (struct reading){ .op = rados_create_read_op() };
	rados_read_op_omap_get_vals_by_keys2(r->op, keys, n, lens, &r->iter, &r->result);
	r->refused = rados_aio_create_completion2(NULL, NULL, &r->done);
	if (r->refused == 0) {
		/* Behind writes of ours that are on their way. */
		r->refused = rados_aio_read_op_operate(r->op, c->io, r->done, oid, LIBRADOS_OPERATION_ORDER_READS_WRITES);
		if (r->refused < 0)
			rados_aio_release(r->done);
	}
}

static int finish_reading(struct reading *r, const char *const *keys, size_t n, struct values *v)
{
	int result = r->refused;

	*v = (struct values){ { NULL }, { 0 } };
	if (result == 0)
		result = rados_finish(r->done);
	if (result == 0)
		result = r->result;
	if (result == 0) {
		result = take_values(r->iter, keys, n, v);
		rados_omap_get_end(r->iter);
	}
	rados_release_read_op(r->op);
	if (result < 0)
		values_free(v);
	return result;
}

static int read_values(const struct cluster *c, const char *oid, const char *const *keys, size_t n, struct values *v)
{
	struct reading r;

	begin_reading(c, oid, keys, n, &r);
	return finish_reading(&r, keys, n, v);
}

/* The newest version of a name; -ENOENT: there is no such name. */
static int newest(const struct cluster *c, const char *name, struct entry *e)
{
	const char *keys[1];
	char oid[OID_TEXT];
	struct values v;
	struct key k;
	int result;

	shard_of(name, oid);
	newest_key(name, &k);
	keys[0] = k.text;
	result = read_values(c, oid, keys, 1, &v);
	if (result < 0)
		return result;
	result = v.size[0] == sizeof(*e) ? 0 : v.bytes[0] ? -EBADMSG : -ENOENT;
	if (result == 0)
		memcpy(e, v.bytes[0], sizeof(*e));
	values_free(&v);
	return result;
}

/* Calls each for the versions of a name that are kept, until it returns other than 0. A negative errno, or what it returned. */
static int each_version(const struct cluster *c, const char *name, int (*each)(void *arg, const struct entry *e), void *arg)
{
	rados_read_op_t op = rados_create_read_op();
	char oid[OID_TEXT], *key, *value;
	size_t len, size, front;
	rados_omap_iter_t iter;
	unsigned char more;
	struct key k;
	int result, inner;

	shard_of(name, oid);
	/* All of them are behind the key without a number, which is none. */
	version_key(name, 0, &k);
	front = k.len - DIGITS;
	rados_read_op_omap_get_vals2(op, k.text, "", VERSIONS_MAX, &iter, &more, &inner);
	result = rados_read_op_operate(op, c->io, oid, LIBRADOS_OPERATION_ORDER_READS_WRITES);
	if (result == 0)
		result = inner;
	if (result == 0) {
		while (result == 0 && (result = rados_omap_get_next2(iter, &key, &value, &len, &size)) == 0 && key) {
			struct entry e = { .version = 0 };

			if (len != front + DIGITS || memcmp(key, k.text, front) != 0 || size != sizeof(e.id))
				break;
			memcpy(&e.id, value, sizeof(e.id));
			e.version = strtoull(key + front, NULL, 10);
			result = each(arg, &e);
		}
		rados_omap_get_end(iter);
	}
	rados_release_read_op(op);
	return result;
}

/* Looks for one. */
struct search {
	struct entry wanted;
	bool by_id;
	bool found;
};

static int compare_entry(void *arg, const struct entry *e)
{
	struct search *s = arg;

	if (s->by_id ? memcmp(&e->id, &s->wanted.id, sizeof(e->id)) != 0 : e->version != s->wanted.version)
		return 0;
	s->wanted = *e;
	s->found = true;
	return 1;
}

static int end_at_first(void *arg, const struct entry *e)
{
	(void)arg;
	(void)e;
	return 1;
}

static bool has_versions(const struct cluster *c, const char *name)
{
	return each_version(c, name, end_at_first, NULL) > 0;
}

/* rados_name_remove and a commit change all records of a name at once, so a name with versions and no newest one is damaged. Commits
 * and removals between these looks make them differ. */
static bool is_lost(const struct cluster *c, const char *name)
{
	struct entry e;

	return newest(c, name, &e) == -ENOENT && has_versions(c, name) && newest(c, name, &e) == -ENOENT && has_versions(c, name);
}

static int look_up(const struct cluster *c, const char *name, uint64_t version, struct entry *e)
{
	struct search s = { .wanted = { .version = version } };
	int result;

	if (version == 0)
		return newest(c, name, e);
	result = each_version(c, name, compare_entry, &s);
	*e = s.wanted;
	return result < 0 ? result : s.found ? 0 : -ENOENT;
}

/* ---- Versions ---- */

int rados_version_new(struct backend *b, const struct umobject_id *id, const char *name, const void *bytes, size_t size,
		      struct lease **lease)
{
	struct cluster *c = of(b);
	struct lease *l = lease_make(c, id, false);
	rados_write_op_t op;
	int result;

	if (!l)
		return -1;
	op = rados_create_write_op();
	rados_write_op_create(op, LIBRADOS_CREATE_EXCLUSIVE, NULL);
	rados_write_op_omap_set2(op, (const char *[]){ "object", "name" }, (const char *[]){ bytes, name }, (size_t[]){ 6, 4 },
				 (size_t[]){ size, strlen(name) + 1 }, 2);
	lease_take(op, c, l);
	result = rados_do(c, op, l->oid);
	if (result < 0) {
		free(l);
		return rados_refuse(c, result, "cannot create a version in 'rados:%s'", c->name);
	}
	lease_keep(c, l);
	*lease = l;
	return 0;
}

/* 0 or a negative errno: -ENOENT: it is gone or is going, -EBUSY: a collector looks at it. */
static int hold(struct cluster *c, const struct umobject_id *id, struct lease **lease, void **bytes, size_t *size)
{
	static const char *const keys[] = { "object" };
	struct lease *l = lease_make(c, id, false);
	rados_completion_t done;
	struct reading r;
	struct values v;
	rados_write_op_t op;
	int result, got;

	if (!l)
		return -ENOMEM;
	op = rados_create_write_op();
	lease_alive(op);
	lease_take(op, c, l);
	result = rados_begin(c, op, l->oid, &done);
	if (result < 0) {
		free(l);
		return result;
	}
	/* Both at once. */
	begin_reading(c, l->oid, keys, 1, &r);
	result = rados_finish(done);
	got = finish_reading(&r, keys, 1, &v);
	if (result < 0) {
		if (got == 0)
			values_free(&v);
		free(l);
		return result == -ECANCELED ? -ENOENT : result;
	}
	lease_keep(c, l);
	if (got < 0) {
		lease_end(c, l);
		return got;
	}
	if (!v.bytes[0]) {
		lease_end(c, l);
		return -EBADMSG;
	}
	*bytes = v.bytes[0];
	*size = v.size[0];
	*lease = l;
	return 0;
}

static int refuse_hold(const struct cluster *c, int result, const struct umobject_id *id)
{
	char text[37];

	rados_id(id, text);
	if (result == -ENOENT || result == -EBUSY)
		return object_fail(ENOENT, "cannot find version '%s' in 'rados:%s'", text, c->name);
	if (result == -EBADMSG)
		return object_fail(EBADMSG, "version '%s' in 'rados:%s' is damaged: it is empty",
				   text, c->name);
	return rados_refuse(c, result, "cannot read version '%s' from 'rados:%s'", text, c->name);
}

int rados_version_hold(struct backend *b, const struct umobject_id *id, struct lease **lease, void **bytes, size_t *size)
{
	int result = hold(of(b), id, lease, bytes, size);

	return result < 0 ? refuse_hold(of(b), result, id) : 0;
}

static int refuse_name(const struct cluster *c, int result, const char *name, uint64_t version)
{
	if (result == -ENOENT && version)
		return object_fail(ENOENT, "cannot find version %llu of '%s' in 'rados:%s': it "
				   "does not exist or is no longer kept. Try \"umobject ls "
				   "CONTAINER NAME\"", (unsigned long long)version, name, c->name);
	if (result == -ENOENT)
		return object_fail(ENOENT, "cannot find the object '%s' in 'rados:%s'. Try "
				   "\"umobject ls\"", name, c->name);
	if (result == -EBADMSG)
		return object_fail(EBADMSG, "the name '%s' in 'rados:%s' is damaged", name,
				   c->name);
	return rados_refuse(c, result, "cannot read the name '%s' from 'rados:%s'", name, c->name);
}

int rados_name_hold(struct backend *b, const char *name, uint64_t version, struct lease **lease, void **bytes, size_t *size)
{
	struct entry e, before = { .version = 0 };
	struct cluster *c = of(b);
	char text[37];
	int result;

	/* Each time somebody else has made a newer one, so this ends. */
	for (;;) {
		result = look_up(c, name, version, &e);
		if (result < 0)
			return refuse_name(c, result, name, version);
		result = hold(c, &e.id, lease, bytes, size);
		if (result == 0)
			return 0;
		if (result != -ENOENT && result != -EBUSY)
			return refuse_hold(c, result, &e.id);
		/* A collector looks at what has no name only, and for no longer than it takes to see that this one has got it. */
		if (result == -EBUSY) {
			usleep(1000);
		} else if (memcmp(&e.id, &before.id, sizeof(e.id)) == 0) {
			rados_id(&e.id, text);
			return object_fail(EBADMSG, "the name '%s' in 'rados:%s' is damaged: its "
					   "version '%s' is missing", name, c->name, text);
		} else {
			before = e;
		}
	}
}

void rados_release(struct backend *b, struct lease *lease)
{
	/* As long as nobody knows whether it has got a name, nobody may take it for garbage. */
	if (!lease->doubtful)
		lease_end(of(b), lease);
}

/* ---- Names ---- */

/* In an operation: it happens if this is still the newest version; NULL: if there is none. */
static void if_newest(rados_write_op_t op, const struct key *k, const struct entry *e)
{
	rados_write_op_omap_cmp2(op, k->text, LIBRADOS_CMPXATTR_OP_EQ, (const char *)e, k->len, e ? sizeof(*e) : 0, NULL);
}

/* In an operation: drops the versions [first, end). */
static void drop_versions(rados_write_op_t op, const char *name, uint64_t first, uint64_t end)
{
	struct key from, to;

	version_key(name, first, &from);
	version_key(name, end, &to);
	rados_write_op_omap_rm_range2(op, from.text, from.len, to.text, to.len);
}

/* Its bytes become these, if it is still held. */
static int write_version(const struct cluster *c, const struct lease *l, const void *bytes, size_t size)
{
	rados_write_op_t op = rados_create_write_op();
	int result;

	lease_alive(op);
	lease_take(op, c, l);
	rados_write_op_omap_set2(op, (const char *[]){ "object" }, (const char *[]){ bytes }, (size_t[]){ 6 }, (size_t[]){ size }, 1);
	result = rados_do(c, op, l->oid);
	return result == -ENOENT || result == -ECANCELED ? -ESTALE : result;
}

static int still_held(const struct cluster *c, const struct lease *l)
{
	rados_write_op_t op = rados_create_write_op();

	lease_alive(op);
	lease_take(op, c, l);
	return rados_do(c, op, l->oid);
}

/* The name is this version's, which comes behind `old`, and the oldest ones lose it. */
static int set_name(const struct cluster *c, const char *name, const struct entry *old, const struct entry *e, unsigned keep)
{
	rados_write_op_t op = rados_create_write_op();
	char oid[OID_TEXT];
	struct key n, v;

	shard_of(name, oid);
	newest_key(name, &n);
	version_key(name, e->version, &v);
	if_newest(op, &n, old);
	if (e->version > keep)
		drop_versions(op, name, 0, e->version - keep + 1);
	rados_write_op_omap_set2(op, (const char *[]){ n.text, v.text }, (const char *[]){ (const char *)e, (const char *)&e->id },
				 (size_t[]){ n.len, v.len }, (size_t[]){ sizeof(*e), sizeof(e->id) }, 2);
	return rados_do(c, op, oid);
}

/* The name is as it was before, if nobody has changed it since. */
static void unset_name(const struct cluster *c, const char *name, const struct entry *old, const struct entry *e)
{
	rados_write_op_t op = rados_create_write_op();
	char oid[OID_TEXT];
	struct key n;

	shard_of(name, oid);
	newest_key(name, &n);
	if_newest(op, &n, e);
	drop_versions(op, name, e->version, e->version + 1);
	if (old)
		rados_write_op_omap_set2(op, (const char *[]){ n.text }, (const char *[]){ (const char *)old }, (size_t[]){ n.len },
					 (size_t[]){ sizeof(*old) }, 1);
	else
		rados_write_op_omap_rm_keys2(op, (const char *[]){ n.text }, (size_t[]){ n.len }, 1);
	rados_do(c, op, oid);
}

/* Once it was held, a version is left alone for the time of a lease; if naming it took longer, one has to look again. */
static int name_version(const struct cluster *c, struct lease *l, const char *name, uint64_t version, unsigned keep, double held_since)
{
	struct entry e = { l->id, version }, old = { .version = 0 };
	int result = newest(c, name, &old);
	bool first = result == -ENOENT;

	if (result < 0 && !first)
		return result;
	/* A first version would be mixed with those of a name whose newest record is missing. */
	if (first && is_lost(c, name))
		return -EBADMSG;
	if (old.version != version - 1)
		return -EAGAIN;
	result = set_name(c, name, first ? NULL : &old, &e, keep);
	if (result == -ETIMEDOUT)
		l->doubtful = true;
	if (result == 0 && rados_clock() - held_since >= c->lease && still_held(c, l) < 0) {
		unset_name(c, name, first ? NULL : &old, &e);
		return -ESTALE;
	}
	return result == -ECANCELED ? -EAGAIN : result;
}

int rados_publish(struct backend *b, struct lease *lease, const char *name, uint64_t version, unsigned keep, const void *bytes, size_t size)
{
	struct cluster *c = of(b);
	double since;
	int result;

	if (rados_chunk_sync(b, &lease->id) < 0)
		return -1;
	since = rados_clock();
	result = write_version(c, lease, bytes, size);
	if (result == 0)
		result = name_version(c, lease, name, version, keep, since);
	if (result == 0)
		return 0;
	if (result == -EAGAIN)
		return object_fail(EAGAIN, "cannot commit '%s': another version was committed in "
				   "the meantime", name);
	if (result == -EBADMSG)
		return object_fail(EBADMSG, "cannot commit '%s' in 'rados:%s': its name is "
				   "missing, but versions of it exist. Try \"umobject check "
				   "--repair\" to restore it, or \"umobject rm\" to delete it",
				   name, c->name);
	if (result == -ESTALE)
		return object_fail(ESTALE, "cannot commit '%s': its lease of %u s in 'rados:%s' expired, "
				   "and gc may have removed the version. Try a greater lease=", name,
				   c->lease, c->name);
	return rados_refuse(c, result, lease->doubtful ?
			    "cannot tell whether the version of '%s' in 'rados:%s' was committed" :
			    "cannot commit a version of '%s' in 'rados:%s'", name, c->name);
}

int rados_name_remove(struct backend *b, const char *name)
{
	const struct cluster *c = of(b);
	char oid[OID_TEXT];
	struct entry old;
	struct key n;
	int result;

	shard_of(name, oid);
	newest_key(name, &n);
	do {
		rados_write_op_t op;
		bool there;

		result = newest(c, name, &old);
		there = result == 0;
		/* The other records of a name go also where the newest one is missing. */
		if (result == -ENOENT)
			result = has_versions(c, name) ? 0 : -ENOENT;
		if (result < 0)
			return refuse_name(c, result, name, 0);
		op = rados_create_write_op();
		if_newest(op, &n, there ? &old : NULL);
		drop_versions(op, name, 0, there ? old.version + 1 : UINT64_MAX);
		rados_write_op_omap_rm_keys2(op, (const char *[]){ n.text }, (size_t[]){ n.len }, 1);
		result = rados_do(c, op, oid);
	} while (result == -ECANCELED);
	return result < 0 ? rados_refuse(c, result, "cannot delete the object '%s' from 'rados:%s'",
					 name, c->name) : 0;
}

/* Names of one shard behind a key, by keys that begin with prefix. Returns what `each` did, or a negative errno; *more: there
 * are others, behind *last. */
static int some_names(const struct cluster *c, const char *oid, const char *prefix, struct key *last, bool *more,
		      int (*each)(void *arg, const char *name), void *arg)
{
	rados_read_op_t op = rados_create_read_op();
	unsigned char there_is_more = 0;
	rados_omap_iter_t iter;
	char *key, *value;
	size_t len, size;
	int result, inner;

	rados_read_op_omap_get_vals2(op, last->text, prefix, 500, &iter, &there_is_more, &inner);
	result = rados_read_op_operate(op, c->io, oid, LIBRADOS_OPERATION_NOFLAG);
	if (result == 0)
		result = inner;
	if (result == 0) {
		while (result == 0 && (result = rados_omap_get_next2(iter, &key, &value, &len, &size)) == 0 && key) {
			/* The number of a version stands behind a zero. The versions of one name follow one another. */
			size_t named = strnlen(key, len);

			if (named + 2 > sizeof(last->text) || (named == last->len && memcmp(key, last->text, named) == 0))
				continue;
			memcpy(last->text, key, named);
			last->text[named] = '\0';
			last->len = named;
			result = each(arg, last->text + 2);
		}
		rados_omap_get_end(iter);
	}
	rados_release_read_op(op);
	/* The next keys are behind all versions of this name. */
	strcpy(last->text + last->len, *prefix == 'v' ? "\1" : "");
	*more = there_is_more;
	return result;
}

/* What `each` returns is not taken for an error of the cluster. */
struct listing {
	const struct cluster *c;
	int (*each)(void *arg, const char *name);
	void *arg;
	int returned;
};

static int list_one(void *arg, const char *name)
{
	struct listing *l = arg;

	l->returned = l->each(l->arg, name);
	return l->returned != 0;
}

static int list_names(struct listing *l, const char *prefix, int (*one)(void *listing, const char *name))
{
	const struct cluster *c = l->c;
	char oid[OID_TEXT];
	int result = 0;
	unsigned shard;

	for (shard = 0; shard < SHARDS && result == 0; shard++) {
		struct key last = { .text = "" };
		bool more = true;

		snprintf(oid, sizeof(oid), "names.%x", shard);
		while (result == 0 && more)
			result = some_names(c, oid, prefix, &last, &more, one, l);
	}
	return result < 0 ? rados_refuse(c, result, "cannot list the names of 'rados:%s'",
					 c->name) : l->returned;
}

int rados_names(struct backend *b, int (*each)(void *arg, const char *name), void *arg)
{
	struct listing l = { of(b), each, arg, 0 };

	return list_names(&l, "n/", list_one);
}

static int list_lost(void *arg, const char *name)
{
	struct listing *l = arg;

	return is_lost(l->c, name) ? list_one(l, name) : 0;
}

int rados_lost_names(struct backend *b, int (*each)(void *arg, const char *name), void *arg)
{
	struct listing l = { of(b), each, arg, 0 };

	return list_names(&l, "v/", list_lost);
}

int rados_name_restore(struct backend *b, const char *name, const struct umobject_id *id, uint64_t version, bool is_newest)
{
	const struct cluster *c = of(b);
	struct entry e = { *id, version }, now;
	char oid[OID_TEXT];
	rados_write_op_t op;
	struct key n, v;
	int result;

	shard_of(name, oid);
	newest_key(name, &n);
	version_key(name, version, &v);
	do {
		result = is_newest ? 0 : newest(c, name, &now);
		if (result < 0)
			break;
		op = rados_create_write_op();
		if_newest(op, &n, is_newest ? NULL : &now);
		rados_write_op_omap_set2(op, (const char *[]){ v.text, n.text }, (const char *[]){ (const char *)&e.id, (const char *)&e },
					 (size_t[]){ v.len, n.len }, (size_t[]){ sizeof(e.id), sizeof(e) }, is_newest ? 2 : 1);
		result = rados_do(c, op, oid);
	} while (result == -ECANCELED && !is_newest);
	if (result == -ECANCELED)
		return object_fail(EEXIST, "cannot restore the name '%s' in 'rados:%s': it exists",
				   name, c->name);
	return result < 0 ? rados_refuse(c, result, "cannot restore version %llu of '%s' in "
					 "'rados:%s'", (unsigned long long)version, name,
					 c->name) : 0;
}

struct numbers {
	int (*each)(void *arg, uint64_t version);
	void *arg;
	int returned;
};

static int number_one(void *arg, const struct entry *e)
{
	struct numbers *n = arg;

	n->returned = n->each(n->arg, e->version);
	return n->returned != 0;
}

int rados_versions(struct backend *b, const char *name, int (*each)(void *arg, uint64_t version), void *arg)
{
	struct numbers n = { each, arg, 0 };
	int result = each_version(of(b), name, number_one, &n);

	return result < 0 ? refuse_name(of(b), result, name, 0) : n.returned;
}

/* ---- For the collector ---- */

int rados_all_versions(struct backend *b, int (*each)(void *arg, const struct umobject_id *id), void *arg)
{
	const struct cluster *c = of(b);
	rados_list_ctx_t list;
	const char *oid;
	int result = rados_nobjects_list_open(c->io, &list), returned = 0;

	if (result < 0)
		return rados_refuse(c, result, "cannot list the versions of 'rados:%s'", c->name);
	while (returned == 0 && (result = rados_nobjects_list_next(list, &oid, NULL, NULL)) == 0) {
		const char *end = NULL;
		struct umobject_id id;

		if (strncmp(oid, "version.", 8) == 0)
			end = rados_parse_id(oid + 8, &id);
		if (end && !*end)
			returned = each(arg, &id);
	}
	rados_nobjects_list_close(list);
	if (returned == 0 && result != -ENOENT)
		return rados_refuse(c, result, "cannot list the versions of 'rados:%s'", c->name);
	return returned;
}

int rados_version_there(struct backend *b, const struct umobject_id *id, bool *there)
{
	const struct cluster *c = of(b);
	char text[37], oid[OID_TEXT];
	uint64_t size;
	time_t changed;
	int result;

	rados_id(id, text);
	snprintf(oid, sizeof(oid), "version.%s", text);
	result = rados_stat(c->io, oid, &size, &changed);
	*there = result == 0;
	return result == 0 || result == -ENOENT ? 0 : rados_refuse(c, result, "cannot look for "
			"version '%s' in 'rados:%s'", text, c->name);
}

/* 1: a name refers to the version, by either of the records that it has; 0, or a negative errno. */
static int is_named(const struct cluster *c, const char *name, const struct umobject_id *id)
{
	struct search s = { .wanted = { .id = *id }, .by_id = true };
	struct entry e;
	int result = name ? each_version(c, name, compare_entry, &s) : 0;

	if (!name || result)
		return result;
	result = newest(c, name, &e);
	if (result == -ENOENT)
		return 0;
	return result < 0 ? result : memcmp(&e.id, id, sizeof(*id)) == 0;
}

static int lock_alone(const struct cluster *c, const struct lease *l, bool mark)
{
	rados_write_op_t op = rados_create_write_op();

	rados_write_op_assert_exists(op);
	lease_take(op, c, l);
	if (mark)
		rados_write_op_setxattr(op, "claimed", "1", 1);
	return rados_do(c, op, l->oid);
}

/* -EBUSY: it is named or held. */
static int claim(struct cluster *c, struct lease *l, const char *name)
{
	int result = is_named(c, name, &l->id);

	if (result != 0)
		return result < 0 ? result : -EBUSY;
	result = lock_alone(c, l, false);
	if (result < 0)
		return result;
	lease_keep(c, l);
	result = is_named(c, name, &l->id);
	if (result == 0)
		result = lock_alone(c, l, true);
	return result > 0 ? -EBUSY : result;
}

int rados_version_claim(struct backend *b, const struct umobject_id *id, struct lease **lease, void **bytes, size_t *size)
{
	static const char *const keys[] = { "object", "name" };
	struct cluster *c = of(b);
	struct lease *l = lease_make(c, id, true);
	struct values v;
	int result;

	if (!l)
		return -1;
	result = read_values(c, l->oid, keys, 2, &v);
	if (result == 0) {
		result = claim(c, l, v.bytes[1]);
		if (result == 0) {
			values_free(&v);
			*lease = l;
			return 0;
		}
		free(v.bytes[1]);
		*bytes = v.bytes[0];
		*size = v.size[0];
		if (result != -EBUSY)
			free(v.bytes[0]);
	}
	/* Where it was locked. */
	lease_end(c, l);
	if (result == -EBUSY)
		return object_fail(EBUSY, "cannot remove a version from 'rados:%s': it is in use",
				   c->name);
	return result == -ENOENT ?
		object_fail(ENOENT, "cannot remove a version from 'rados:%s': it does not exist",
			    c->name) :
		rados_refuse(c, result, "cannot remove a version from 'rados:%s'", c->name);
}

void rados_version_remove(struct backend *b, struct lease *lease)
{
	struct cluster *c = of(b);
	rados_write_op_t op = rados_create_write_op();

	rados_write_op_remove(op);
	rados_do(c, op, lease->oid);
	lease_forget(c, lease);
}
