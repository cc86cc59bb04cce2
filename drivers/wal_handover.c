/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hands a store with a log over to another handle (ummap-driver.h: hand_over). If that handle opens
 * the same log, it finds all commits there, as after a crash, and can go back to them. Otherwise it
 * expects the contents in the store, so all commits are applied first, as when the handle is
 * closed.
 *
 * The lock `passing` is held from the first step to the end, so that the thread changes nothing.
 */
#include "wal.h"

#include "futex.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *find_key(const struct ummap_uri *uri, const char *name)
{
	for (unsigned i = 0; i < uri->nkeys; i++) {
		if (strcmp(uri->keys[i].name, name) == 0)
			return uri->keys[i].value;
	}
	return NULL;
}

static bool names_log(const struct wal *w, const struct ummap_uri *uri)
{
	const char *path = find_key(uri, "path");
	char beside[PATH_MAX];

	if (strcmp(uri->scheme, "wal") != 0)
		return false;
	if (!path && (!*uri->path || wal_beside(beside, uri->path) < 0))
		return false;
	return side_is(&w->log.file, path ? path : beside);
}

/* The layer of the URI, a filter wal, that uses this handle's log; NULL: there is none. */
static const struct ummap_uri *find_layer(const struct wal *w, const struct ummap_uri *uri)
{
	while (uri && !names_log(w, uri))
		uri = uri->next_uri;
	return w->log.file.h ? uri : NULL;
}

static int check_layer(const struct wal *w, const struct ummap_uri *layer,
		       struct ummap_handover *to)
{
	char way[BEHIND_WAY];

	behind_way(layer, way);
	if (*w->log.head.way && strcmp(way, w->log.head.way) != 0) {
		snprintf(to->why, sizeof(to->why),
			 "the log %.140s is of a store opened as wal+%.16s:, not as wal+%.16s:. Try "
			 "another log (wal.path)",
			 w->log.file.path, w->log.head.way, way);
		return -EINVAL;
	}
	if (to->how == UMMAP_HANDOVER_KEEP && find_key(layer, "commit")) {
		snprintf(to->why, sizeof(to->why),
			 "wal.commit selects earlier contents, so the present contents cannot "
			 "migrate there. Try UMMAP_SWITCH");
		return -EINVAL;
	}
	return 0;
}

static int apply_commits(struct wal *w, struct ummap_handover *to)
{
	int err = w->log.durable.floor < w->log.durable.epoch ? wal_forget_epochs(&w->log) : 0;

	if (!err)
		err = wal_bring_home(w);
	if (err)
		snprintf(to->why, sizeof(to->why),
			 "cannot apply the commits of %.140s to the store: %s", w->log.file.path,
			 strerror(-err));
	return err;
}

static int prepare_hand_over(struct wal *w, struct ummap_handover *to)
{
	const struct ummap_uri *layer = find_layer(w, to->to);
	int err = layer ? check_layer(w, layer, to) : 0;

	if (err)
		return err;
	futex_lock(&w->passing);
	if (w->writable && !layer)
		err = apply_commits(w, to);
	if (!err)
		err = behind_hand_over(&w->home, to);
	if (err) {
		futex_unlock(&w->passing);
		return err;
	}
	w->handed = layer ? WAL_HANDED_LOG : WAL_HANDED_STORE;
	side_hand_over(&w->log.file, to);
	return 0;
}

static int cancel_hand_over(struct wal *w, struct ummap_handover *to)
{
	bool had_log = w->handed == WAL_HANDED_LOG && w->writable;
	int err = behind_hand_over(&w->home, to), resuming;

	side_hand_over(&w->log.file, to);
	resuming = had_log ? wal_resume(&w->log) : 0;
	w->handed = WAL_NOT_HANDED;
	futex_unlock(&w->passing);
	wal_tell(w);
	return err ? err : resuming;
}

int wal_hand_over(void *h, struct ummap_handover *to)
{
	struct wal *w = h;

	if (to->how == UMMAP_HANDOVER_FINISH)
		return behind_hand_over(&w->home, to);
	if (to->how == UMMAP_HANDOVER_CANCEL)
		return cancel_hand_over(w, to);
	return prepare_hand_over(w, to);
}

void wal_end_handed(struct wal *w)
{
	int err = 0;

	w->stop = true;
	futex_unlock(&w->passing);
	wal_stop_thread(w);
	if (w->writable && w->handed == WAL_HANDED_STORE)
		err = side_remove(&w->log.file);
	if (err && err != -ENOENT)
		notice_give(
			&w->notice,
			"wal+: cannot remove the log '%.150s': %s. The store is complete",
			w->log.file.path, strerror(-err));
}
