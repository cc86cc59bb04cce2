/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A share is due what it may hold, and the common one what the others leave; where they add up to more than
 * there is, each is due its part. Shares that hold more than that give first: so what a group has is safe from
 * mappings that press, and what it does not use is not idle. One leaf lock around the list.
 */
#include "cache/share.h"

#include "cache/list.h"

#include <float.h>

static struct ummap_node shares;    /* a ring; the common one first */
static struct share common = {
	.most = SIZE_MAX, .groups = { &common.groups, &common.groups }, .link = { &shares, &shares },
};
static struct ummap_node shares = { &common.link, &common.link };
static _Atomic uint32_t lock;

static struct share *share_of(struct ummap_node *link)
{
	return container_of(link, struct share, link);
}

struct share *share_common(void)
{
	return &common;
}

void share_open(struct share *share)
{
	futex_lock(&lock);
	list_insert(&shares, &share->link);
	futex_unlock(&lock);
}

void share_close(struct share *share)
{
	futex_lock(&lock);
	list_remove(&share->link);
	futex_unlock(&lock);
}

void share_forget(void)
{
	lock = 0;
	common = (struct share){ .most = SIZE_MAX };
	list_init(&common.groups);
	list_init(&shares);
	list_insert(&shares, &common.link);
}

bool share_charge(struct share *share, size_t len)
{
	size_t bytes = share->bytes;

	do {
		if (bytes + len > share->most)
			return false;
	} while (!atomic_compare_exchange_weak(&share->bytes, &bytes, bytes + len));
	return true;
}

/* How many bytes it holds beyond its due. */
static double excess(const struct share *share, double promised, size_t all)
{
	double due;

	if (share == &common)
		due = all > promised ? all - promised : 0;
	else
		due = min_size(share->most, all) * (promised > all ? all / promised : 1);
	return share->bytes - due;
}

struct share *share_giver(struct share *mine, size_t all, size_t least)
{
	struct share *giver = mine;
	double promised = 0, most = -DBL_MAX;

	futex_lock(&lock);
	for (struct ummap_node *n = common.link.next; n != &shares; n = n->next)
		promised += min_size(share_of(n)->most, all);
	/* While nobody holds more than is due, everybody sees to himself. */
	if (mine->bytes > least) {
		most = excess(mine, promised, all);
		most = most > 0 ? most : 0;
	}
	for (struct ummap_node *n = shares.next; n != &shares; n = n->next) {
		double more = excess(share_of(n), promised, all);

		if (share_of(n) != mine && more > most) {
			giver = share_of(n);
			most = more;
		}
	}
	futex_unlock(&lock);
	return giver;
}

struct share *share_nth(size_t n)
{
	struct ummap_node *at;

	futex_lock(&lock);
	for (at = shares.next; n > 0 && at != &shares; at = at->next)
		n--;
	futex_unlock(&lock);
	return at == &shares ? NULL : share_of(at);
}
