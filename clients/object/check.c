/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of a whole container: names and kept versions that are lost, chunks and views that are
 * damaged.
 *
 * A version is lost if a name should refer to it and does not: a kept version without its record,
 * or all versions of a name that is missing although other records of the name exist
 * (backend_ops.lost_names). A name whose record is damaged has lost its newest version. Lost versions look like garbage to gc.c, so the collector calls
 * container_check_names first. Lost versions are found by the name that each version has in it.
 */
#include "object/container.h"
#include "object/error.h"
#include "object/hdf5.h"
#include "object/id.h"
#include "object/view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A version that is lost. */
struct loss {
	char *name;
	uint64_t version;      /* its number; 0: the name is missing or damaged, so it is the newest one that can be found */
	struct umobject_id id; /* the version that is found for it */
	uint64_t found;        /* number of that version; 0: none is found */
	uint64_t created;      /* time at which that version was begun */
	bool is_damaged;       /* whether the name has a record, which is damaged */
	bool whole;            /* whether all chunks of that version are undamaged */
	bool recorded;         /* whether a record other than the missing or damaged one leads to it */
	uint64_t damaged;      /* number of the newest version that has damaged chunks; 0: none */
};

struct losses {
	struct umobject_container *container;
	const char *only;      /* the only name to look for; NULL: all */
	bool strict;           /* whether a name that cannot be read now is an error */
	struct loss *list;     /* sorted by name and version */
	size_t n;
};

/* ---- What is lost ---- */

static int add_loss(struct losses *l, const char *name, uint64_t version, bool is_damaged)
{
	struct loss *grown = realloc(l->list, (l->n + 1) * sizeof(*grown));
	char *copy = strdup(name);

	if (grown)
		l->list = grown;
	if (!grown || !copy) {
		free(copy);
		return object_fail(ENOMEM, "cannot list the damaged names: no memory");
	}
	grown[l->n++] = (struct loss){ .name = copy, .version = version, .is_damaged = is_damaged };
	return 0;
}

static void free_losses(struct losses *l)
{
	while (l->n)
		free(l->list[--l->n].name);
	free(l->list);
	l->list = NULL;
}

static int by_name(const void *a, const void *b)
{
	const struct loss *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order ? order : (x->version > y->version) - (x->version < y->version);
}

static void sort_losses(struct losses *l)
{
	size_t i, n = 0;

	if (l->n)
		qsort(l->list, l->n, sizeof(*l->list), by_name);
	for (i = 0; i < l->n; i++) {
		if (n && by_name(&l->list[n - 1], &l->list[i]) == 0)
			free(l->list[i].name);
		else
			l->list[n++] = l->list[i];
	}
	l->n = n;
}

/* The number of a name's newest version. Returns 0 with errno if the record cannot be read or belongs
 * to another name. */
static uint64_t newest_number(struct umobject_container *c, const char *name)
{
	struct lease *lease;
	struct object *o = container_look(c, name, 0, &lease);
	uint64_t version;

	if (!o)
		return 0;
	version = strcmp(o->name, name) == 0 ? o->version : 0;
	object_free(o);
	c->b->ops->release(c->b, lease);
	if (!version)
		object_fail(EBADMSG, "cannot read '%s': its record is damaged: it belongs to another "
			    "object", name);
	return version;
}

/* Which of the kept versions of a name have a record. */
struct kept {
	uint64_t first, newest;
	bool there[KEEP_MAX];
};

static int mark_kept(void *arg, uint64_t version)
{
	struct kept *k = arg;

	if (version >= k->first && version <= k->newest)
		k->there[version - k->first] = true;
	return 0;
}

/* Finds the kept versions. Returns false if the name is damaged or was deleted meanwhile. A
 * commit in between is noticed by the newest number, which changes before the oldest versions are
 * dropped. */
static bool find_kept(struct umobject_container *c, const char *name, struct kept *k)
{
	uint64_t after = newest_number(c, name);

	do {
		*k = (struct kept){ .newest = after };
		k->first = after > c->keep ? after - c->keep + 1 : 1;
		if (!after || c->b->ops->versions(c->b, name, mark_kept, k) < 0)
			return false;
		after = newest_number(c, name);
	} while (after != k->newest);
	return true;
}

static int find_gaps(void *arg, const char *name)
{
	struct losses *l = arg;
	struct kept kept;
	uint64_t number;

	if (!find_kept(l->container, name, &kept)) {
		if (errno == EBADMSG && !l->strict)
			return add_loss(l, name, 0, true);
		return l->strict && errno != ENOENT && errno != EBADMSG ? -1 : 0;
	}
	for (number = kept.first; number <= kept.newest; number++)
		if (!kept.there[number - kept.first] && add_loss(l, name, number, false) < 0)
			return -1;
	return 0;
}

static int take_lost(void *arg, const char *name)
{
	struct losses *l = arg;

	return l->only && strcmp(name, l->only) != 0 ? 0 : add_loss(l, name, 0, false);
}

/* ---- Versions that are found for it ---- */

static struct loss *find_loss(const struct losses *l, const char *name, uint64_t version)
{
	struct loss key = { .name = (char *)(uintptr_t)name, .version = version };

	return !l->n ? NULL : bsearch(&key, l->list, l->n, sizeof(*l->list), by_name);
}

/* Whether the view of the name or the record of a kept version leads to the version. */
static bool is_recorded(struct umobject_container *c, const struct object *o)
{
	const struct backend_ops *ops = c->b->ops;
	struct lease *lease;
	struct object *found;
	bool same;

	if (ops->view_shown && ops->view_shown(c->b, o->name, &o->id))
		return true;
	found = container_look(c, o->name, o->version, &lease);
	if (!found)
		return false;
	same = id_same(&found->id, &o->id);
	object_free(found);
	ops->release(c->b, lease);
	return same;
}

/* Whether a version is newer than the one that was found before. If number and time disagree, one of the
 * two may be of an object of the same name that was deleted, whose versions exist until gc removes them
 * and which no record leads to. */
static bool is_newer(const struct loss *loss, const struct object *o, bool recorded)
{
	bool later = o->created >= loss->created, higher = o->version > loss->found;

	if (later == higher)
		return higher;
	if (recorded != loss->recorded)
		return recorded;
	return recorded ? higher : later;
}

/* An undamaged version is better than a damaged one, and then a newer one than an older one. */
static void offer(struct loss *loss, umobject_version *v)
{
	const struct object *o = v->object;
	bool recorded = is_recorded(v->container, o), newer = is_newer(loss, o, recorded), whole;

	if (loss->whole && !newer)
		return;
	whole = version_check(v, NULL, NULL, NULL) == 0;
	if (!whole && o->version > loss->damaged)
		loss->damaged = o->version;
	if (whole == loss->whole ? !newer : !whole)
		return;
	loss->id = o->id;
	loss->found = o->version;
	loss->created = o->created;
	loss->whole = whole;
	loss->recorded = recorded;
}

static int try_version(void *arg, const struct umobject_id *id)
{
	struct losses *l = arg;
	struct loss *loss;
	umobject_version *v;

	/* A version that is damaged, gone or not committed cannot be restored. */
	if (umobject_hold_id(l->container, id, &v) < 0)
		return errno == ENOMEM ? -1 : 0;
	loss = find_loss(l, v->object->name, v->object->version);
	if (!loss)
		loss = find_loss(l, v->object->name, 0);
	if (loss)
		offer(loss, v);
	umobject_release(v);
	return 0;
}

static int find_losses(struct losses *l)
{
	const struct backend_ops *ops = l->container->b->ops;

	if (!ops->lost_names)
		return 0;
	if (l->only ? find_gaps(l, l->only) < 0 : ops->names(l->container->b, find_gaps, l) < 0 && errno != EBADMSG)
		return -1;
	if (ops->lost_names(l->container->b, take_lost, l) < 0)
		return -1;
	sort_losses(l);
	return l->n ? ops->all_versions(l->container->b, try_version, l) : 0;
}

int container_check_names(struct umobject_container *c)
{
	struct losses l = { .container = c, .strict = true };
	int result = find_losses(&l);
	size_t i;

	for (i = 0; i < l.n && result == 0; i++) {
		const struct loss *loss = &l.list[i];

		if (!loss->version)
			result = object_fail(EBADMSG, "cannot tell which chunks are in use, "
					"because the name of '%s' is missing, but records of its "
					"versions exist. Nothing was removed. Try \"umobject check "
					"--repair\" to restore it, or \"umobject rm\" to delete it",
					loss->name);
		else if (loss->found)
			result = object_fail(EBADMSG, "cannot tell which chunks are in use, "
					"because the record of version %llu of '%s' is missing. "
					"Nothing was removed. Try \"umobject check --repair\" to "
					"restore it", (unsigned long long)loss->version,
					loss->name);
	}
	free_losses(&l);
	return result;
}

/* ---- A check of a container ---- */

struct check {
	struct umobject_container *container;
	bool repair;
	void (*each)(void *arg, const char *name, const char *sentence);
	void *arg;
	const char *name;      /* of the object that is checked */
	char label[32];        /* " version N", or "" */
	int faults;            /* that are left */
	bool found;            /* whether the only name that is checked is there */
	struct losses losses;  /* those of the last pass */
};

static void tell(struct check *k, const char *sentence, bool repaired)
{
	char name[UMOBJECT_NAME_MAX + sizeof(k->label)], text[1100];

	k->faults += !repaired;
	if (!k->each)
		return;
	snprintf(name, sizeof(name), "%s%s", k->name, k->label);
	snprintf(text, sizeof(text), "%s%s", sentence, repaired ? ": restored" : "");
	k->each(k->arg, name, text);
}

static void tell_chunk(void *check, const char *sentence)
{
	tell(check, sentence, false);
}

static bool restore(const struct check *k, const struct loss *loss)
{
	struct umobject_container *c = k->container;
	struct backend *b = c->b;
	umobject_version *v;
	void *lock = NULL;
	bool is_newest = !loss->version, restored;

	if (!k->repair || !loss->found || umobject_hold_id(c, &loss->id, &v) < 0)
		return false;
	restored = !b->ops->name_lock || b->ops->name_lock(b, loss->name, &lock) == 0;
	if (restored) {
		restored = b->ops->name_restore(b, loss->name, &loss->id, loss->found, is_newest) == 0 ||
			(errno == EEXIST && (!is_newest || newest_number(c, loss->name)));
		if (b->ops->name_unlock)
			b->ops->name_unlock(b, lock);
	}
	umobject_release(v);
	return restored;
}

/* True: the loss is restored. */
static bool tell_loss(struct check *k, const struct loss *loss)
{
	unsigned long long version = (unsigned long long)(loss->version ? loss->version : loss->found);
	bool restored;
	char text[120];

	/* check_name reports a damaged record without a replacement. */
	if (loss->is_damaged && !loss->found)
		return false;
	restored = restore(k, loss);
	k->name = loss->name;
	*k->label = '\0';
	if (loss->version)
		snprintf(text, sizeof(text), "the record of version %llu is missing%s", version,
			 loss->found ? "" : ", and the version cannot be found");
	else if (loss->is_damaged)
		snprintf(text, sizeof(text), "the record of the name is damaged, but version %llu "
			 "exists", version);
	else if (loss->found)
		snprintf(text, sizeof(text), "the name is missing, but version %llu exists",
			 version);
	else
		snprintf(text, sizeof(text), "the name is missing, and no version can be read");
	tell(k, text, restored);
	if (loss->damaged > loss->found) {
		snprintf(text, sizeof(text), "version %llu has damaged chunks and is not restored: "
			 "the next gc removes it", (unsigned long long)loss->damaged);
		tell(k, text, false);
	}
	return restored;
}

static int check_losses(struct check *k, const char *only, bool *name_restored)
{
	struct losses l = { .container = k->container, .only = only }, before = k->losses;
	int result = find_losses(&l);
	size_t i;

	*name_restored = false;
	for (i = 0; i < l.n && result == 0; i++) {
		/* An earlier pass has reported it. */
		if (find_loss(&before, l.list[i].name, l.list[i].version))
			continue;
		*name_restored |= tell_loss(k, &l.list[i]) && !l.list[i].version;
		k->found = true;
	}
	free_losses(&before);
	k->losses = l;
	return result;
}

/* Whether a damaged record was reported with the version that can replace it. */
static bool has_told(const struct check *k, const char *name)
{
	const struct loss *loss = find_loss(&k->losses, name, 0);

	return loss && loss->is_damaged && loss->found;
}

static bool rewrite_view(const struct check *k, const umobject_version *v)
{
	struct backend *b = k->container->b;
	void *bytes;
	size_t size;
	bool written;

	if (!k->repair)
		return false;
	bytes = view_make(v->object, b->ops->view_file, b, &size);
	written = bytes && b->ops->view_write(b, &v->object->id, bytes, size) == 0;
	free(bytes);
	return written;
}

static void check_view(struct check *k, const umobject_version *v)
{
	struct backend *b = k->container->b;
	struct failure why;
	void *bytes;
	size_t size;

	if (!b->ops->view_write)
		return;
	if (b->ops->view_read(b, &v->object->id, &bytes, &size) == 0) {
		int result = view_verify(bytes, size, &v->object->id);

		free(bytes);
		if (result == 0)
			return;
	}
	failure_keep(&why);
	tell(k, why.text, rewrite_view(k, v));
}

/* The name's records are compared under its lock, because a commit changes them one after the
 * other. */
static void compare_shown(struct check *k, const umobject_version *v, bool locked)
{
	struct umobject_container *c = k->container;
	const struct backend_ops *ops = c->b->ops;

	if (ops->view_shown(c->b, k->name, &v->object->id) || newest_number(c, k->name) != v->object->version)
		return;
	if (!k->repair || !locked || !ops->settle)
		tell(k, "the link in h5/ does not lead to the view of the newest version", false);
	else
		tell(k, "the link in h5/ does not lead to the view of the newest version",
		     ops->settle(c->b, k->name, &v->object->id, v->object->version) == 0 &&
		     ops->view_shown(c->b, k->name, &v->object->id));
}

static void check_shown(struct check *k, const umobject_version *v)
{
	struct backend *b = k->container->b;
	void *lock = NULL;
	bool locked;

	if (!b->ops->view_shown || b->ops->view_shown(b, k->name, &v->object->id))
		return;
	/* A user who may not lock compares without a lock. */
	locked = b->ops->name_lock && b->ops->name_lock(b, k->name, &lock) == 0;
	compare_shown(k, v, locked);
	if (locked)
		b->ops->name_unlock(b, lock);
}

/* One version, and not the chunks that `newer` has as well. */
static int check_version(struct check *k, umobject_version *v, const struct object *newer)
{
	if (version_check(v, newer, tell_chunk, k) < 0)
		return -1;
	check_view(k, v);
	return 0;
}

/* From the newest version on, so that chunks of several versions are read once. */
static int check_kept(struct check *k, const struct kept *kept)
{
	umobject_version *newer = NULL, *v;
	uint64_t number;
	int result = 0;

	for (number = kept->newest; number >= kept->first && result == 0; number--) {
		*k->label = '\0';
		if (number < kept->newest)
			snprintf(k->label, sizeof(k->label), " version %llu", (unsigned long long)number);
		if (number < kept->newest && !kept->there[number - kept->first])
			continue;
		if (umobject_hold(k->container, k->name, number, &v) < 0) {
			/* It may have been replaced or deleted since it was listed. */
			if (errno == ENOMEM)
				result = -1;
			else if (errno != ENOENT)
				tell(k, umobject_errormsg(), false);
			continue;
		}
		result = check_version(k, v, newer ? newer->object : NULL);
		if (number == kept->newest)
			check_shown(k, v);
		umobject_release(newer);
		newer = v;
	}
	umobject_release(newer);
	*k->label = '\0';
	return result;
}

static int check_name(void *arg, const char *name)
{
	struct check *k = arg;
	struct kept kept;

	k->name = name;
	*k->label = '\0';
	if (find_kept(k->container, name, &kept)) {
		k->found = true;
		return check_kept(k, &kept);
	}
	if (errno == ENOENT)
		return 0;
	if (errno == ENOMEM)
		return -1;
	k->found = true;
	if (errno != EBADMSG || !has_told(k, name))
		tell(k, umobject_errormsg(), false);
	return 0;
}

static int check_all(struct check *k, const char *name)
{
	const struct backend_ops *ops = k->container->b->ops;
	bool name_restored;

	if (k->repair && ops->end_removals && ops->end_removals(k->container->b) < 0)
		return -1;
	/* A name that has been restored tells which versions are missing. */
	do {
		if (check_losses(k, name, &name_restored) < 0)
			return -1;
	} while (name_restored);
	if (name)
		return check_name(k, name);
	if (umobject_list(k->container, check_name, k) == 0)
		return 0;
	if (errno != EBADMSG)
		return -1;
	/* The name itself is among what is damaged. */
	k->name = "names";
	tell(k, umobject_errormsg(), false);
	return 0;
}

int umobject_check_container(umobject_container *c, const char *name, unsigned flags,
			     void (*each)(void *arg, const char *name, const char *sentence), void *arg)
{
	struct check k = { .container = c, .repair = flags & UMOBJECT_REPAIR, .each = each, .arg = arg };
	int result;

	if (flags & ~UMOBJECT_REPAIR)
		return object_fail(EINVAL, "cannot use the flags %#x: the only flag is "
				   "UMOBJECT_REPAIR", flags);
	if (k.repair && c->read_only)
		return object_fail(EROFS, "cannot repair the container: it was opened with "
				   "UMOBJECT_READ_ONLY");
	if (name && name_check(name) < 0)
		return -1;
	result = check_all(&k, name);
	free_losses(&k.losses);
	if (result < 0)
		return -1;
	if (name && !k.found)
		return object_fail(ENOENT, "cannot find the object '%s'", name);
	return k.faults;
}
