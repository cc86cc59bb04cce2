/* SPDX-License-Identifier: BSD-3-Clause */
/* Versions as objects of RADOS, with leases for their holders and for the collector. */
#include "object/rados.h"

#include "object/error.h"

#include <stdlib.h>
#include <string.h>

/* ---- Reading keys of an omap ---- */

void free_values(struct values *values)
{
	free(values->v[0].data);
	free(values->v[1].data);
}

/* Copies each value, with a zero behind it. */
static int take_values(rados_omap_iter_t iter, const char *const *keys, size_t n,
		       struct values *values)
{
	char *key, *value;
	size_t len, size;
	int result;

	while ((result = rados_omap_get_next2(iter, &key, &value, &len, &size)) == 0 && key) {
		for (size_t i = 0; i < n; i++) {
			if (strlen(keys[i]) != len || memcmp(keys[i], key, len) != 0)
				continue;
			values->v[i] = (struct bytes){ calloc(1, size + 1), size };
			if (!values->v[i].data)
				return -ENOMEM;
			memcpy(values->v[i].data, value, size);
		}
	}
	return result;
}

/* A read of keys that has begun. */
struct reading {
	rados_read_op_t op;
	rados_omap_iter_t iter;
	rados_completion_t done;
	int begun, result; /* results of the call and of the operation */
};

static void begin_reading(const struct cluster *c, const char *oid, const char *const *keys,
			  size_t n, struct reading *r)
{
	size_t lens[2] = { strlen(keys[0]), n > 1 ? strlen(keys[1]) : 0 };

	*r = (struct reading){ .op = rados_create_read_op() };
	rados_read_op_omap_get_vals_by_keys2(r->op, keys, n, lens, &r->iter, &r->result);
	r->begun = rados_aio_create_completion2(NULL, NULL, &r->done);
	if (r->begun < 0)
		return;
	/* After writes of this process that are in flight. */
	r->begun = rados_aio_read_op_operate(r->op, c->io, r->done, oid,
					     LIBRADOS_OPERATION_ORDER_READS_WRITES);
	if (r->begun < 0)
		rados_aio_release(r->done);
}

static int finish_reading(struct reading *r, const char *const *keys, size_t n,
			  struct values *values)
{
	int result = r->begun;

	*values = (struct values){ { { NULL, 0 } } };
	if (result == 0)
		result = rados_finish(r->done);
	if (result == 0)
		result = r->result;
	if (result == 0) {
		result = take_values(r->iter, keys, n, values);
		rados_omap_get_end(r->iter);
	}
	rados_release_read_op(r->op);
	if (result < 0)
		free_values(values);
	return result;
}

int read_values(const struct cluster *c, const char *oid, const char *const *keys, size_t n,
		struct values *values)
{
	struct reading r;

	begin_reading(c, oid, keys, n, &r);
	return finish_reading(&r, keys, n, values);
}

/* ---- Holding ---- */

static struct lease *create_version(struct backend *b, const struct umobject_id *id,
				    const char *name, const struct bytes *record)
{
	struct cluster *c = of(b);
	struct rados_lease *l = lease_make(c, id, false);
	rados_write_op_t op;
	int result;

	if (!l)
		return NULL;
	op = rados_create_write_op();
	rados_write_op_create(op, LIBRADOS_CREATE_EXCLUSIVE, NULL);
	rados_write_op_omap_set2(op, (const char *[]){ "object", "name" },
				 (const char *[]){ record->data, name }, (size_t[]){ 6, 4 },
				 (size_t[]){ record->size, strlen(name) + 1 }, 2);
	lease_take(op, c, l);
	result = rados_do(c, op, l->oid);
	if (result < 0) {
		free(l);
		rados_check(c, result, "cannot create a version");
		return NULL;
	}
	lease_keep(c, l);
	return &l->lease;
}

int try_hold(struct cluster *c, const struct umobject_id *id, struct lease **lease)
{
	static const char *const keys[] = { "object" };
	struct rados_lease *l = lease_make(c, id, false);
	rados_completion_t done;
	struct reading r;
	struct values values;
	rados_write_op_t op;
	int locked, result;

	if (!l)
		return -ENOMEM;
	op = rados_create_write_op();
	lease_require_unclaimed(op);
	lease_take(op, c, l);
	locked = rados_begin(c, op, l->oid, &done);
	if (locked < 0) {
		free(l);
		return locked;
	}
	/* Lock and read at the same time. */
	begin_reading(c, l->oid, keys, 1, &r);
	locked = rados_finish(done);
	result = finish_reading(&r, keys, 1, &values);
	if (result == 0)
		l->lease.record = values.v[0];
	if (locked < 0) {
		lease_forget(c, l);
		return locked == -ECANCELED ? -ENOENT : locked;
	}
	lease_keep(c, l);
	if (result == 0 && !l->lease.record.data)
		result = -EBADMSG;
	if (result < 0)
		lease_end(c, l);
	else
		*lease = &l->lease;
	return result;
}

struct lease *refuse_hold(const struct cluster *c, int error, const struct umobject_id *id)
{
	char text[ID_TEXT];

	id_text(id, text);
	rados_check(c, error == -EBUSY ? -ENOENT : error, "cannot read version '%s'", text);
	return NULL;
}

static struct lease *hold_version(struct backend *b, const struct umobject_id *id)
{
	struct lease *lease;
	int result = try_hold(of(b), id, &lease);

	return result < 0 ? refuse_hold(of(b), result, id) : lease;
}

static void release_lease(struct backend *b, struct lease *lease)
{
	/* A version that may have a name must not become garbage. */
	if (!((struct rados_lease *)lease)->is_doubtful)
		lease_end(of(b), (struct rados_lease *)lease);
}

/* ---- For the collector ---- */

static int list_versions(struct backend *b, visit_id_fn *each, void *arg)
{
	const struct cluster *c = of(b);
	rados_list_ctx_t list;
	const char *oid;
	int result = rados_nobjects_list_open(c->io, &list), returned = 0;

	if (result < 0)
		return rados_check(c, result, "cannot list the versions");
	while (returned == 0 && (result = rados_nobjects_list_next(list, &oid, NULL, NULL)) == 0) {
		struct umobject_id id;
		const char *end = strncmp(oid, "version.", 8) == 0 ? id_parse(oid + 8, &id) : NULL;

		if (end && !*end)
			returned = each(arg, &id);
	}
	rados_nobjects_list_close(list);
	if (returned == 0 && result != -ENOENT)
		return rados_check(c, result, "cannot list the versions");
	return returned;
}

static int version_exists(struct backend *b, const struct umobject_id *id, bool *exists)
{
	char text[ID_TEXT], oid[OID_TEXT];

	id_text(id, text);
	snprintf(oid, sizeof(oid), "version.%s", text);
	return rados_find(of(b), oid, exists);
}

static int lock_exclusively(const struct cluster *c, const struct rados_lease *l, bool mark)
{
	rados_write_op_t op = rados_create_write_op();

	rados_write_op_assert_exists(op);
	lease_take(op, c, l);
	if (mark)
		rados_write_op_setxattr(op, "claimed", "1", 1);
	return rados_do(c, op, l->oid);
}

/* -EBUSY: the version has a name or a holder. */
static int try_claim(struct cluster *c, struct rados_lease *l, const char *name)
{
	int result = is_named(c, name, &l->id);

	if (result == 0) {
		result = lock_exclusively(c, l, false);
		if (result < 0)
			return result;
		lease_keep(c, l);
		result = is_named(c, name, &l->id);
	}
	if (result == 0)
		result = lock_exclusively(c, l, true);
	return result > 0 ? -EBUSY : result;
}

static int claim_version(struct backend *b, const struct umobject_id *id, struct lease **lease,
			 struct bytes *record)
{
	static const char *const keys[] = { "object", "name" };
	struct cluster *c = of(b);
	struct rados_lease *l = lease_make(c, id, true);
	struct values values;
	int result;

	if (!l)
		return -1;
	result = read_values(c, l->oid, keys, 2, &values);
	if (result == 0) {
		result = try_claim(c, l, values.v[1].data);
		if (result == -EBUSY) {
			*record = values.v[0];
			values.v[0].data = NULL;
		}
		free_values(&values);
	}
	if (result == 0) {
		*lease = &l->lease;
		return 0;
	}
	/* The version may be locked. */
	lease_end(c, l);
	return rados_check(c, result, "cannot remove a version");
}

static void remove_version(struct backend *b, struct lease *lease)
{
	struct rados_lease *l = (struct rados_lease *)lease;
	rados_write_op_t op = rados_create_write_op();

	rados_write_op_remove(op);
	rados_do(of(b), op, l->oid);
	lease_forget(of(b), l);
}

const struct version_ops rados_versions = {
	.create = create_version,
	.hold = hold_version,
	.release = release_lease,
	.list = list_versions,
	.exists = version_exists,
	.claim = claim_version,
	.remove = remove_version,
};
