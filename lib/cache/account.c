/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The share of an account is what it may hold, and that of the common account what the others leave; where the shares
 * add up to more than the budget of the process, they are reduced in proportion. Segments are evicted first from
 * accounts that exceed their share: so a group keeps its share, and what it does not use is not idle. One leaf lock
 * around the list.
 */
#include "cache/account.h"

#include "cache/list.h"

#include <float.h>

static struct ummap_node accounts;    /* a ring; the common one first */
static struct account common = {
	.most = SIZE_MAX, .groups = { &common.groups, &common.groups }, .link = { &accounts, &accounts },
	.pagecache_runs = { &common.pagecache_runs, &common.pagecache_runs },
};
static struct ummap_node accounts = { &common.link, &common.link };
static _Atomic uint32_t lock;

static struct account *account_of(struct ummap_node *link)
{
	return container_of(link, struct account, link);
}

struct account *account_common(void)
{
	return &common;
}

void account_open(struct account *account)
{
	list_init(&account->pagecache_runs);
	futex_lock(&lock);
	list_insert(&accounts, &account->link);
	futex_unlock(&lock);
}

void account_close(struct account *account)
{
	futex_lock(&lock);
	list_remove(&account->link);
	futex_unlock(&lock);
}

void account_forget(void)
{
	lock = 0;
	common = (struct account){ .most = SIZE_MAX };
	list_init(&common.groups);
	list_init(&common.pagecache_runs);
	list_init(&accounts);
	list_insert(&accounts, &common.link);
}

bool account_charge(struct account *account, size_t len)
{
	size_t bytes = account->bytes;

	do {
		if (bytes + len > account_frames(account))
			return false;
	} while (!atomic_compare_exchange_weak(&account->bytes, &bytes, bytes + len));
	return true;
}

/* How many bytes it holds beyond its due. */
static double excess(const struct account *account, double promised, size_t all)
{
	double due;

	if (account == &common)
		due = all > promised ? all - promised : 0;
	else
		due = min_size(account->most, all) * (promised > all ? all / promised : 1);
	return account->bytes - due;
}

struct account *account_giver(struct account *mine, size_t all, size_t least)
{
	struct account *giver = mine;
	double promised = 0, most = -DBL_MAX;

	futex_lock(&lock);
	for (struct ummap_node *n = common.link.next; n != &accounts; n = n->next)
		promised += min_size(account_of(n)->most, all);
	/* While no account exceeds its share, each one evicts its own segments. */
	if (mine->bytes > least) {
		most = excess(mine, promised, all);
		most = most > 0 ? most : 0;
	}
	for (struct ummap_node *n = accounts.next; n != &accounts; n = n->next) {
		double more = excess(account_of(n), promised, all);

		if (account_of(n) != mine && more > most) {
			giver = account_of(n);
			most = more;
		}
	}
	futex_unlock(&lock);
	return giver;
}

struct account *account_nth(size_t n)
{
	struct ummap_node *at;

	futex_lock(&lock);
	for (at = accounts.next; n > 0 && at != &accounts; at = at->next)
		n--;
	futex_unlock(&lock);
	return at == &accounts ? NULL : account_of(at);
}
