/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The policies wiro-f and wiro-l ("writes in, reads out"): evict clean segments before dirty ones,
 * because the eviction of a clean segment costs no write. Among segments of one kind, the oldest
 * (wiro-f) or the newest (wiro-l) is evicted first.
 *
 * One ring has both kinds, in this order: the head, clean nodes, the marker, dirty nodes.
 */
#include "list.h"

#include <stdbool.h>

extern const struct ummap_policy ummap_policy_wiro_f, ummap_policy_wiro_l;

struct wiro {
	struct ummap_node head;   /* followed by the clean nodes */
	struct ummap_node marker; /* followed by the dirty nodes */
};

static int wiro_create(const char *args, void **p)
{
	struct wiro *w;

	if (*args)
		return -EINVAL;
	w = malloc(sizeof(*w));
	if (!w)
		return -ENOMEM;
	list_init(&w->head);
	list_insert_after(&w->head, &w->marker);
	*p = w;
	return 0;
}

static struct ummap_node *wiro_pick(void *p, struct ummap_node *after)
{
	struct wiro *w = p;
	struct ummap_node *next = after ? after->next : w->head.next;

	if (next == &w->marker)
		next = next->next;
	return next == &w->head ? NULL : next;
}

static bool is_dirty(enum ummap_event why)
{
	return why == UMMAP_EV_WRITE || why == UMMAP_EV_DIRTIED;
}

static void wiro_f_insert(void *p, struct ummap_node *node, enum ummap_event why)
{
	struct wiro *w = p;

	list_insert_before(is_dirty(why) ? &w->head : &w->marker, node);
}

static void wiro_l_insert(void *p, struct ummap_node *node, enum ummap_event why)
{
	struct wiro *w = p;

	list_insert_after(is_dirty(why) ? &w->marker : &w->head, node);
}

/* A return from the inactive list does not change whether the segment is dirty. */
static void wiro_f_touch(void *p, struct ummap_node *node, enum ummap_event why)
{
	if (why == UMMAP_EV_RETURN)
		return;
	list_unlink(node);
	wiro_f_insert(p, node, why);
}

static void wiro_l_touch(void *p, struct ummap_node *node, enum ummap_event why)
{
	if (why == UMMAP_EV_RETURN)
		return;
	list_unlink(node);
	wiro_l_insert(p, node, why);
}

const struct ummap_policy ummap_policy_wiro_f = {
	.struct_size = sizeof(struct ummap_policy),
	.abi = UMMAP_POLICY_ABI,
	.name = "wiro-f",
	.help = "evicts clean segments before dirty ones, and the oldest of each first",
	.create = wiro_create,
	.destroy = list_destroy,
	.insert = wiro_f_insert,
	.remove = list_remove,
	.touch = wiro_f_touch,
	.pick = wiro_pick,
};

const struct ummap_policy ummap_policy_wiro_l = {
	.struct_size = sizeof(struct ummap_policy),
	.abi = UMMAP_POLICY_ABI,
	.name = "wiro-l",
	.help = "evicts clean segments before dirty ones, and the newest of each first",
	.create = wiro_create,
	.destroy = list_destroy,
	.insert = wiro_l_insert,
	.remove = list_remove,
	.touch = wiro_l_touch,
	.pick = wiro_pick,
};
