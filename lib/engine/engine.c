/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses for views, and which of the two engines sees to one. One lock, `places`: held while addresses are looked
 * for, and by whoever empties places of a view for longer than a moment.
 */
#include "engine/engine.h"

#include "base/sys.h"
#include "engine/uffd.h"

#include <sys/mman.h>

static _Atomic uint32_t places;

int engine_start(enum chain_answer (*fault)(const struct chain_fault *))
{
	return chain_start(fault);
}

void engine_forget(void)
{
	engine_uffd_forget();
	places = 0;
}

void engine_hold_places(void)
{
	futex_lock(&places);
}

void engine_release_places(void)
{
	futex_unlock(&places);
}

char *engine_attach(enum engine e, size_t len, size_t seg_size, size_t before, size_t after)
{
	size_t pages = round_up(len, sys_page()), align = max_size(HUGE_PAGE, min_size(seg_size, 512 * HUGE_PAGE));
	size_t lead = round_up(before, align), all = lead + pages + after;
	char *start, *view;

	engine_hold_places();
	start = sys_reserve_apart(all, align);
	engine_release_places();
	if (!start)
		start = sys_reserve(all, align);
	if (!start)
		return NULL;
	view = start + lead;
	if (e != ENGINE_SEGV && engine_uffd_adopt(e, view, pages) < 0) {
		munmap(start, all);
		return NULL;
	}
	/* The view is aligned; what stands before it need not be. */
	if (lead > before)
		munmap(start, lead - before);
	return view;
}

bool engine_extend(enum engine e, char *view, size_t len, size_t more)
{
	char *end = view + round_up(len, sys_page()), *at;
	size_t pages = (size_t)(view + round_up(len + more, sys_page()) - end);

	if (pages == 0)
		return true;
	engine_hold_places();
	at = sys_bare(end, pages, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	engine_release_places();
	if (at == end && (e == ENGINE_SEGV || engine_uffd_adopt(e, end, pages) == 0))
		return true;
	if (at != MAP_FAILED)
		munmap(at, pages);
	return false;
}

int engine_reset(enum engine e, char *view, size_t len)
{
	int err = engine_segv_discard(view, len);

	return err || e == ENGINE_SEGV ? err : engine_uffd_adopt(e, view, len);
}

void engine_detach(enum engine e, char *view, size_t len)
{
	size_t pages = round_up(len, sys_page());

	if (!pages)
		return;
	munmap(view, pages);
	engine_wake(e, view, pages);
}

void engine_wake(enum engine e, char *view, size_t len)
{
	if (e != ENGINE_SEGV)
		uffd_wake(view, round_up(len, sys_page()));
}

int engine_publish(enum engine e, char *view, char *home, size_t len, bool was_writable, bool writable)
{
	if (e == ENGINE_SEGV)
		return engine_segv_publish(view, home, len, was_writable, writable);
	return engine_uffd_publish(view, home, len, writable);
}

bool engine_is_one(enum engine e, char *at, size_t len)
{
	return e != ENGINE_SEGV || engine_segv_is_one(at, len);
}

int engine_protect(enum engine e, char *view, size_t len, bool writable)
{
	return e == ENGINE_SEGV ? engine_segv_protect(view, len, writable) : engine_uffd_protect(view, len, writable);
}

int engine_retract(enum engine e, char *view, char *home, size_t len, bool writable, bool exposed)
{
	if (e == ENGINE_SEGV)
		return engine_segv_retract(view, home, len, writable);
	return engine_uffd_retract(e, view, home, len, writable, exposed);
}

int engine_leave(enum engine e, char *view, char *home, size_t len)
{
	return e == ENGINE_SEGV ? engine_segv_leave(view, home, len) : -EOPNOTSUPP;
}

int engine_discard(enum engine e, char *view, size_t len)
{
	return e == ENGINE_SEGV ? engine_segv_discard(view, len) : engine_uffd_discard(view, len);
}
