/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of a whole container: names and kept versions that are lost, chunks and views that are
 * damaged.
 *
 * A version is lost if a name should refer to it and does not: a kept version without its record,
 * or all versions of a name that is missing although other records of the name exist
 * (backend_ops.lost_names). A name whose record is damaged has lost its newest version. Lost
 * versions look like garbage to gc.c, so the collector calls check_names first. Lost versions are
 * found by the name that each version has in it.
 */
#include "object/container.h"

#include "object/error.h"
#include "object/id.h"
#include "object/hdf5.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A version that is lost. */
struct loss {
	char *name;
	uint64_t version;      /* its number; 0: the name is missing or damaged */
	bool is_damaged;       /* whether the name has a record, which is damaged */
	struct umobject_id id; /* the version that is found for it, the best candidate so far */
	uint64_t found;        /* number of that version; 0: none is found */
	uint64_t created;      /* time at which that version was begun */
	bool is_whole;         /* whether all chunks of that version are undamaged */
	bool is_recorded;      /* whether another record leads to it */
	uint64_t bad_version;  /* number of the newest candidate that has damaged chunks; 0: none */
};

struct losses {
	struct umobject_container *container;
	const char *only;      /* the only name to look for; NULL: all */
	bool is_strict;        /* whether a name that cannot be read now is an error */
	struct loss *list;     /* sorted by name and version */
	size_t n;
};

/* ---- Finding losses ---- */

static int add_loss(struct losses *l, const char *name, uint64_t version, bool is_damaged)
{
	struct loss *grown = realloc(l->list, (l->n + 1) * sizeof(*grown));
	char *copy = strdup(name);

	if (grown)
		l->list = grown;
	if (!grown || !copy) {
		free(copy);
		return fail_no_memory("list the damaged names");
	}
	grown[l->n++] = (struct loss){ .name = copy, .version = version, .is_damaged = is_damaged };
	return 0;
}

static void free_losses(struct losses *l)
{
	while (l->n)
		free(l->list[--l->n].name);
	free(l->list);
}

static int compare_losses(const void *a, const void *b)
{
	const struct loss *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order ? order : (x->version > y->version) - (x->version < y->version);
}

static void sort_losses(struct losses *l)
{
	size_t n = 0;

	if (l->n)
		qsort(l->list, l->n, sizeof(*l->list), compare_losses);
	for (size_t i = 0; i < l->n; i++) {
		if (n && compare_losses(&l->list[n - 1], &l->list[i]) == 0)
			free(l->list[i].name);
		else
			l->list[n++] = l->list[i];
	}
	l->n = n;
}

int check_owner(const struct object *o, const char *name)
{
	return strcmp(o->name, name) == 0 ? 0 :
		object_fail(EBADMSG, "cannot read '%s': its record is another object's", name);
}

/* The number of a name's newest version, or 0 with errno. */
static uint64_t read_newest_number(struct umobject_container *c, const char *name)
{
	umobject_version *v = version_of_name(c, name, 0);
	uint64_t number = v && check_owner(v->object, name) == 0 ? v->object->version : 0;

	umobject_release(v);
	return number;
}

/* Which of the kept versions of a name have a record. */
struct kept {
	uint64_t first, newest;
	bool exists[KEEP_MAX];
};

static int mark_kept(void *arg, uint64_t version)
{
	struct kept *k = arg;

	if (version >= k->first && version <= k->newest)
		k->exists[version - k->first] = true;
	return 0;
}

/* Finds the kept versions. Returns false if the name is damaged or was deleted meanwhile. A
 * commit in between is noticed by the newest number, which changes before the oldest versions
 * are dropped. */
static bool find_kept(struct umobject_container *c, const char *name, struct kept *k)
{
	uint64_t after = read_newest_number(c, name);

	do {
		*k = (struct kept){ .newest = after };
		k->first = after > c->keep ? after - c->keep + 1 : 1;
		if (!after || c->b->ops->names->list_versions(c->b, name, mark_kept, k) < 0)
			return false;
		after = read_newest_number(c, name);
	} while (after != k->newest);
	return true;
}

static int find_gaps(void *arg, const char *name)
{
	struct losses *l = arg;
	struct kept kept;

	if (!find_kept(l->container, name, &kept)) {
		if (errno == EBADMSG && !l->is_strict)
			return add_loss(l, name, 0, true);
		return l->is_strict && errno != ENOENT && errno != EBADMSG ? -1 : 0;
	}
	for (uint64_t number = kept.first; number <= kept.newest; number++)
		if (!kept.exists[number - kept.first] && add_loss(l, name, number, false) < 0)
			return -1;
	return 0;
}

static int add_lost_name(void *arg, const char *name)
{
	struct losses *l = arg;

	return l->only && strcmp(name, l->only) != 0 ? 0 : add_loss(l, name, 0, false);
}

/* ---- Finding the versions that replace them ---- */

static struct loss *find_loss(const struct losses *l, const char *name, uint64_t version)
{
	struct loss key = { .name = (char *)(uintptr_t)name, .version = version };

	return l->n ? bsearch(&key, l->list, l->n, sizeof(*l->list), compare_losses) : NULL;
}

/* Whether the view of the name or the record of a kept version leads to the version. */
static bool is_recorded(struct umobject_container *c, const struct object *o)
{
	const struct backend_ops *ops = c->b->ops;
	umobject_version *found;
	bool same;

	if (ops->views && ops->views->is_shown(c->b, o->name, &o->id))
		return true;
	found = version_of_name(c, o->name, o->version);
	same = found && id_same(&found->object->id, &o->id);
	umobject_release(found);
	return same;
}

/* Whether a version is newer than the candidate so far. If number and time disagree, one of the two
 * may belong to a deleted object of the same name, whose versions exist until gc removes them and
 * which no record leads to. */
static bool is_newer(const struct loss *loss, const struct object *o, bool recorded)
{
	bool later = o->created >= loss->created, higher = o->version > loss->found;

	if (later == higher)
		return higher;
	if (recorded != loss->is_recorded)
		return recorded;
	return recorded ? higher : later;
}

/* Makes the version the candidate for a loss if it is better: an undamaged version is better than a
 * damaged one, and then a newer one than an older one. */
static void offer_version(struct loss *loss, umobject_version *v)
{
	const struct object *o = v->object;
	bool recorded = is_recorded(v->container, o), newer = is_newer(loss, o, recorded), whole;

	if (loss->is_whole && !newer)
		return;
	whole = version_check(v, NULL, NULL, NULL) == 0;
	if (!whole && o->version > loss->bad_version)
		loss->bad_version = o->version;
	if (whole == loss->is_whole ? !newer : !whole)
		return;
	loss->id = o->id;
	loss->found = o->version;
	loss->created = o->created;
	loss->is_whole = whole;
	loss->is_recorded = recorded;
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
		offer_version(loss, v);
	umobject_release(v);
	return 0;
}

static int find_losses(struct losses *l)
{
	struct backend *b = l->container->b;

	if (!b->ops->names->list_lost)
		return 0;
	if (l->only ? find_gaps(l, l->only) < 0 :
	    b->ops->names->list(b, find_gaps, l) < 0 && errno != EBADMSG)
		return -1;
	if (b->ops->names->list_lost(b, add_lost_name, l) < 0)
		return -1;
	sort_losses(l);
	return l->n ? b->ops->versions->list(b, try_version, l) : 0;
}

int check_names(struct umobject_container *c)
{
	struct losses l = { .container = c, .is_strict = true };
	int result = find_losses(&l);

	for (size_t i = 0; i < l.n && result == 0; i++) {
		const struct loss *loss = &l.list[i];

		if (!loss->version)
			result = object_fail(EBADMSG, "cannot tell which chunks are in use, "
					     "because the name of '%s' is missing, but records of "
					     "its versions exist. Nothing was removed. Try "
					     "\"umobject check --repair\" to restore it, or "
					     "\"umobject rm\" to delete it", loss->name);
		else if (loss->found)
			result = object_fail(EBADMSG, "cannot tell which chunks are in use, "
					     "because the record of version %" PRIu64 " of '%s' is "
					     "missing. Nothing was removed. Try \"umobject check "
					     "--repair\" to restore it", loss->version, loss->name);
	}
	free_losses(&l);
	return result;
}

/* ---- Checking a container ---- */

struct check {
	struct umobject_container *container;
	bool repair;
	void (*each)(void *arg, const char *name, const char *message);
	void *arg;
	const char *name;      /* name of the object that is checked */
	char label[32];        /* " version N", or "" */
	int faults;            /* number of problems that are left */
	bool found;            /* whether the only name that is checked exists */
	struct losses losses;  /* losses of the last pass */
};

static void report_problem(struct check *k, const char *message, bool repaired)
{
	char name[UMOBJECT_NAME_MAX + sizeof(k->label)], text[1100];

	k->faults += !repaired;
	if (!k->each)
		return;
	snprintf(name, sizeof(name), "%s%s", k->name, k->label);
	snprintf(text, sizeof(text), "%s%s", message, repaired ? ": restored" : "");
	k->each(k->arg, name, text);
}

static void report_chunk(void *check, const char *message)
{
	report_problem(check, message, false);
}

static bool restore_loss(const struct check *k, const struct loss *loss)
{
	struct umobject_container *c = k->container;
	umobject_version *v;
	void *lock;
	bool is_newest = !loss->version, restored;

	if (!k->repair || !loss->found || umobject_hold_id(c, &loss->id, &v) < 0)
		return false;
	restored = container_lock(c, loss->name, &lock) == 0;
	if (restored) {
		restored = c->b->ops->names->restore(c->b, loss->name, &loss->id, loss->found,
						     is_newest) == 0 ||
			(errno == EEXIST && (!is_newest || read_newest_number(c, loss->name)));
		container_unlock(c, lock);
	}
	umobject_release(v);
	return restored;
}

/* Reports a loss. Returns whether it is restored. */
static bool report_loss(struct check *k, const struct loss *loss)
{
	bool restored;
	char text[120];

	/* check_name reports a damaged record without a replacement. */
	if (loss->is_damaged && !loss->found)
		return false;
	restored = restore_loss(k, loss);
	k->name = loss->name;
	*k->label = '\0';
	if (loss->version)
		snprintf(text, sizeof(text), "the record of version %" PRIu64 " is missing%s",
			 loss->version, loss->found ? "" : ", and the version cannot be found");
	else if (loss->found)
		snprintf(text, sizeof(text), "the %s, but version %" PRIu64 " exists",
			 loss->is_damaged ? "record of the name is damaged" : "name is missing",
			 loss->found);
	else
		snprintf(text, sizeof(text), "the name is missing, and no version can be read");
	report_problem(k, text, restored);
	if (loss->bad_version > loss->found) {
		snprintf(text, sizeof(text), "version %" PRIu64 " has damaged chunks and is not "
			 "restored: the next gc removes it", loss->bad_version);
		report_problem(k, text, false);
	}
	return restored;
}

/* Reports the losses that an earlier pass has not reported. */
static int check_losses(struct check *k, const char *only, bool *name_restored)
{
	struct losses l = { .container = k->container, .only = only };
	int result = find_losses(&l);

	*name_restored = false;
	for (size_t i = 0; i < l.n && result == 0; i++) {
		if (find_loss(&k->losses, l.list[i].name, l.list[i].version))
			continue;
		*name_restored |= report_loss(k, &l.list[i]) && !l.list[i].version;
		k->found = true;
	}
	free_losses(&k->losses);
	k->losses = l;
	return result;
}

static void check_view(struct check *k, const umobject_version *v)
{
	struct backend *b = k->container->b;
	struct failure why;
	struct bytes view;
	int result;

	if (!b->ops->views)
		return;
	result = b->ops->views->read(b, &v->object->id, &view);
	if (result == 0) {
		result = view_verify(&view, &v->object->id);
		free(view.data);
	}
	if (result == 0)
		return;
	failure_keep(&why);
	report_problem(k, why.text, k->repair && version_write_view(v) == 0);
}

/* Checks that users find the newest version's view by the name. A commit changes the records of a
 * name one after another, so they are compared again under its lock, if the user may lock. */
static void check_shown(struct check *k, const umobject_version *v)
{
	struct umobject_container *c = k->container;
	const struct backend_ops *ops = c->b->ops;
	const struct object *o = v->object;
	bool locked, repaired;
	void *lock;

	if (!ops->views || ops->views->is_shown(c->b, k->name, &o->id))
		return;
	locked = container_lock(c, k->name, &lock) == 0;
	if (read_newest_number(c, k->name) == o->version &&
	    !ops->views->is_shown(c->b, k->name, &o->id)) {
		repaired = k->repair && locked && ops->names->settle &&
			ops->names->settle(c->b, k->name, &o->id, o->version) == 0 &&
			ops->views->is_shown(c->b, k->name, &o->id);
		report_problem(k, "the link in h5/ does not lead to the view of the newest version",
			       repaired);
	}
	if (locked)
		container_unlock(c, lock);
}

/* Checks the kept versions, the newest first, so that common chunks of two versions are read
 * once. */
static int check_kept(struct check *k, const struct kept *kept)
{
	umobject_version *newer = NULL, *v;
	int result = 0;

	for (uint64_t number = kept->newest; number >= kept->first && result == 0; number--) {
		*k->label = '\0';
		if (number < kept->newest)
			snprintf(k->label, sizeof(k->label), " version %" PRIu64, number);
		if (number < kept->newest && !kept->exists[number - kept->first])
			continue;
		if (umobject_hold(k->container, k->name, number, &v) < 0) {
			/* The version may have been replaced or deleted since it was listed. */
			if (errno == ENOMEM)
				result = -1;
			else if (errno != ENOENT)
				report_problem(k, umobject_errormsg(), false);
			continue;
		}
		if (version_check(v, newer ? newer->object : NULL, report_chunk, k) < 0)
			result = -1;
		else
			check_view(k, v);
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
	const struct loss *loss;
	struct kept kept;

	k->name = name;
	*k->label = '\0';
	if (find_kept(k->container, name, &kept)) {
		k->found = true;
		return check_kept(k, &kept);
	}
	if (errno == ENOENT || errno == ENOMEM)
		return errno == ENOENT ? 0 : -1;
	k->found = true;
	/* report_loss has reported a damaged record that a version can replace. */
	loss = errno == EBADMSG ? find_loss(&k->losses, name, 0) : NULL;
	if (!loss || !loss->is_damaged || !loss->found)
		report_problem(k, umobject_errormsg(), false);
	return 0;
}

static int check_all(struct check *k, const char *name)
{
	const struct backend_ops *ops = k->container->b->ops;
	bool name_restored;

	if (k->repair && ops->names->end_removals && ops->names->end_removals(k->container->b) < 0)
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
	report_problem(k, umobject_errormsg(), false);
	return 0;
}

int umobject_check_container(umobject_container *c, const char *name, unsigned flags,
			     void (*each)(void *arg, const char *name, const char *message),
			     void *arg)
{
	struct check k = { .container = c, .each = each, .arg = arg };
	int result;

	if (flags & ~UMOBJECT_REPAIR)
		return object_fail(EINVAL, "cannot use the flags %#x: the only flag is "
				   "UMOBJECT_REPAIR", flags);
	k.repair = flags & UMOBJECT_REPAIR;
	if ((k.repair && container_check_writable(c) < 0) || (name && name_check(name) < 0))
		return -1;
	result = check_all(&k, name);
	free_losses(&k.losses);
	if (result < 0)
		return -1;
	if (name && !k.found)
		return object_fail(ENOENT, "cannot find the object '%s' in '%s'. Try \"umobject "
				   "ls\"", name, c->where);
	return k.faults;
}
