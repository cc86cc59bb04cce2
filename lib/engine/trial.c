/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fault that cannot be served is a SIGBUS, so what a fault needs is tried when a mapping is made: a page is mapped
 * and unmapped, twice, by the calls that move segments, and as many VMAs are made as the minimum of segments needs.
 * This detects a filter of system calls, an emulator, or a process that has all VMAs that it may have. Takes no lock,
 * and leaves nothing behind. It takes longer than all else that makes a mapping, so what was found a moment ago is believed:
 * programs make many mappings at once.
 */
#include "engine/trial.h"

#include "base/log.h"
#include "base/sys.h"

#include <string.h>
#include <sys/mman.h>

/* For the 64 frames that a process may have at the least, and for what else comes on the way. A place is two
 * mappings. */
#define PLACES 96
#define MARK 0x5a
/* A moment: that many ms, and mappings, which cannot take as many VMAs as were tried. */
#define MOMENT 5
#define MAPPINGS 16

/* With which engine it went well last; when, and how many mappings have believed it. */
static const struct engine *_Atomic tried;
static _Atomic uint64_t tried_at;
static _Atomic unsigned believed;

/* One way there and back. Its contents go along, and so does what is stored there. */
static int go_round(const struct engine *e, char *range, char *pool, uint8_t mark)
{
	size_t len = sys_page();
	int err;

	memset(pool, mark, len);
	err = e->map(e, range, pool, len, true, false);
	if (err)
		return err;
	if (((volatile uint8_t *)range)[len - 1] != mark)
		return -ENOSYS;
	err = e->protect(e, range, len, true);
	if (err)
		return err;
	((volatile uint8_t *)range)[0] = mark + 1;
	err = e->unmap(e, range, pool, len, true, true);
	if (!err && mprotect(pool, len, PROT_READ | PROT_WRITE) < 0)
		err = sys_failed("mprotect(2)");
	if (err)
		return err;
	return (uint8_t)pool[0] == mark + 1 && (uint8_t)pool[len - 1] == mark ? 0 : -ENOSYS;
}

static int try_moves(const struct engine *e)
{
	size_t len = sys_page();
	char *range, *pool;
	int err = engine_attach(e, len, len, 0, 0, &range);

	if (err)
		return err;
	pool = sys_lazy(len);
	err = pool ? e->adopt_pool(e, pool, len) : -ENOMEM;
	if (!err)
		err = go_round(e, range, pool, MARK);
	if (!err)
		err = go_round(e, range, pool, MARK + 1);
	if (pool)
		raw_munmap(pool, len);
	engine_detach(e, range, len);
	return err;
}

int trial_moves(const struct engine *e)
{
	int err;

	sys_forget_failure();
	err = try_moves(e->stored_to);
	return err ? engine_fail(e, "map and unmap a test segment", err) : 0;
}

static int try_places(void)
{
	size_t page = sys_page(), len = (2 * PLACES + 1) * page;
	char *all = sys_reserve(len, 0);
	int err = all ? 0 : -ENOMEM;

	for (size_t at = page; !err && at < len - page; at += 2 * page)
		err = mprotect(all + at, page, PROT_READ) < 0 ? sys_failed("mprotect(2)") : 0;
	if (all)
		raw_munmap(all, len);
	return err;
}

static int try_all(const struct engine *e)
{
	int err = trial_moves(e);

	if (err)
		return err;
	sys_forget_failure();
	err = try_places();
	return err ? engine_fail(e, "make more kernel mappings", err) : 0;
}

int trial(const struct engine *e)
{
	uint64_t now = sys_now();
	int err;

	if (tried == e && now - tried_at < MOMENT && ++believed < MAPPINGS)
		return 0;
	err = try_all(e);
	tried_at = now;
	believed = 0;
	tried = err ? NULL : e;
	return err;
}
