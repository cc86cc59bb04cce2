/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hands a store with a log over to another handle (ummap-driver.h: hand_over).
 *
 * If the other handle opens the same log, it finds all commits there, as after a crash, and can go
 * back to them. Otherwise it expects the contents in the store, so all commits are applied first.
 * The lock `passing` is held from the first step to the end, so that the thread changes nothing.
 */
#include "wal.h"

#include "common/futex.h"

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

static bool names_log(const struct overlay *o, const struct ummap_uri *uri)
{
	const char *path = find_key(uri, "path");
	char beside[PATH_MAX];

	if (strcmp(uri->scheme, o->policy->scheme) != 0)
		return false;
	if (!path && (!*uri->path || overlay_beside(beside, uri->path, WAL_SUFFIX) < 0))
		return false;
	return side_is(&o->file, path ? path : beside);
}

/* The layer of the URI, a filter wal, that uses this handle's log; NULL: there is none. */
static const struct ummap_uri *find_layer(const struct overlay *o, const struct ummap_uri *uri)
{
	while (uri && !names_log(o, uri))
		uri = uri->next_uri;
	return o->file.h ? uri : NULL;
}

static int check_layer(const struct overlay *o, const struct ummap_uri *layer,
		       struct ummap_handover *to)
{
	char way[BEHIND_WAY];

	behind_way(layer, way);
	if (*o->head.way && strcmp(way, o->head.way) != 0) {
		snprintf(to->why, sizeof(to->why),
			 "the log %.140s is of a store opened as wal+%.16s:, not as wal+%.16s:. Try "
			 "another log (wal.path)", o->file.path, o->head.way, way);
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

static int apply_before(struct overlay *o, struct ummap_handover *to)
{
	int err = wal_apply_all(o);

	if (err)
		snprintf(to->why, sizeof(to->why),
			 "cannot apply the commits of %.140s to the store: %s", o->file.path,
			 strerror(-err));
	return err;
}

static int prepare_hand_over(struct wal *w, struct ummap_handover *to)
{
	struct overlay *o = &w->o;
	const struct ummap_uri *layer = find_layer(o, to->to);
	int err = layer ? check_layer(o, layer, to) : 0;

	if (err)
		return err;
	futex_lock(&w->background.passing);
	if (o->writable && !layer)
		err = apply_before(o, to);
	if (!err)
		err = behind_hand_over(&o->store, to);
	if (err) {
		futex_unlock(&w->background.passing);
		return err;
	}
	w->handed = layer ? WAL_HANDED_LOG : WAL_HANDED_STORE;
	side_hand_over(&o->file, to);
	return 0;
}

static int cancel_hand_over(struct wal *w, struct ummap_handover *to)
{
	bool had_log = w->handed == WAL_HANDED_LOG && w->o.writable;
	int err = behind_hand_over(&w->o.store, to), resuming;

	side_hand_over(&w->o.file, to);
	resuming = had_log ? overlay_resume(&w->o) : 0;
	w->handed = WAL_NOT_HANDED;
	futex_unlock(&w->background.passing);
	background_wake(&w->background);
	return err ? err : resuming;
}

int wal_hand_over(void *h, struct ummap_handover *to)
{
	struct wal *w = h;

	if (to->how == UMMAP_HANDOVER_FINISH)
		return behind_hand_over(&w->o.store, to);
	if (to->how == UMMAP_HANDOVER_CANCEL)
		return cancel_hand_over(w, to);
	return prepare_hand_over(w, to);
}

void wal_end_handed(struct wal *w)
{
	w->background.stop = true;
	futex_unlock(&w->background.passing);
	background_stop(&w->background);
	if (w->o.writable && w->handed == WAL_HANDED_STORE)
		wal_remove_log(w);
}
