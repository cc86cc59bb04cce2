/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An error of a fault can only be reported by SIGBUS, so the system calls of a fault are tried when
 * a mapping is created: a page is mapped and unmapped, twice, by the calls that move segments, and
 * as many VMAs are made as the minimum of segments needs. This detects a filter of system calls, an
 * emulator, or a process that has all VMAs that it may have. Takes no lock, and leaves nothing
 * behind. The trial takes longer than all other steps that create a mapping, so its result is valid
 * for a moment, because programs create many mappings at once.
 */
#include "engine/trial.h"

#include "base/log.h"
#include "base/sys.h"

#include <string.h>
#include <sys/mman.h>

/* VMAs to try, for the minimum of 64 frames and for other memory. Each takes a VMA and a gap. */
#define TRIED_VMAS 96
#define MARK 0x5a
/* Validity of a result: the time, and the number of mappings, which cannot take as many VMAs as
 * were tried. */
#define VALID_MS 5
#define VALID_MAPPINGS 16

/* The engine of the last success; its time, and the number of mappings that have relied on it. */
static const struct engine *_Atomic tried;
static _Atomic uint64_t tried_at;
static _Atomic unsigned relied;

/* Maps the page and unmaps it. Its contents must move with it, and so must a byte that is stored
 * while it is mapped. */
static int map_and_unmap(const struct engine *e, char *range, char *pool, uint8_t mark)
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
		err = sys_note_failure("mprotect(2)");
	if (err)
		return err;
	return (uint8_t)pool[0] == mark + 1 && (uint8_t)pool[len - 1] == mark ? 0 : -ENOSYS;
}

static int try_moves(const struct engine *e)
{
	size_t len = sys_page();
	char *range, *pool;
	int err = engine_attach(e, len, len, 0, 0, true, &range);

	if (err)
		return err;
	pool = sys_map_anonymous(len);
	err = !pool ? -ENOMEM : e->frames->prepare ? e->frames->prepare(pool, len) : 0;
	if (!err)
		err = map_and_unmap(e, range, pool, MARK);
	if (!err)
		err = map_and_unmap(e, range, pool, MARK + 1);
	if (pool)
		raw_munmap(pool, len);
	engine_detach(e, range, len);
	return err;
}

int trial_moves(const struct engine *e)
{
	int err;

	sys_forget_failure();
	err = try_moves(e);
	return err ? engine_fail(e, "map and unmap a test segment", err) : 0;
}

static int try_vmas(void)
{
	size_t page = sys_page(), len = (2 * TRIED_VMAS + 1) * page;
	char *all = sys_reserve(len, 0);
	int err = all ? 0 : -ENOMEM;

	for (size_t at = page; !err && at < len - page; at += 2 * page)
		err = mprotect(all + at, page, PROT_READ) < 0 ? sys_note_failure("mprotect(2)") : 0;
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
	err = try_vmas();
	return err ? engine_fail(e, "make more kernel mappings", err) : 0;
}

int trial(const struct engine *e)
{
	uint64_t now = sys_now();
	int err;

	if (tried == e && now - tried_at < VALID_MS && ++relied < VALID_MAPPINGS)
		return 0;
	err = try_all(e);
	tried_at = now;
	relied = 0;
	tried = err ? NULL : e;
	return err;
}
