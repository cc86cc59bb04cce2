/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls that write, advise and pin parts of a mapping. As api.c. */
#include "api/api.h"

#include "paging/ahead.h"
#include "api/core.h"
#include "paging/inplace.h"
#include "base/log.h"
#include "paging/map.h"
#include "paging/segment.h"
#include "base/worker.h"
#include "paging/writeback.h"

#include <string.h>
#include <sys/mman.h>

/* The segments that [addr, addr + len) touches, and the use of their mapping. */
struct range {
	struct map *map;
	size_t at, len;
	size_t first, last;
};

static int find_range(const void *addr, size_t len, struct range *r)
{
	struct set *set;
	size_t at;

	r->map = map_get(addr);
	if (!r->map)
		return fail(EINVAL, "no mapping holds %p", addr);
	set = &r->map->set;
	at = (size_t)((const char *)addr - set->view);
	if (len == 0 || at >= set->size || len > set->size - at) {
		set_put(set);
		return fail(len ? ENOMEM : EINVAL, len ? "the range leaves its mapping" : "the length is 0");
	}
	r->at = at;
	r->len = len;
	r->first = at >> set->shift;
	r->last = ((at + len - 1) >> set->shift) + 1;
	return 0;
}

/* The range once more, after most of what a sync of it has to write was written. */
static int write_range(struct guard *g, const void *addr, size_t len, struct range *r)
{
	set_put(&r->map->set);
	api_write(g, addr, len);
	return find_range(addr, len, r);
}

int umsync(void *addr, int evict)
{
	struct guard g;
	struct map *map;
	int err;

	api_enter(&g);
	api_write(&g, addr, 0);
	map = map_get(addr);
	if (!map || map->set.view != addr) {
		if (map)
			set_put(&map->set);
		return api_leave(&g, api_no_mapping(addr));
	}
	err = map_sync(map);
	if (!err && evict)
		seg_evict(&map->set, 0, map->set.segs);
	set_put(&map->set);
	return api_leave(&g, err);
}

/* A job's flags stand above the number of its last segment. */
#define JOB_FLAGS_SHIFT 56

static int sync_range(const struct range *r, int flags)
{
	struct set *set = &r->map->set;
	int err;

	/* To the byte: a program that knows what it has stored need not pay for a segment. */
	if (set->in_place)
		return flags & UMMAP_NOFLUSH ? 0 : inplace_sync(set, r->at, r->len);
	err = map_complete(r->map, r->first, r->last);
	if (!err && (flags & UMMAP_NOFLUSH))
		err = writeback_range(set, r->first, r->last, UINT64_MAX);
	else if (!err)
		err = writeback_sync(set, r->first, r->last);
	if (!err && (flags & UMMAP_EVICT))
		seg_evict(set, r->first, r->last);
	return err;
}

static void sync_job(void *arg, uint64_t first, uint64_t last)
{
	struct set *set = arg;
	struct range r = { .map = container_of(set, struct map, set), .first = first,
			   .last = last & ((1ull << JOB_FLAGS_SHIFT) - 1) };
	int err;

	r.at = r.first << set->shift;
	r.len = min_size(r.last << set->shift, set->size) - r.at;
	err = sync_range(&r, (int)(last >> JOB_FLAGS_SHIFT));
	if (err)
		writeback_keep_error(set, err);
	set_put(set);
}

int umsync_range(void *addr, size_t len, int flags)
{
	struct guard g;
	struct range r;
	struct set *set;
	int err, earlier;

	api_enter(&g);
	if (flags & ~(UMMAP_ASYNC | UMMAP_EVICT | UMMAP_NOFLUSH))
		return api_leave(&g, fail(EINVAL, "flags is %d: it must be made of UMMAP_ASYNC, UMMAP_EVICT and "
				      "UMMAP_NOFLUSH", flags));
	err = find_range(addr, len, &r);
	if (err)
		return api_leave(&g, err);
	set = &r.map->set;
	if ((flags & UMMAP_ASYNC) &&
	    worker_post(sync_job, set, r.first, r.last | (uint64_t)flags << JOB_FLAGS_SHIFT))
		return api_leave(&g, 0);
	/* Asynchronous, but too much is waiting already: now, then. */
	err = write_range(&g, addr, len, &r);
	if (err)
		return api_leave(&g, err);
	set = &r.map->set;
	err = sync_range(&r, flags);
	earlier = writeback_take_error(set);
	err = err ? err : earlier;
	if (err)
		map_explain(r.map, err);
	set_put(set);
	return api_leave(&g, err);
}

int umadvise(void *addr, size_t len, int advice)
{
	struct guard g;
	struct range r;
	struct set *set;
	int err;

	api_enter(&g);
	err = find_range(addr, len, &r);
	if (err)
		return api_leave(&g, err);
	set = &r.map->set;
	switch (advice) {
	case UMMAP_ADV_NORMAL:
	case UMMAP_ADV_RANDOM:
	case UMMAP_ADV_SEQUENTIAL:
		set->advice = advice;
		break;
	case UMMAP_ADV_WILLNEED:
		if (!set->in_place)
			ahead_want(set, r.first, r.last);
		break;
	case UMMAP_ADV_DONTNEED:
		err = write_range(&g, addr, len, &r);
		if (err)
			return api_leave(&g, err);
		set = &r.map->set;
		err = sync_range(&r, UMMAP_NOFLUSH | UMMAP_EVICT);
		if (err)
			map_explain(r.map, err);
		break;
	default:
		err = fail(EINVAL, "there is no advice %d: it must be one of UMMAP_ADV_*", advice);
	}
	set_put(set);
	return api_leave(&g, err);
}

static int check_pin(const struct range *r, int prot)
{
	const struct set *set = &r->map->set;
	const struct share *share = set_share(set);
	bool own = share->most < core_budget(set);
	/* In place there is no memory to be had. */
	size_t most = set->in_place ? SIZE_MAX : own ? share->most : core_budget(set);
	size_t more = 0, already = own ? share->pinned : set_pinned();

	for (size_t i = r->first; i < r->last && more <= most; i++)
		more += seg_pins(set_seg(set, i)) ? 0 : set_hold(set);

	if (prot != PROT_READ && prot != (PROT_READ | PROT_WRITE))
		return fail(EINVAL, "prot is %d: it must be PROT_READ or PROT_READ | PROT_WRITE", prot);
	if ((prot & PROT_WRITE) && !set->writable)
		return fail(EACCES, "the mapping is read-only");
	if (more > most || already > most - more)
		return fail(ENOMEM, "the range's segments have at least %zu bytes more to pin, but %zu of the %zu that "
			    "may be in memory are pinned already", more, already, most);
	return 0;
}

static void unpin(struct set *set, size_t i)
{
	if (set->in_place)
		inplace_unpin(set, i);
	else
		seg_unpin(set, i);
}

int umpin(void *addr, size_t len, int prot)
{
	struct guard g;
	struct range r;
	struct set *set;
	int err;

	api_enter(&g);
	err = find_range(addr, len, &r);
	if (err)
		return api_leave(&g, err);
	set = &r.map->set;
	err = check_pin(&r, prot);
	for (size_t i = r.first; i < r.last && !err; i++) {
		err = set->in_place ? inplace_pin(set, i) : seg_pin(set, i, prot & PROT_WRITE);
		if (err == -EAGAIN)
			fail(EAGAIN, "a segment has %d pins, which is the most", SEG_PINS_MAX);
		else if (err)
			fail(-err, "the range cannot be brought into memory: %s", strerror(-err));
		while (err && i-- > r.first)
			unpin(set, i);
	}
	set_put(set);
	return api_leave(&g, err);
}

int umunpin(void *addr, size_t len)
{
	struct guard g;
	struct range r;
	int err;

	api_enter(&g);
	err = find_range(addr, len, &r);
	if (err)
		return api_leave(&g, err);
	for (size_t i = r.first; i < r.last && !err; i++) {
		if (!seg_pins(set_seg(&r.map->set, i)))
			err = fail(EINVAL, "part of the range is not pinned");
	}
	for (size_t i = r.first; i < r.last && !err; i++)
		unpin(&r.map->set, i);
	set_put(&r.map->set);
	return api_leave(&g, err);
}
