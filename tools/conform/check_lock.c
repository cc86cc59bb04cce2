/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of locks on ranges: conflicts, and the end of locks. */
#include "conform.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define LEN 1000

static int lock(struct handle *h, uint64_t off, uint64_t len, int how)
{
	char why[160];
	int err;

	memset(why, 'x', sizeof(why));
	doing("lock of %ju bytes at %ju, how %d", (uintmax_t)len, (uintmax_t)off, how);
	err = h->driver.lock(h->h, off, len, how, why);
	expect(err <= 0, "lock gives %d: it must give 0 or a negative errno", err);
	expect(err != -EBUSY || memchr(why, '\0', sizeof(why)),
	       "the lock is refused, but why has no end");
	return err;
}

static void granted(struct handle *h, uint64_t off, uint64_t len, int how, const char *when)
{
	int err = lock(h, off, len, how);

	expect(err == 0, "%s: %s, %s", verdict->doing, error_name(err), when);
}

static void refused(struct handle *h, uint64_t off, uint64_t len, int how, const char *when)
{
	int err = lock(h, off, len, how);

	expect(err == -EBUSY, "%s: %s instead of EBUSY, %s", verdict->doing,
	       err ? error_name(err) : "it is granted", when);
}

static void check_ranges(struct handle *a, struct handle *b)
{
	granted(a, LEN, LEN, UMMAP_LOCK_EXCLUSIVE, "though nobody has a lock");
	refused(b, 0, 3 * LEN, UMMAP_LOCK_EXCLUSIVE, "but another handle has locked a part of it");
	refused(b, 2 * LEN - 1, 1, UMMAP_LOCK_SHARED,
		"but another handle has locked it for itself");
	granted(b, 0, LEN, UMMAP_LOCK_EXCLUSIVE,
		"though another handle has only what is behind it");
	granted(b, 2 * LEN, LEN, UMMAP_LOCK_EXCLUSIVE,
		"though another handle has only what is before it");
	granted(a, LEN, LEN / 2, UMMAP_LOCK_NONE, "though it is the handle's own");
	granted(b, LEN, LEN / 2, UMMAP_LOCK_EXCLUSIVE, "after it was given back");
	refused(b, LEN + LEN / 2, 1, UMMAP_LOCK_EXCLUSIVE,
		"but only what is before it was given back");
	granted(b, 0, 3 * LEN, UMMAP_LOCK_NONE, "though it has a part of it");
	granted(a, LEN, LEN, UMMAP_LOCK_SHARED, "though the handle has a part of it already");
	granted(b, LEN, LEN, UMMAP_LOCK_SHARED, "though the other handle shares it");
	refused(b, LEN, LEN, UMMAP_LOCK_EXCLUSIVE, "but another handle has a share of it");
}

/* In a forked child the library closes the handles of the parent. */
static void close_in_child(struct handle *h)
{
	pid_t child = fork_child();

	if (child == 0) {
		h->driver.close(h->h);
		_exit(0);
	}
	wait_for(child);
}

void check_lock(void)
{
	struct handle a, b;
	int err;

	handle_need_two();
	handle_fill_writable(&a);
	if (!a.driver.lock)
		skip("lock is NULL");
	err = lock(&a, 0, 1, UMMAP_LOCK_EXCLUSIVE);
	if (err)
		skip("there are no locks here: %s", error_name(err));
	handle_open(&b);
	if (lock(&b, 0, 1, UMMAP_LOCK_EXCLUSIVE) == 0 && uri_is_filter())
		skip("the driver behind the filter has no locks");
	refused(&b, 0, 1, UMMAP_LOCK_EXCLUSIVE, "but another handle has locked it");
	granted(&a, 0, 1, UMMAP_LOCK_NONE, "though it is the handle's own");
	check_ranges(&a, &b);
	close_in_child(&a);
	refused(&b, LEN, 1, UMMAP_LOCK_EXCLUSIVE, "because a forked child has closed the handle");
	handle_close(&a);
	granted(&b, 0, 3 * LEN, UMMAP_LOCK_EXCLUSIVE, "after the other handle was closed");
	shadow_compare_all(&b, "after all those locks");
	handle_close(&b);
}
