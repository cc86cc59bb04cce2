/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wiro-f, wiro-l - writes in, reads out: what is unchanged goes before what is changed, because
 * letting go of it costs no write. Among its like, what came first (wiro-f) or last (wiro-l) goes
 * first.
 *
 * One ring holds both kinds: the head, the unchanged, a marker, the changed. A node's place says
 * what it is.
 */
#include "list.h"

#include <stdbool.h>

extern const struct ummap_policy ummap_policy_wiro_f, ummap_policy_wiro_l;

struct wiro {
	struct ummap_node head;   /* the unchanged come behind it */
	struct ummap_node marker; /* the changed come behind it */
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

static bool changed(enum ummap_event why)
{
	return why == UMMAP_EV_WRITE || why == UMMAP_EV_DIRTIED;
}

static void wiro_f_insert(void *p, struct ummap_node *node, enum ummap_event why)
{
	struct wiro *w = p;

	list_insert_before(changed(why) ? &w->head : &w->marker, node);
}

static void wiro_l_insert(void *p, struct ummap_node *node, enum ummap_event why)
{
	struct wiro *w = p;

	list_insert_after(changed(why) ? &w->marker : &w->head, node);
}

/* Back from standby says nothing new: its insertion has told what it is. */
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
	.help = "unchanged before changed, in each the first in goes first",
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
	.help = "unchanged before changed, in each the last in goes first",
	.create = wiro_create,
	.destroy = list_destroy,
	.insert = wiro_l_insert,
	.remove = list_remove,
	.touch = wiro_l_touch,
	.pick = wiro_pick,
};
