/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cow - a filter that leaves the store behind it unchanged. Written blocks go to an overlay, the
 * file of changes, and are read from there; all other blocks are read from the store. Each flush
 * is a commit of the overlay. cow.h says how the changes get into the store, if ever.
 */
#include "cow.h"

#include "../keys.h"
#include "common/futex.h"
#include "common/minmax.h"
#include "common/stamp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const struct overlay_policy overlay_cow = {
	.scheme = "cow", .file = "file of cow+", .id = OVERLAY_COW,
};

struct cow {
	struct overlay o;          /* file.h NULL: read-only, and there are no changes */
	bool handed;               /* whether the store is handed over to another handle */
	bool commits;              /* whether the other handle needs the changes in the store */
	bool committed;            /* whether the store has all of the changes now */
	char path[PATH_MAX];       /* path of the store while it is handed over */
};

/* ---- Transfers ---- */

static int cow_flush(void *h, uint64_t off, uint64_t len)
{
	struct overlay *o = h;

	(void)off;
	(void)len;
	return o->writable ? overlay_commit_changes(o) : 0;
}

static int cow_resize(void *h, uint64_t size)
{
	struct overlay *o = h;

	if (!o->writable)
		return -EOPNOTSUPP;
	if (size < o->size)
		return overlay_shorten(o, size);
	overlay_grow(o, size);
	return 0;
}

/* No other handle may write the store; any number may have changes of their own. */
static int cow_lock(void *h, uint64_t off, uint64_t len, int how, char why[160])
{
	struct overlay *o = h;

	return behind_lock(&o->store, off, len,
			   how == UMMAP_LOCK_EXCLUSIVE ? UMMAP_LOCK_SHARED : how, why);
}

/* ---- Files of changes ---- */

static bool is_same(const struct store_facts *a, const struct store_facts *b)
{
	return a->id == b->id && (a->id || strcmp(a->name, b->name) == 0);
}

/* An interrupted commit has written to the store. */
int cow_fits(const struct overlay *o, const struct store_facts *now, struct ummap_geom *geom)
{
	const struct store_facts *then = &o->head.store;
	bool changed = now->size != then->size || now->seconds != then->seconds ||
		       now->nanoseconds != then->nanoseconds;

	if (!is_same(now, then))
		return keys_refuse(geom, EINVAL, "cannot use '%.140s': it has the changes of "
				   "another store, '%.30s'. Try another file by cow.path, or by "
				   "--changes of the command", o->file.path, then->name);
	if (changed && !(o->head.flags & OVERLAY_APPLYING))
		return keys_refuse(geom, ESTALE, "cannot use '%.140s': the store was written since "
				   "its changes began. Try `ummap cow discard`", o->file.path);
	return 0;
}

/* Waits until the next change of the store would set another time stamp. */
static void await_stamp(const struct store_facts *store)
{
	if (store->id)
		stamp_await((int64_t)store->seconds, (int64_t)store->nanoseconds);
}

static int set_flags(struct overlay *o, uint64_t flags)
{
	int err;

	futex_lock(&o->file_lock);
	o->head.flags = flags;
	err = overlay_write_head(o);
	futex_unlock(&o->file_lock);
	return err;
}

static int write_store(struct overlay *o, const struct ummap_driver *driver, void *store,
		       uint64_t *block)
{
	struct behind to = { .h = store, .size = o->head.store.size };
	uint64_t number = o->newest.number;
	int err = 0;

	memcpy(&to.driver, driver, min_size(driver->struct_size, sizeof(to.driver)));
	futex_lock(&o->lock);
	o->hold = number;
	futex_unlock(&o->lock);
	if (number > o->head.home)
		err = overlay_apply(o, number, &to, block);
	futex_lock(&o->lock);
	overlay_end_hold(o);
	futex_unlock(&o->lock);
	return err;
}

/* Writes all changes to the store, which has these properties and is open for writing. */
static int write_changes(struct overlay *o, const struct store_facts *now,
			 const struct ummap_driver *driver, void *store, struct ummap_geom *geom)
{
	uint64_t block = 0;
	int err = cow_fits(o, now, geom);

	if (err)
		return err;
	if (o->damaged_at)
		return overlay_refuse_damaged(o, geom);
	/* A file that serves a mapping is ready. */
	err = o->part ? 0 : overlay_make_ready(o);
	if (!err && !(o->head.flags & OVERLAY_APPLYING))
		err = set_flags(o, OVERLAY_APPLYING);
	if (err)
		return keys_refuse(geom, -err, "cannot write '%.140s': %s. The store is unchanged",
				   o->file.path, strerror(-err));
	err = write_store(o, driver, store, &block);
	if (err == -EBADMSG)
		return keys_refuse(geom, EUCLEAN, "cannot commit '%.140s': its block %ju of the "
				   "store is damaged, and the store has a part of the changes",
				   o->file.path, (uintmax_t)block);
	if (err)
		return keys_refuse(geom, -err, "cannot write to the store: %s. Try to commit "
				   "'%.140s' again, which stays", strerror(-err), o->file.path);
	return 0;
}

int cow_commit(struct overlay *o, const struct store_facts *now, const struct ummap_driver *driver,
	       void *store, struct ummap_geom *geom)
{
	int err = write_changes(o, now, driver, store, geom);

	if (err)
		return err;
	err = side_remove(&o->file);
	return err ? keys_refuse(geom, -err, "cannot remove '%.140s': %s. Its changes are "
				 "committed", o->file.path, strerror(-err)) : 0;
}

/* ---- Handing over (ummap-driver.h) ---- */

/* The store gets the changes if the other handle goes on with the contents and has no file of
 * changes itself. */
static bool must_commit(const struct cow *c, const struct ummap_handover *to)
{
	return to->how == UMMAP_HANDOVER_KEEP && c->o.writable &&
	       !overlay_has_layer(c->o.policy, to->to);
}

static int prepare(struct cow *c, struct ummap_handover *to)
{
	struct overlay *o = &c->o;
	int err = 0;

	if (o->head.flags && to->how == UMMAP_HANDOVER_SWITCH) {
		snprintf(to->why, sizeof(to->why), "cannot leave '%.140s': writing its changes to "
			 "the store failed, and the store has a part of them. Try again "
			 "without UMMAP_SWITCH", o->file.path);
		return -EUCLEAN;
	}
	if (o->writable)
		err = overlay_commit_changes(o);
	if (!err)
		err = behind_hand_over(&o->store, to);
	if (err)
		return -abs(err);
	side_hand_over(&o->file, to);
	snprintf(c->path, sizeof(c->path), "%s", to->to->path);
	c->commits = must_commit(c, to);
	c->handed = true;
	return 0;
}

static int commit(struct cow *c, struct ummap_handover *to)
{
	struct store_facts facts = c->o.head.store;
	struct ummap_geom geom = { .size = 0 };
	int err = write_changes(&c->o, &facts, to->driver, to->h, &geom);

	memcpy(to->why, geom.why, sizeof(to->why));
	c->committed = !err;
	return err ? err : 1;
}

/* Takes back a commit, also one that failed: the changes are now those of the store as it is, which
 * may have some of them. */
static int end_commit(struct cow *c)
{
	struct store_facts now;
	struct stat st;

	if (!(c->o.head.flags & OVERLAY_APPLYING))
		return 0;
	if (stat(c->path, &st) < 0)
		return -errno;
	overlay_describe(&now, c->path, -1, (uint64_t)st.st_size);
	now.size = S_ISREG(st.st_mode) ? now.size : c->o.head.store.size;
	c->o.head.store = now;
	await_stamp(&now);
	return set_flags(&c->o, OVERLAY_MIXED);
}

static int cancel(struct cow *c, struct ummap_handover *to)
{
	int err = behind_hand_over(&c->o.store, to), resuming, ending;

	side_hand_over(&c->o.file, to);
	resuming = c->o.writable ? overlay_resume(&c->o) : 0;
	ending = c->commits ? end_commit(c) : 0;
	c->handed = c->committed = false;
	return err ? err : resuming ? resuming : ending;
}

static int cow_hand_over(void *h, struct ummap_handover *to)
{
	struct cow *c = h;

	if (to->how == UMMAP_HANDOVER_FINISH)
		return c->commits ? commit(c, to) : 0;
	return to->how == UMMAP_HANDOVER_CANCEL ? cancel(c, to) : prepare(c, to);
}

/* ---- Opening and closing ---- */

static const struct key_type types[] = { COW_KEYS(KEY_TYPE) KEY_TYPES_END };

/* The settings of a handle, and the store that it opens. */
struct opening {
	const struct ummap_uri *uri;
	int fd;                    /* descriptor of the store, or negative */
	struct store_facts facts;
	char path[PATH_MAX];       /* path of the file of changes; "": cow.path is not given */
};

static int parse_keys(struct cow *c, struct opening *how, struct ummap_geom *geom)
{
	for (unsigned i = 0; i < how->uri->nkeys; i++) {
		const struct ummap_key *key = &how->uri->keys[i];
		bool ok = strcmp(key->name, "path") == 0 ? keys_path(key->value, how->path) :
							   keys_flag(key->value, &c->o.verifies);

		if (!ok)
			return keys_refuse_value(geom, "cow.", key, types);
	}
	return 0;
}

/* The changes of a regular file are beside it by default. Other stores need cow.path. */
static int choose_path(struct opening *how, struct ummap_geom *geom)
{
	if (*how->path)
		return 0;
	if (how->facts.id && *how->uri->path)
		return overlay_beside(how->path, how->uri->path, COW_SUFFIX);
	return keys_refuse(geom, EINVAL, "cannot choose a file for the changes: the store is not a "
			   "regular file with a path. Try to name one by cow.path");
}

static int check_and_load(struct cow *c, const struct opening *how, struct ummap_geom *geom)
{
	struct overlay *o = &c->o;
	int err = cow_fits(o, &how->facts, geom);

	if (err)
		return err;
	if (o->damaged_at)
		return overlay_refuse_damaged(o, geom);
	if (o->head.flags & OVERLAY_APPLYING)
		return keys_refuse(geom, EUCLEAN, "cannot use '%.140s': its commit to the store "
				   "was interrupted. Try `ummap cow commit` first", o->file.path);
	err = overlay_load(o);
	return !err && o->writable ? overlay_make_ready(o) : err;
}

static int open_changes(struct cow *c, const struct opening *how, struct ummap_geom *geom)
{
	struct overlay_opening file = { .path = how->path, .write = c->o.writable,
					.create = c->o.writable, .lock = UMMAP_LOCK_SHARED };
	struct stat st;
	int err;

	/* The changes may be read by the users that may read the store. */
	if (how->facts.id && (how->fd < 0 ? stat(how->uri->path, &st) : fstat(how->fd, &st)) == 0)
		file.mode = st.st_mode & 0666;
	file.mode |= 0600;
	err = overlay_open(&c->o, &file, geom);
	if (err == -ENOENT && !c->o.writable) {
		*geom->why = '\0';
		return 0;
	}
	if (err < 0)
		return err;
	if (err == 1 && !c->o.writable)
		return overlay_close(&c->o), 0;
	if (err == 1)
		await_stamp(&how->facts);
	err = err == 1 ? overlay_create_for(&c->o, &how->facts, how->uri) :
			 check_and_load(c, how, geom);
	if (err && !*geom->why)
		keys_refuse(geom, -err, "cannot prepare '%.140s': %s", how->path, strerror(-err));
	if (err)
		overlay_close(&c->o);
	return err;
}

static int set_up(struct cow *c, struct opening *how, struct ummap_geom *geom)
{
	struct overlay *o = &c->o;
	int err = parse_keys(c, how, geom);

	overlay_describe(&how->facts, how->uri->path, how->fd, geom->size);
	if (!err)
		err = choose_path(how, geom);
	if (!err)
		err = open_changes(c, how, geom);
	if (err)
		return err;
	if (o->file.h) {
		geom->size = o->size;
		geom->id[0] = o->file.id[0];
		geom->id[1] = ~o->file.id[1];
	}
	geom->caps |= UMMAP_CAP_PARALLEL;
	if (o->writable)
		geom->caps |= UMMAP_CAP_WRITE | UMMAP_CAP_GROW;
	if (behind_is_async(&o->store))
		geom->caps |= UMMAP_CAP_ASYNC;
	return 0;
}

static int open_both(const struct ummap_uri *uri, int fd, int oflags, void **h,
		     struct ummap_geom *geom)
{
	int store_flags = (oflags & ~(UMMAP_O_WRITE | UMMAP_O_CREATE)) | UMMAP_O_OVERLAID, err;
	struct opening how = { .uri = uri, .fd = fd };
	struct cow *c;

	if (oflags & UMMAP_O_WRITERS)
		return keys_refuse(geom, EINVAL, "cannot use cow+ with UMMAP_WRITERS: a file of "
				   "changes has only one writer");
	/* Both would have one file of changes, and take each other's writes for those of another
	 * program. */
	if (overlay_has_layer(&overlay_cow, uri->next_uri))
		return keys_refuse(geom, EINVAL, "cannot use cow+ in front of cow+, because all "
				   "changes of a store are in one file. Try one cow+");
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->o.policy = &overlay_cow;
	c->o.writable = c->o.grows = oflags & UMMAP_O_WRITE;
	err = behind_open(&c->o.store, uri, fd, store_flags, geom);
	if (err)
		free(c);
	if (err == -ENOENT && oflags & UMMAP_O_CREATE)
		return keys_refuse(geom, ENOENT, "cannot open '%.140s': it does not exist, and "
				   "cow+ only reads it. Try to create it first, even if it is "
				   "empty", uri->path);
	if (err)
		return err;
	err = set_up(c, &how, geom);
	if (err) {
		behind_close(&c->o.store);
		free(c);
		return err;
	}
	*h = c;
	return 0;
}

OPENING_CALLS(cow, open_both)

/* Written blocks that no commit has would be missing when the file is opened again. */
static int cow_close(void *h)
{
	struct cow *c = h;
	bool inherited = behind_inherited(&c->o.store);
	int err = 0, closing;

	if (c->o.writable && !c->handed && !inherited)
		err = -abs(overlay_commit_changes(&c->o));
	/* A file that cannot be removed has OVERLAY_APPLYING, and ummap-cow(1) repeats the
	 * commit. */
	if (c->committed && !inherited)
		err = side_remove(&c->o.file);
	overlay_close(&c->o);
	closing = behind_close(&c->o.store);
	free(c);
	return err ? err : closing;
}

const struct ummap_driver ummap_driver_cow = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "cow",
	.keys = COW_KEYS(KEY_NAME),
	.help = "cow+URI  the store stays as it is, and what is written goes to a file of changes "
		"(cow.path, cow.verify)",
	.filter = 1,
	.open = cow_open,
	.open_fd = cow_open_fd,
	.close = cow_close,
	.read = overlay_read,
	.write = overlay_write,
	.flush = cow_flush,
	.resize = cow_resize,
	.submit = overlay_submit,
	.reap = overlay_reap,
	.readv = overlay_readv,
	.writev = overlay_writev,
	.size = overlay_size,
	.lock = cow_lock,
	.set_notice = overlay_set_notice,
	.hand_over = cow_hand_over,
};
