/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses for mapped ranges. Lock: `addresses`, held while they are searched, and while slots of
 * a range are empty for longer than a moment.
 */
#include "engine/range.h"

#include "base/log.h"
#include "base/sys.h"

#include <string.h>
#include <sys/mman.h>

static _Atomic uint32_t addresses;

void engine_forget_addresses(void)
{
	addresses = 0;
}

void engine_hold_addresses(void)
{
	futex_lock(&addresses);
}

void engine_release_addresses(void)
{
	futex_unlock(&addresses);
}

int engine_fail(const struct engine *e, const char *what, int err)
{
	const char *call = sys_first_failure(&err);
	const char *larger = "larger limits: vm.max_map_count (sysctl(8)), RLIMIT_AS (ulimit -v)";

	return fail(-err, "cannot %s: %s%s%s. Try %s", what, call ? call : "", call ? ": " : "",
		    strerror(-err), err == -ENOMEM ? larger : e->needs);
}

static int prepare_range(const struct engine *e, char *range, size_t len, bool writable)
{
	return e->prepare ? e->prepare(e, range, len, writable) : 0;
}

int engine_attach(const struct engine *e, size_t len, size_t seg_size, size_t before, size_t after,
		  bool writable, char **range)
{
	size_t align = max_size(HUGE_PAGE, min_size(seg_size, 512 * HUGE_PAGE));
	size_t pages = round_up(len, sys_page());
	size_t lead = round_up(before, align), all = lead + pages + after;
	char *start, *at;
	int err;

	engine_hold_addresses();
	start = sys_reserve_apart(all, align);
	engine_release_addresses();
	if (!start)
		start = sys_reserve(all, align);
	if (!start)
		return fail(ENOMEM, "cannot reserve %zu bytes of addresses: no address space. Try "
			    "a larger RLIMIT_AS (ulimit -v)", all);
	at = start + lead;
	sys_forget_failure();
	err = prepare_range(e, at, pages, writable);
	if (err) {
		raw_munmap(start, all);
		return engine_fail(e, "prepare the addresses of a mapping", err);
	}
	/* The range is aligned; the addresses before it need not be. */
	if (lead > before)
		raw_munmap(start, lead - before);
	*range = at;
	return 0;
}

bool engine_extend(const struct engine *e, char *range, size_t len, size_t more, bool writable)
{
	char *end = range + round_up(len, sys_page()), *at;
	size_t pages = (size_t)(range + round_up(len + more, sys_page()) - end);

	if (pages == 0)
		return true;
	engine_hold_addresses();
	at = sys_map_inaccessible(end, pages,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	engine_release_addresses();
	if (at == end && prepare_range(e, end, pages, writable) == 0)
		return true;
	if (at != MAP_FAILED)
		raw_munmap(at, pages);
	return false;
}

#define RESERVED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED)

/* Does not call mmap(3): a race detector that watches it takes the call for a write to the
 * program's data. If the process locks its memory, this memory must not be locked, because it would
 * merge with no memory around it. */
int engine_empty(char *range, size_t len)
{
	if (!sys_memory_is_locked && raw_mmap(range, len, PROT_NONE, RESERVED, -1, 0) != MAP_FAILED)
		return 0;
	return sys_map_inaccessible(range, len, RESERVED, -1, 0) != MAP_FAILED ? 0 : -errno;
}

int engine_reset(const struct engine *e, char *range, size_t len, bool writable)
{
	int err = engine_empty(range, len);

	return err ? err : prepare_range(e, range, len, writable);
}

void engine_detach(const struct engine *e, char *range, size_t len)
{
	size_t pages = round_up(len, sys_page());

	if (!pages)
		return;
	hooked_munmap(range, pages);
	engine_wake(e, range, pages);
}

int engine_replace(const struct engine *e, char *range, size_t len, void *with)
{
	size_t pages = round_up(len, sys_page());
	int err = hooked_move(with, range, pages) == MAP_FAILED ? -errno : 0;

	if (err)
		hooked_munmap(range, pages);
	engine_wake(e, range, pages);
	return err;
}
