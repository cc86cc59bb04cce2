/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wal - a filter that makes each sync atomic. Writes go to an overlay beside the store, the log.
 * A flush makes a commit there. A thread applies a commit to the store when no older commit may be
 * opened any more (overlay.h: the states, and the orders of all writes). At the end of a writable
 * handle, all commits are applied, and the log is removed.
 *
 * One handle has a store for writing, or several have it for reading.
 */
#include "background.h"

#include "common/futex.h"
#include "common/minmax.h"
#include "../file.h"
#include "../keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The handle that the store was handed over to: none, one with the same log, or another one. */
enum handed { NOT_HANDED, HANDED_LOG, HANDED_STORE };

struct wal {
	struct overlay o;              /* file.h NULL: there is no log */
	struct background background;
	_Atomic bool committed;        /* by this handle */
	enum handed handed;
	uint64_t resized;              /* bytes of the store that it was given without a commit */
	char store[PATH_MAX];          /* argument of the command `ummap wal`; "": unknown */
};

static const struct overlay_policy policy = {
	.scheme = "wal", .file = "log", .id = OVERLAY_WAL, .checks_blocks = true,
	.make_room = background_make_room_for_write, .has_written = background_wait_at_bound,
};

/* ---- Calls of the driver that differ from those of other overlays ---- */

static int wal_flush(void *h, uint64_t off, uint64_t len)
{
	struct wal *w = h;
	int err;

	(void)off, (void)len;
	if (!w->o.writable)
		return 0;
	err = overlay_commit(&w->o);
	if (!err) {
		w->committed = true;
		background_wake(&w->o);
	}
	return err;
}

/* The store becomes longer at once, which shows no change of its contents. A store that became
 * shorter would, unless the log says nothing about its contents, and the log may have blocks behind
 * the new end. */
static int wal_resize(void *h, uint64_t size)
{
	struct overlay *o = h;
	int err;

	if (size == o->size)
		return 0;
	if (!o->grows || (size < o->size && !overlay_is_unused(o)))
		return -EOPNOTSUPP;
	err = behind_resize(&o->store, size);
	if (!err && size < o->size)
		o->size = size;
	else if (!err)
		overlay_grow(o, size);
	if (!err)
		((struct wal *)h)->resized = size;
	return err;
}

static int wal_commits(void *h, uint64_t *oldest, uint64_t *newest)
{
	struct overlay *o = h;

	futex_lock(&o->lock);
	*oldest = o->newest.floor;
	*newest = o->newest.number;
	futex_unlock(&o->lock);
	return 0;
}

/* ---- Opening ---- */

struct keys {
	char path[PATH_MAX];           /* of the log */
	char way[BEHIND_WAY];
	struct store_facts store;
	mode_t mode;                   /* permissions of a new log */
	uint64_t size, keep, commit;
	bool goes_back;                /* to `commit` */
	bool keeps;                    /* whether the contents of a mapping continue */
	bool verifies;
	bool has_end;                  /* whether no other log decides where the store ends */
};

static const struct key_type types[] = { WAL_KEYS(KEY_TYPE) KEY_TYPES_END };

static int parse_key(struct keys *k, const struct ummap_key *key, struct ummap_geom *geom)
{
	bool ok;

	if (strcmp(key->name, "path") == 0) {
		ok = keys_path(key->value, k->path);
	} else if (strcmp(key->name, "size") == 0) {
		ok = keys_size(key->value, &k->size);
	} else if (strcmp(key->name, "keep") == 0) {
		ok = keys_number(key->value, 1, OVERLAY_KEEP_MAX, &k->keep);
	} else if (strcmp(key->name, "verify") == 0) {
		ok = keys_flag(key->value, &k->verifies);
	} else {
		ok = keys_number(key->value, 0, UINT64_MAX, &k->commit);
		k->goes_back = true;
	}
	return ok ? 0 : keys_refuse_value(geom, "wal.", key, types);
}

static int parse_keys(struct keys *k, const struct ummap_uri *uri, int oflags,
		      struct ummap_geom *geom)
{
	int err = 0;

	*k = (struct keys){ .size = UINT64_MAX, .keep = 1 };
	if (oflags & UMMAP_O_WRITERS)
		return keys_refuse(geom, EINVAL, "cannot use wal+ with UMMAP_WRITERS: it writes "
				   "whole blocks, parts of which other processes may change");
	for (unsigned i = 0; i < uri->nkeys && !err; i++)
		err = parse_key(k, &uri->keys[i], geom);
	if (!err && k->goes_back && oflags & UMMAP_O_OVERLAID)
		return keys_refuse(geom, EINVAL, "cannot go back to commit %ju: the filter above "
				   "wal+ keeps blocks of a newer state of the store. Try wal+ "
				   "without that filter", (uintmax_t)k->commit);
	return err;
}

/* The default path is beside a store that is a regular file. */
static int choose_path(struct keys *k, const struct ummap_uri *uri, int fd,
		       struct ummap_geom *geom)
{
	struct stat st = { .st_mode = 0 };
	char real[PATH_MAX];

	overlay_resolve(real, *uri->path ? uri->path : k->path);
	overlay_describe(&k->store, real, fd, geom->size);
	behind_way(uri, k->way);
	if (*uri->path)
		stat(uri->path, &st);
	k->keeps = lock_group_find_offer(&st) == UMMAP_HANDOVER_KEEP;
	k->mode = S_ISREG(st.st_mode) ? st.st_mode & 0666 : 0600;
	/* Logs with other paths are for parts of a file, which all of them make longer. */
	k->has_end = !*k->path || (fd < 0 && !S_ISREG(st.st_mode)) ||
		     overlay_is_beside(k->path, uri->path, WAL_SUFFIX);
	if (*k->path)
		return 0;
	if (!S_ISREG(st.st_mode))
		return keys_refuse(geom, EINVAL, "cannot choose a log: the store is not a regular "
				   "file with a path. Try to name one by wal.path");
	return overlay_beside(k->path, uri->path, WAL_SUFFIX);
}

/*
 * A reader may find no log, so it cannot lock the log, and would see the changes that a writer
 * applies. Therefore it locks the store, before it looks for the log. The last byte is for handles
 * that make the store longer. Some stores have no locks.
 */
static int lock_for_reading(struct overlay *o, struct ummap_geom *geom)
{
	char who[160] = "";

	if (o->writable ||
	    behind_lock(&o->store, 0, INT64_MAX - 1, UMMAP_LOCK_SHARED, who) != -EBUSY)
		return 0;
	return keys_refuse(geom, EBUSY, "cannot open the store for reading: it is in use by "
			   "%.140s, which writes it", *who ? who : "another process");
}

/* Whether the log has the commits of the handle that is replaced. */
static bool is_handed_over(const struct overlay *o)
{
	struct stat st;

	return stat(o->file.path, &st) == 0 && lock_group_find_offer(&st);
}

static int check_log(const struct overlay *o, const struct keys *k, struct ummap_geom *geom)
{
	const struct overlay_head *head = &o->head;

	if (*head->store.name && strcmp(head->store.name, k->store.name) != 0)
		return keys_refuse(geom, EINVAL, "cannot use '%.140s': it is the log of another "
				   "store, '%.30s'. Try another wal.path", o->file.path,
				   head->store.name);
	/* Commits through other filters belong to other contents. */
	if (strcmp(head->way, k->way) != 0 && *head->way && o->newest.number > head->home)
		return keys_refuse(geom, EINVAL, "cannot use '%.140s': its commits are for "
				   "wal+%.20s:, not wal+%.16s:. Try the former URI", o->file.path,
				   head->way, k->way);
	if (k->keeps && o->newest.number > head->home && !is_handed_over(o))
		return keys_refuse(geom, EINVAL, "cannot use '%.140s': it has commits that the "
				   "mapping does not show. Try another wal.path, or `ummap wal` to "
				   "remove it", o->file.path);
	if (o->damaged_at && !(k->goes_back && k->commit <= o->newest.number))
		return overlay_refuse_damaged(o, geom);
	return 0;
}

static int use_log(struct overlay *o, const struct keys *k, struct ummap_geom *geom)
{
	uint64_t bad;
	int err = check_log(o, k, geom);

	if (!err && k->goes_back) {
		o->damaged_at = 0;
		err = overlay_go_back(o, k->commit, geom);
	}
	if (!err)
		err = overlay_load(o);
	if (!err)
		err = overlay_check_blocks(o, &bad);
	if (!err && o->damaged_at)
		err = overlay_refuse_damaged(o, geom);
	if (!err && o->writable)
		err = overlay_make_ready(o);
	if (err || !o->writable || strcmp(o->head.way, k->way) == 0)
		return err;
	strcpy(o->head.way, k->way);
	return overlay_write_head(o);
}

/* 0, also if there is no log, and none is needed for reading. */
static int open_log(struct wal *w, const struct keys *k, const struct ummap_uri *uri,
		    struct ummap_geom *geom)
{
	/* Commit 0 is the store without a log. */
	bool is_needed = k->goes_back && k->commit > 0;
	const struct overlay_opening how = {
		.path = k->path, .write = w->o.writable, .create = w->o.writable && !is_needed,
		.mode = k->mode, .lock = UMMAP_LOCK_SHARED,
	};
	struct overlay *o = &w->o;
	int err = overlay_open(o, &how, geom);
	bool is_missing = err == -ENOENT && !how.create, is_new = err == 1;

	if ((is_missing || is_new) && is_needed)
		err = keys_refuse(geom, EINVAL, "cannot go back to commit %ju: there is no log "
				  "'%.140s'", (uintmax_t)k->commit, k->path);
	else if (is_missing || (is_new && !o->writable))
		err = *geom->why = '\0';
	else if (is_new)
		err = overlay_create_for(o, &k->store, uri);
	else if (!err)
		err = use_log(o, k, geom);
	if (err < 0 && !*geom->why)
		keys_refuse(geom, -err, "cannot prepare the log '%.140s': %s", k->path,
			    strerror(-err));
	if (err || is_missing || (is_new && !o->writable))
		overlay_close(o);
	return err;
}

static int set_up(struct wal *w, struct keys *k, const struct ummap_uri *uri, int fd,
		  struct ummap_geom *geom)
{
	struct overlay *o = &w->o;
	int err;

	o->policy = &policy;
	o->writable = geom->caps & UMMAP_CAP_WRITE;
	o->grows = geom->caps & UMMAP_CAP_GROW;
	o->verifies = k->verifies;
	err = choose_path(k, uri, fd, geom);
	if (!err)
		err = lock_for_reading(o, geom);
	if (!err)
		err = open_log(w, k, uri, geom);
	if (err)
		return err;
	o->keep = (unsigned)k->keep;
	o->limit = o->writable ? overlay_count_slots(o, k->size) : 0;
	overlay_name_store(uri, w->store);
	if (o->file.h && o->head.flags & OVERLAY_TAIL)
		err = overlay_cut_found_tail(o, geom);
	if (o->file.h && o->newest.number > o->head.home && o->newest.size > geom->size)
		geom->size = o->newest.size;
	o->size = geom->size;
	if (k->has_end)
		overlay_use_tail(o);
	if (!err && o->writable)
		err = background_start(o, k->size, geom);
	if (err)
		overlay_close(o);
	geom->caps |= UMMAP_CAP_PARALLEL | (behind_is_async(&o->store) ? UMMAP_CAP_ASYNC : 0);
	return err;
}

static int open_both(const struct ummap_uri *uri, int fd, int oflags, void **h,
		     struct ummap_geom *geom)
{
	struct keys k;
	struct wal *w;
	int err = parse_keys(&k, uri, oflags, geom);

	if (err)
		return err;
	/* Drivers must not open a store beside which there is a log with other commits. */
	if (!*k.path || overlay_is_beside(k.path, uri->path, WAL_SUFFIX))
		oflags |= UMMAP_O_LOGGED;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	err = behind_open(&w->o.store, uri, fd, oflags, geom);
	if (!err) {
		err = set_up(w, &k, uri, fd, geom);
		if (err)
			behind_close(&w->o.store);
	}
	if (err)
		free(w);
	else
		*h = w;
	return err;
}

OPENING_CALLS(wal, open_both)

/* ---- Closing ---- */

static int remove_log(struct wal *w)
{
	int err = side_remove(&w->o.file);

	if (err && err != -ENOENT)
		notice_give(&w->o.notice, "wal+: cannot remove the log '%.150s': %s. The store is "
			    "complete", w->o.file.path, strerror(-err));
	return err;
}

/* If older commits were found and none was added, they stay open. */
static int end_log(struct wal *w)
{
	struct overlay *o = &w->o;
	int err;

	background_stop(o);
	/* Changes of the tail that have no commit are lost. The store keeps its length. */
	err = o->tail_marked && o->size > o->newest.size ? overlay_cut_tail(o, w->resized) : 0;
	if (err) {
		notice_give(&o->notice, "wal+: cannot cut off the bytes of the store that were "
			    "written after the last commit: %s. The next handle of wal+ does it",
			    strerror(-err));
		return err;
	}
	if (o->keep > 1 && !w->committed && o->newest.floor < o->newest.number)
		return 0;
	err = background_apply_all(o);
	if (!err)
		return remove_log(w);
	notice_give(&o->notice, "wal+: cannot apply all commits to the store: %s. Nothing is lost. "
		    "Try to repair the storage, then `ummap wal --log %.150s apply %.150s`",
		    strerror(-err), o->file.path, *w->store ? w->store : "STORE");
	return err;
}

static void end_handed(struct wal *w)
{
	w->background.stop = true;
	futex_unlock(&w->background.passing);
	background_stop(&w->o);
	if (w->o.writable && w->handed == HANDED_STORE)
		remove_log(w);
}

static int wal_close(void *h)
{
	struct wal *w = h;
	int err = 0, closing;

	if (w->handed && !behind_inherited(&w->o.store))
		end_handed(w);
	else if (w->o.writable && !behind_inherited(&w->o.store))
		err = end_log(w);
	overlay_close(&w->o);
	closing = behind_close(&w->o.store);
	free(w);
	return err ? err : closing;
}

/* ---- Handing over (ummap-driver.h) ---- */

/*
 * If the other handle opens the same log, it finds all commits there, as after a crash, and can go
 * back to them. Otherwise it expects the contents in the store, so all commits are applied first.
 * The lock `passing` is held from the first step to the end, so that the thread changes nothing.
 */

static int check_layer(const struct overlay *o, const struct ummap_uri *layer,
		       struct ummap_handover *to)
{
	char way[BEHIND_WAY];

	behind_way(layer, way);
	if (*o->head.way && strcmp(way, o->head.way) != 0) {
		snprintf(to->why, sizeof(to->why),
			 "the log %.140s is of a store opened as wal+%.16s:, not as wal+%.16s:. "
			 "Try another log (wal.path)", o->file.path, o->head.way, way);
		return -EINVAL;
	}
	if (to->how == UMMAP_HANDOVER_KEEP && overlay_find_key(layer, "commit")) {
		snprintf(to->why, sizeof(to->why),
			 "wal.commit selects earlier contents, so the present contents cannot "
			 "migrate there. Try UMMAP_SWITCH");
		return -EINVAL;
	}
	return 0;
}

static int prepare_hand_over(struct wal *w, struct ummap_handover *to)
{
	struct overlay *o = &w->o;
	const struct ummap_uri *layer = overlay_find_layer(o, to->to, WAL_SUFFIX);
	int err = layer ? check_layer(o, layer, to) : 0;

	if (err)
		return err;
	futex_lock(&w->background.passing);
	if (o->writable && !layer)
		err = background_apply_all(o);
	if (err)
		snprintf(to->why, sizeof(to->why),
			 "cannot apply the commits of %.140s to the store: %s", o->file.path,
			 strerror(-err));
	else
		err = behind_hand_over(&o->store, to);
	if (err) {
		futex_unlock(&w->background.passing);
		return err;
	}
	w->handed = layer ? HANDED_LOG : HANDED_STORE;
	side_hand_over(&o->file, to);
	return 0;
}

static int cancel_hand_over(struct wal *w, struct ummap_handover *to)
{
	bool had_log = w->handed == HANDED_LOG && w->o.writable;
	int err = behind_hand_over(&w->o.store, to), resuming;

	side_hand_over(&w->o.file, to);
	resuming = had_log ? overlay_resume(&w->o) : 0;
	w->handed = NOT_HANDED;
	futex_unlock(&w->background.passing);
	background_wake(&w->o);
	return err ? err : resuming;
}

static int wal_hand_over(void *h, struct ummap_handover *to)
{
	struct wal *w = h;

	if (to->how == UMMAP_HANDOVER_FINISH)
		return behind_hand_over(&w->o.store, to);
	return to->how == UMMAP_HANDOVER_CANCEL ? cancel_hand_over(w, to) :
						  prepare_hand_over(w, to);
}

const struct ummap_driver ummap_driver_wal = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "wal",
	.keys = WAL_KEYS(KEY_NAME),
	.help = "wal+URI  each sync is atomic (wal.path, wal.size, wal.keep=1..16, wal.commit=N, "
		"wal.verify=yes)",
	.filter = 1,
	.open = wal_open,
	.open_fd = wal_open_fd,
	.close = wal_close,
	.read = overlay_read,
	.write = overlay_write,
	.flush = wal_flush,
	.resize = wal_resize,
	.submit = overlay_submit,
	.reap = overlay_reap,
	.readv = overlay_readv,
	.writev = overlay_writev,
	.size = overlay_size,
	.lock = overlay_lock,
	.commits = wal_commits,
	.push = overlay_push,
	.set_notice = overlay_set_notice,
	.hand_over = wal_hand_over,
};
