/* SPDX-License-Identifier: BSD-3-Clause */
/* Names as keys of omap, which are compared before they are changed. */
#include "object/rados.h"

#include "object/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define SHARDS 16
/* Keys of one read: more than the kept versions of a name, so that one read lists all of them. */
#define PAGE_KEYS 1001
#define DIGITS 20

/* The value of n/NAME. That of v/NAME is the id alone. */
struct entry {
	struct umobject_id id;
	uint64_t version;
};

/* A name with its shard and its keys. */
struct name_keys {
	char oid[OID_TEXT];
	char newest[2 + UMOBJECT_NAME_MAX + 1];
	size_t newest_len;
};

/* The key of a version: v/NAME, a zero, and the number. Those of one name are contiguous. */
struct version_key {
	char text[2 + UMOBJECT_NAME_MAX + 1 + DIGITS + 1];
	size_t len;
};

static struct name_keys find_keys(const char *name)
{
	struct name_keys k;

	sprintf(k.oid, "names.%x", (unsigned)(XXH3_64bits(name, strlen(name)) % SHARDS));
	k.newest_len = (size_t)sprintf(k.newest, "n/%s", name);
	return k;
}

static struct version_key make_version_key(const char *name, uint64_t version)
{
	struct version_key k;

	k.len = (size_t)sprintf(k.text, "v/%s", name) + 1;
	k.len += (size_t)sprintf(k.text + k.len, "%0*" PRIu64, DIGITS, version);
	return k;
}

int create_names(struct cluster *c)
{
	for (unsigned shard = 0; shard < SHARDS; shard++) {
		rados_write_op_t op = rados_create_write_op();
		char oid[OID_TEXT];
		int result;

		snprintf(oid, sizeof(oid), "names.%x", shard);
		rados_write_op_create(op, LIBRADOS_CREATE_IDEMPOTENT, NULL);
		/* A pool without omap refuses this now, and not the first commit. */
		rados_write_op_omap_rm_keys2(op, (const char *[]){ "-" }, (size_t[]){ 1 }, 1);
		result = rados_do(c, op, oid);
		if (result < 0)
			return rados_check(c, result, "cannot create the container");
	}
	return 0;
}

/* ---- Reading ---- */

/* Reads the newest version of a name. -ENOENT, -EBADMSG. */
static int read_newest(const struct cluster *c, const char *name, struct entry *e)
{
	struct name_keys k = find_keys(name);
	const char *keys[] = { k.newest };
	struct values values;
	int result = read_values(c, k.oid, keys, 1, &values);

	if (result < 0)
		return result;
	result = values.v[0].size == sizeof(*e) ? 0 : values.v[0].data ? -EBADMSG : -ENOENT;
	if (result == 0)
		memcpy(e, values.v[0].data, sizeof(*e));
	free_values(&values);
	return result;
}

typedef int visit_key_fn(void *arg, const char *key, size_t len, const char *value, size_t size);

/* Visits keys with a prefix behind the key `after`, until a visit returns other than 0. Returns
 * that value, or a negative errno value. *more: there are more keys than one read returns. */
static int list_keys(const struct cluster *c, const char *oid, const char *after,
		     const char *prefix, bool *more, visit_key_fn *each, void *arg)
{
	rados_read_op_t op = rados_create_read_op();
	unsigned char has_more = 0;
	rados_omap_iter_t iter;
	char *key, *value;
	size_t len, size;
	int result, inner;

	rados_read_op_omap_get_vals2(op, after, prefix, PAGE_KEYS, &iter, &has_more, &inner);
	result = rados_read_op_operate(op, c->io, oid, LIBRADOS_OPERATION_ORDER_READS_WRITES);
	if (result == 0)
		result = inner;
	if (result == 0) {
		while (result == 0 &&
		       (result = rados_omap_get_next2(iter, &key, &value, &len, &size)) == 0 && key)
			result = each(arg, key, len, value, size);
		rados_omap_get_end(iter);
	}
	rados_release_read_op(op);
	*more = has_more;
	return result;
}

/* A search for, or a list of, the versions of a name. */
struct version_list {
	struct version_key key;       /* of any version */
	visit_number_fn *each;        /* NULL: search */
	void *arg;
	const struct umobject_id *id; /* id to search for; NULL: any */
	uint64_t number;              /* number to search for; 0: any */
	struct entry found;
	int returned;                 /* by `each` */
};

/* Returns 1 at the end of the list, or if the search succeeds. */
static int visit_version_key(void *arg, const char *key, size_t len, const char *value, size_t size)
{
	struct version_list *l = arg;
	struct entry e;

	if (len != l->key.len || memcmp(key, l->key.text, len - DIGITS) != 0 ||
	    size != sizeof(e.id))
		return 1;
	memcpy(&e.id, value, sizeof(e.id));
	e.version = strtoull(key + len - DIGITS, NULL, 10);
	if (l->each)
		return (l->returned = l->each(l->arg, e.version)) != 0;
	if ((l->id && !id_same(&e.id, l->id)) || (l->number && e.version != l->number))
		return 0;
	l->found = e;
	return 1;
}

static int list_name(const struct cluster *c, const char *name, struct version_list *l)
{
	struct name_keys k = find_keys(name);
	bool more;
	int result;

	l->key = make_version_key(name, 0);
	/* The text of the key ends at its zero: all versions are behind it. */
	result = list_keys(c, k.oid, l->key.text, "", &more, visit_version_key, l);
	return result < 0 ? result : 0;
}

static bool has_versions(const struct cluster *c, const char *name)
{
	struct version_list l = { .found.version = 0 };

	return list_name(c, name, &l) == 0 && l.found.version;
}

/* A commit and a removal change all records of a name at once, so a name with versions and no
 * newest one is damaged. Commits and removals between these reads make them differ. */
static bool is_lost(const struct cluster *c, const char *name)
{
	struct entry e;

	return read_newest(c, name, &e) == -ENOENT && has_versions(c, name) &&
		read_newest(c, name, &e) == -ENOENT && has_versions(c, name);
}

/* Finds a version of a name (0: the newest). */
static int find_entry(const struct cluster *c, const char *name, uint64_t version, struct entry *e)
{
	struct version_list l = { .number = version };
	int result = version ? list_name(c, name, &l) : read_newest(c, name, e);

	if (version)
		*e = l.found;
	return result == 0 && version && !e->version ? -ENOENT : result;
}

int is_named(const struct cluster *c, const char *name, const struct umobject_id *id)
{
	struct version_list l = { .id = id };
	struct entry e;
	int result = name ? list_name(c, name, &l) : 0;

	if (!name || result < 0 || l.found.version)
		return result < 0 ? result : l.found.version != 0;
	result = read_newest(c, name, &e);
	return result == -ENOENT ? 0 : result < 0 ? result : id_same(&e.id, id);
}

static int refuse_name(const struct cluster *c, int result, const char *name)
{
	if (result == -EBADMSG)
		return object_fail(EBADMSG, "the name '%s' in 'rados:%s' is damaged", name,
				   c->name);
	return rados_check(c, result, "cannot read the name '%s'", name);
}

static struct lease *hold_name(struct backend *b, const char *name, uint64_t version)
{
	struct entry e, before = { .version = 0 };
	struct cluster *c = of(b);
	struct lease *lease;
	char text[ID_TEXT];
	int result;

	/* A version that is gone has been replaced by a newer one, so the loop ends. */
	for (;;) {
		result = find_entry(c, name, version, &e);
		if (result < 0) {
			refuse_name(c, result, name);
			return NULL;
		}
		result = try_hold(c, &e.id, &lease);
		if (result == 0)
			return lease;
		if (result != -ENOENT && result != -EBUSY)
			return refuse_hold(c, result, &e.id);
		/* A collector locks only a version without a name, until it notices the name. */
		if (result == -EBUSY) {
			usleep(1000);
		} else if (id_same(&e.id, &before.id)) {
			id_text(&e.id, text);
			object_fail(EBADMSG, "the name '%s' in 'rados:%s' is damaged: its version "
				    "'%s' is missing", name, c->name, text);
			return NULL;
		} else {
			before = e;
		}
	}
}

/* ---- Committing ---- */

/* Adds to an operation: it fails unless this is the newest version; NULL: unless there is none. */
static void require_newest(rados_write_op_t op, const struct name_keys *k, const struct entry *e)
{
	rados_write_op_omap_cmp2(op, k->newest, LIBRADOS_CMPXATTR_OP_EQ, (const char *)e,
				 k->newest_len, e ? sizeof(*e) : 0, NULL);
}

/* Adds to an operation: it drops the versions [first, end). */
static void drop_versions(rados_write_op_t op, const char *name, uint64_t first, uint64_t end)
{
	struct version_key from = make_version_key(name, first), to = make_version_key(name, end);

	rados_write_op_omap_rm_range2(op, from.text, from.len, to.text, to.len);
}

/* Adds to an operation: it sets a version's record and, if it is the newest, the name's. */
static void set_entry(rados_write_op_t op, const struct name_keys *k, const char *name,
		      const struct entry *e, bool is_newest)
{
	struct version_key v = make_version_key(name, e->version);

	rados_write_op_omap_set2(op, (const char *[]){ v.text, k->newest },
				 (const char *[]){ (const char *)&e->id, (const char *)e },
				 (size_t[]){ v.len, k->newest_len },
				 (size_t[]){ sizeof(e->id), sizeof(*e) }, is_newest ? 2 : 1);
}

static void drop_newest(rados_write_op_t op, const struct name_keys *k)
{
	rados_write_op_omap_rm_keys2(op, (const char *[]){ k->newest },
				     (size_t[]){ k->newest_len }, 1);
}

/* Renews a lease, and writes a record if it is not NULL. -ESTALE: the version is claimed or
 * gone. */
static int write_held(const struct cluster *c, const struct rados_lease *l,
		      const struct bytes *record)
{
	rados_write_op_t op = rados_create_write_op();
	int result;

	lease_require_unclaimed(op);
	lease_take(op, c, l);
	if (record)
		rados_write_op_omap_set2(op, (const char *[]){ "object" },
					 (const char *[]){ record->data }, (size_t[]){ 6 },
					 (size_t[]){ record->size }, 1);
	result = rados_do(c, op, l->oid);
	return result == -ENOENT || result == -ECANCELED ? -ESTALE : result;
}

/* Lets the name refer to a version behind `old` (NULL: none), and drops the oldest versions. */
static int set_name(const struct cluster *c, const char *name, const struct entry *old,
		    const struct entry *e, unsigned keep)
{
	struct name_keys k = find_keys(name);
	rados_write_op_t op = rados_create_write_op();

	require_newest(op, &k, old);
	if (e->version > keep)
		drop_versions(op, name, 0, e->version - keep + 1);
	set_entry(op, &k, name, e, true);
	return rados_do(c, op, k.oid);
}

/* Undoes set_name, unless another process has changed the name since. */
static void unset_name(const struct cluster *c, const char *name, const struct entry *old,
		       const struct entry *e)
{
	struct name_keys k = find_keys(name);
	rados_write_op_t op = rados_create_write_op();

	require_newest(op, &k, e);
	drop_versions(op, name, e->version, e->version + 1);
	if (old)
		rados_write_op_omap_set2(op, (const char *[]){ k.newest },
					 (const char *[]){ (const char *)old },
					 (size_t[]){ k.newest_len }, (size_t[]){ sizeof(*old) }, 1);
	else
		drop_newest(op, &k);
	rados_do(c, op, k.oid);
}

static double read_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A version that was held at `held_since` has no other holder for the time of a lease. If naming it
 * takes longer, the lease is checked again. */
static int name_version(const struct cluster *c, struct rados_lease *l, const char *name,
			uint64_t version, unsigned keep, double held_since)
{
	struct entry e = { l->id, version }, newest = { .version = 0 }, *old = &newest;
	int result = read_newest(c, name, &newest);

	if (result == -ENOENT) {
		/* A first version would be mixed with those of a name whose newest record is
		 * missing. */
		if (is_lost(c, name))
			return -EBADMSG;
		old = NULL;
	} else if (result < 0) {
		return result;
	}
	if (newest.version != version - 1)
		return -EAGAIN;
	result = set_name(c, name, old, &e, keep);
	if (result == -ETIMEDOUT)
		l->is_doubtful = true;
	if (result == 0 && read_clock() - held_since >= c->lease && write_held(c, l, NULL) < 0) {
		unset_name(c, name, old, &e);
		return -ESTALE;
	}
	return result == -ECANCELED ? -EAGAIN : result;
}

static int publish_version(struct backend *b, struct lease *lease, const char *name,
			   uint64_t version, unsigned keep, const struct bytes *record)
{
	struct rados_lease *l = (struct rados_lease *)lease;
	struct cluster *c = of(b);
	double since;
	int result;

	if (rados_chunks.sync(b, &l->id) < 0)
		return -1;
	since = read_clock();
	result = write_held(c, l, record);
	if (result == 0)
		result = name_version(c, l, name, version, keep, since);
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
		return object_fail(ESTALE, "cannot commit '%s': its lease of %u s in 'rados:%s' "
				   "expired, and gc may have removed the version. Try a greater "
				   "lease=", name, c->lease, c->name);
	return rados_check(c, result, l->is_doubtful ?
			   "cannot tell whether the version of '%s' was committed" :
			   "cannot commit a version of '%s'", name);
}

static int remove_name(struct backend *b, const char *name)
{
	const struct cluster *c = of(b);
	struct name_keys k = find_keys(name);
	struct entry old;
	int result;

	/* -ECANCELED: another version was committed in the meantime. */
	do {
		rados_write_op_t op;
		bool exists;

		result = read_newest(c, name, &old);
		exists = result == 0;
		/* Other records of a name are removed even if the newest one is missing. */
		if (result < 0 && (result != -ENOENT || !has_versions(c, name)))
			return refuse_name(c, result, name);
		op = rados_create_write_op();
		require_newest(op, &k, exists ? &old : NULL);
		drop_versions(op, name, 0, exists ? old.version + 1 : UINT64_MAX);
		drop_newest(op, &k);
		result = rados_do(c, op, k.oid);
	} while (result == -ECANCELED);
	return rados_check(c, result, "cannot delete the object '%s'", name);
}

static int restore_name(struct backend *b, const char *name, const struct umobject_id *id,
			uint64_t version, bool is_newest)
{
	const struct cluster *c = of(b);
	struct name_keys k = find_keys(name);
	struct entry e = { *id, version }, now;
	rados_write_op_t op;
	int result;

	do {
		result = is_newest ? 0 : read_newest(c, name, &now);
		if (result < 0)
			break;
		op = rados_create_write_op();
		require_newest(op, &k, is_newest ? NULL : &now);
		set_entry(op, &k, name, &e, is_newest);
		result = rados_do(c, op, k.oid);
	} while (result == -ECANCELED && !is_newest);
	if (result == -ECANCELED)
		return object_fail(EEXIST, "cannot restore the name '%s' in 'rados:%s': it exists",
				   name, c->name);
	return rados_check(c, result, "cannot restore version %" PRIu64 " of '%s'", version, name);
}

/* ---- Listing ---- */

/* A list of the names in keys with a prefix. */
struct name_list {
	const struct cluster *c;
	bool only_lost;   /* whether to visit lost names, by the keys of their versions */
	visit_name_fn *each;
	void *arg;
	char last[2 + UMOBJECT_NAME_MAX + 2]; /* prefix and name of the last key */
	int returned;     /* by `each` */
};

/* The number of a version stands behind a zero. The versions of one name are contiguous. */
static int visit_name_key(void *arg, const char *key, size_t len, const char *value, size_t size)
{
	struct name_list *l = arg;
	size_t named = strnlen(key, len);

	(void)value;
	(void)size;
	if (named > 2 + UMOBJECT_NAME_MAX || (named == strlen(l->last) &&
					      memcmp(key, l->last, named) == 0))
		return 0;
	memcpy(l->last, key, named);
	l->last[named] = '\0';
	if (l->only_lost && !is_lost(l->c, l->last + 2))
		return 0;
	return (l->returned = l->each(l->arg, l->last + 2)) != 0;
}

static int list_shards(struct name_list *l)
{
	int result = 0;

	for (unsigned shard = 0; shard < SHARDS && result == 0; shard++) {
		char oid[OID_TEXT], after[sizeof(l->last) + 1];
		bool more = true;

		snprintf(oid, sizeof(oid), "names.%x", shard);
		*l->last = '\0';
		while (result == 0 && more) {
			/* The keys behind all versions of the last name. */
			sprintf(after, "%s%s", l->last, l->only_lost && *l->last ? "\1" : "");
			result = list_keys(l->c, oid, after, l->only_lost ? "v/" : "n/", &more,
					   visit_name_key, l);
		}
	}
	return result < 0 ? rados_check(l->c, result, "cannot list the names") : l->returned;
}

static int list_names(struct backend *b, visit_name_fn *each, void *arg)
{
	return list_shards(&(struct name_list){ .c = of(b), .each = each, .arg = arg });
}

static int list_lost(struct backend *b, visit_name_fn *each, void *arg)
{
	return list_shards(&(struct name_list){ .c = of(b), .only_lost = true, .each = each,
			   .arg = arg });
}

static int list_numbers(struct backend *b, const char *name, visit_number_fn *each, void *arg)
{
	struct version_list l = { .each = each, .arg = arg };
	int result = list_name(of(b), name, &l);

	return result < 0 ? refuse_name(of(b), result, name) : l.returned;
}

const struct name_ops rados_names = {
	.hold = hold_name,
	.publish = publish_version,
	.remove = remove_name,
	.list = list_names,
	.list_versions = list_numbers,
	.list_lost = list_lost,
	.restore = restore_name,
};
