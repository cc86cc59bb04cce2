/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collector. A version without a name and a holder can be claimed, and cannot be held until it
 * is removed. Every other version tells which chunks it needs. A version that is made from another
 * one holds it, so a chunk that the new version will need is needed all the time. Chunks are
 * written after their version is created, and removed before it.
 */
#include "object/container.h"

#include "object/error.h"
#include "object/id.h"

#include <stdlib.h>
#include <string.h>

/* A claimed version. */
struct claimed {
	struct umobject_id id;
	struct lease *lease;
};

/* All lists begin with an id, by which they are sorted. */
struct collection {
	struct backend *b;
	struct claimed *claimed;
	size_t nclaimed;
	struct source *needed;     /* chunks that versions need */
	size_t nneeded;
	struct umobject_id *alive; /* versions that told which chunks they need */
	size_t nalive;
	struct umobject_id *seen;  /* visited versions; the first `nsorted` are sorted */
	size_t nseen, nsorted;
	uint64_t removed;          /* number of versions that were removed when they were claimed */
	bool has_failed;           /* whether a search for a version has failed */
};

/* Number of the chunks of a version that is in progress. */
#define ALL_CHUNKS UINT64_MAX

static int compare_ids(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct umobject_id));
}

static void sort_by_id(void *list, size_t n, size_t size)
{
	if (n)
		qsort(list, n, size, compare_ids);
}

static bool is_in(const void *list, size_t n, size_t size, const struct umobject_id *id)
{
	return n && bsearch(id, list, n, size, compare_ids);
}

static bool is_needed(const struct collection *c, const struct umobject_id *id, uint64_t number)
{
	size_t low = 0, high = c->nneeded;

	/* Find the first entry with this id. */
	while (low < high) {
		size_t middle = (low + high) / 2;

		if (compare_ids(&c->needed[middle], id) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < c->nneeded && id_same(&c->needed[low].id, id); low++)
		if (number - c->needed[low].first < c->needed[low].count)
			return true;
	return false;
}

/* Appends to a list, whose capacity is the next power of two. */
static int append_item(void *list, size_t *n, size_t size, const void *item)
{
	char *grown = *n & (*n - 1) ? *(char **)list :
		realloc(*(void **)list, (*n ? 2 * *n : 1) * size);

	if (!grown)
		return fail_no_memory("list the versions and chunks");
	memcpy(grown + *n * size, item, size);
	*(void **)list = grown;
	++*n;
	return 0;
}

static int add_needed(struct collection *c, const struct source *s)
{
	return append_item(&c->needed, &c->nneeded, sizeof(*s), s);
}

/* Notes which chunks a version needs. A version without a record or a number is in progress: only
 * the back end knows its chunks. A damaged version may need any chunk. */
static int add_alive(struct collection *c, const struct umobject_id *id, const struct bytes *record)
{
	char name[ID_TEXT];
	struct object *o;
	int result = 0;

	id_text(id, name);
	o = record->size ? object_unpack(record, name) : NULL;
	if (record->size && !o)
		return errno != EBADMSG ? -1 :
			object_fail(EBADMSG, "cannot tell which chunks are in use, because version "
				    "'%s' is damaged. Nothing was removed", name);
	for (size_t i = 0; o && i < o->nsources && result == 0; i++)
		result = add_needed(c, &o->sources[i]);
	if (result == 0 && (!o || !o->version))
		result = add_needed(c, &(struct source){ *id, 0, ALL_CHUNKS });
	object_free(o);
	return result < 0 ? -1 : append_item(&c->alive, &c->nalive, sizeof(*id), id);
}

static int visit_version(void *arg, const struct umobject_id *id)
{
	struct collection *c = arg;
	struct claimed claimed = { .id = *id };
	struct bytes record;
	int result;

	if (is_in(c->seen, c->nsorted, sizeof(*c->seen), id))
		return 0;
	if (append_item(&c->seen, &c->nseen, sizeof(*c->seen), id) < 0)
		return -1;
	if (c->b->ops->versions->claim(c->b, id, &claimed.lease, &record) == 0) {
		c->removed += !claimed.lease;
		if (!claimed.lease)
			return 0;
		if (append_item(&c->claimed, &c->nclaimed, sizeof(claimed), &claimed) == 0)
			return 0;
		c->b->ops->versions->release(c->b, claimed.lease);
		return -1;
	}
	if (errno != EBUSY)
		return errno == ENOENT ? 0 : -1;
	result = add_alive(c, id, &record);
	free(record.data);
	return result;
}

/* Whether a chunk is garbage. The chunks of a version that began after all versions were visited
 * are not. */
static bool is_garbage(void *arg, const struct umobject_id *id, uint64_t number)
{
	struct collection *c = arg;
	bool exists;

	if (is_needed(c, id, number))
		return false;
	if (is_in(c->claimed, c->nclaimed, sizeof(*c->claimed), id) ||
	    is_in(c->alive, c->nalive, sizeof(*c->alive), id))
		return true;
	if (c->b->ops->versions->exists(c->b, id, &exists) < 0)
		c->has_failed = exists = true;
	return !exists;
}

/* More passes than commits can follow one another during a pass each. */
#define MAX_PASSES 10

/* Visits all versions. A list may lack a version that replaces another one meanwhile (readdir(3) of
 * tmpfs), as a commit does. A version is committed once, so the next list has it. Versions that are
 * made from it later need only chunks of versions that were visited. */
static int visit_versions(struct collection *c)
{
	size_t before;
	unsigned passes = 0;

	do {
		before = c->nseen;
		if (c->b->ops->versions->list(c->b, visit_version, c) != 0)
			return -1;
		sort_by_id(c->seen, c->nseen, sizeof(*c->seen));
		c->nsorted = c->nseen;
	} while (c->nseen > before && ++passes < MAX_PASSES);
	return 0;
}

static int collect_garbage(struct collection *c, struct umobject_garbage *removed)
{
	if (visit_versions(c) < 0)
		return -1;
	sort_by_id(c->needed, c->nneeded, sizeof(*c->needed));
	sort_by_id(c->alive, c->nalive, sizeof(*c->alive));
	sort_by_id(c->claimed, c->nclaimed, sizeof(*c->claimed));
	return c->b->ops->chunks->sweep(c->b, is_garbage, c, removed) < 0 || c->has_failed ? -1 : 0;
}

/* Only one process at a time collects. */
static int collect_locked(struct umobject_container *container, struct umobject_garbage *removed)
{
	struct backend *b = container->b;
	struct collection c = { .b = b };
	void *lock;
	int result, error;

	if (container_lock(container, "", &lock) < 0)
		return -1;
	result = collect_garbage(&c, removed);
	error = errno;
	for (size_t i = 0; i < c.nclaimed; i++) {
		if (result == 0)
			b->ops->versions->remove(b, c.claimed[i].lease);
		else
			b->ops->versions->release(b, c.claimed[i].lease);
	}
	removed->versions += c.removed + (result == 0 ? c.nclaimed : 0);
	container_unlock(container, lock);
	free(c.claimed);
	free(c.needed);
	free(c.alive);
	free(c.seen);
	errno = error;
	return result;
}

/* Completes an interrupted commit of a name, which may have left versions that are no longer kept,
 * or the view of another version. */
static int settle_name(void *arg, const char *name)
{
	struct umobject_container *c = arg;
	umobject_version *v;
	void *lock;
	int result;

	if (container_lock(c, name, &lock) < 0)
		return -1;
	v = version_of_name(c, name, 0);
	if (v)
		result = check_owner(v->object, name) < 0 ? -1 :
			c->b->ops->names->settle(c->b, name, &v->object->id, v->object->version);
	else
		result = errno == ENOENT ? 0 : -1; /* the name has been deleted meanwhile */
	umobject_release(v);
	container_unlock(c, lock);
	if (result < 0 && errno == EBADMSG)
		return object_fail(EBADMSG, "cannot tell which chunks are in use, because the "
				   "record of '%s' is damaged. Nothing was removed. Try \"umobject "
				   "check --repair\"", name);
	return result;
}

int umobject_gc(umobject_container *c, struct umobject_garbage *removed)
{
	struct umobject_garbage counted = { sizeof(counted), 0, 0, 0 };
	int result;

	if (removed && removed->struct_size < sizeof(counted))
		return object_fail(EINVAL, "cannot use struct_size %zu: it must be at least %zu, "
				   "the size of struct umobject_garbage", removed->struct_size,
				   sizeof(counted));
	if (container_check_writable(c) < 0)
		return -1;
	if (c->b->ops->names->end_removals && c->b->ops->names->end_removals(c->b) < 0)
		return -1;
	if (c->b->ops->names->settle && c->b->ops->names->list(c->b, settle_name, c) < 0)
		return -1;
	if (check_names(c) < 0)
		return -1;
	result = collect_locked(c, &counted);
	if (removed) {
		counted.struct_size = removed->struct_size;
		*removed = counted;
	}
	return result;
}

void gc_version(struct backend *b, const struct umobject_id *id, const struct source *own, size_t n)
{
	struct bytes record;
	struct lease *claim;
	int result = 0;

	if (b->ops->versions->claim(b, id, &claim, &record) < 0) {
		if (errno == EBUSY)
			free(record.data);
		return;
	}
	for (size_t i = 0; i < n && result == 0; i++)
		result = b->ops->chunks->remove(b, id, own[i].first, own[i].count);
	if (claim && result == 0)
		b->ops->versions->remove(b, claim);
	else if (claim)
		b->ops->versions->release(b, claim);
}
