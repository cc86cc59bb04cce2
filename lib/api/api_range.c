/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public calls that sync, advise and pin parts of a mapping. As in api.c, signals that have
 * handlers are blocked during a call.
 */
#include "api/api.h"

#include "paging/residency/prefetch.h"
#include "paging/residency/readahead.h"
#include "paging/residency/tiering.h"
#include "api/start.h"
#include "paging/mapping/inplace.h"
#include "io/io.h"
#include "base/log.h"
#include "engine/copy.h"
#include "memory/tiers.h"
#include "paging/mapping/lookup.h"
#include "paging/fault/segment.h"
#include "paging/fault/stall.h"
#include "base/worker.h"
#include "paging/sync/commit.h"
#include "paging/sync/sync.h"
#include "paging/sync/writeback.h"
#include "common/timeline.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Part of a mapping, of which the caller has a use (map_leave ends it). */
struct range {
	struct mapping *map;     /* mapping that contains the range */
	size_t at, len;          /* offset in the mapping, and length, in bytes */
	size_t first, last;      /* segments [first, last) that the range touches */
};

static int set_range(struct mapping *map, const void *addr, size_t len, struct range *r)
{
	size_t at = (size_t)((const char *)addr - map->range);

	*r = (struct range){ 0 };
	if (len == 0 || at >= map->size || len > map->size - at)
		return len ? fail(ENOMEM, "cannot use %zu bytes at %p: the range leaves its "
				  "mapping", len, addr) :
			     fail(EINVAL, "cannot use the range at %p: its length is 0", addr);
	*r = (struct range){ .map = map, .at = at, .len = len, .first = at >> map->shift,
			     .last = ((at + len - 1) >> map->shift) + 1 };
	return 0;
}

static int find_range(const void *addr, size_t len, struct range *r)
{
	struct mapping *map = map_find(addr);
	int err;

	if (!map)
		return fail(EINVAL, "cannot find a mapping that contains %p", addr);
	err = set_range(map, addr, len, r);
	if (err)
		map_leave(map);
	return err;
}

/* Writes most changes of the range in parts, and then finds the range again, because the mapping
 * may have ended in between. */
static int write_range(struct guard *g, const void *addr, size_t len, struct range *r)
{
	map_leave(r->map);
	api_write_changes(g, addr, len);
	return find_range(addr, len, r);
}

/* ---- Commits ---- */

/* Finds the mapping that begins at addr, without a commit in flight, and freezes it. NULL, with the
 * error: there is none, or its commit must not be waited for. */
static struct mapping *find_for_commit(struct guard *g, void *addr, bool wait, int *err)
{
	struct mapping *map;

	while ((map = map_find(addr)) && map->range == addr) {
		/* No commit begins between the two calls, because the thread uses the mapping. */
		if (!commit_await_for(map, wait ? SYNC_PART_MS : 0) && map_freeze(map))
			return map;
		if (!wait && commit_runs(map))
			break;
		map_leave(map);
		map_wait(map);
		/* The wait may take long: signals are handled meanwhile. */
		guard_leave(g);
		guard_enter(g);
	}
	*err = map && map->range == addr ?
	       fail(EAGAIN, "cannot begin a commit of '%s': an earlier one is in flight",
		    map->name) : api_fail_no_mapping(addr);
	if (map)
		map_leave(map);
	return NULL;
}

static int begin_commit(struct guard *g, void *addr, bool wait, struct umsync_handle *h)
{
	int err = 0;
	struct mapping *map = find_for_commit(g, addr, wait, &err);
	bool at_once;

	if (!map)
		return err;
	/* A mapping in place has no segments; a migration is completed by a sync only. */
	at_once = map->in_place || map->migration;
	if (!at_once)
		err = commit_begin(map, h);
	map_thaw(map);
	if (at_once)
		commit_at_once(map, h);
	else if (!err)
		commit_run(map);
	map_leave(map);
	return err;
}

int umsync_begin(void *addr, int flags, struct umsync_handle **handle)
{
	struct umsync_handle *h = calloc(1, sizeof(*h));
	struct guard g;
	int err;

	api_enter(&g);
	if (!handle || flags & ~UMMAP_NOWAIT)
		err = fail(EINVAL, "cannot begin a commit: %s", handle ?
			   "flags has unknown bits. Try 0 or UMMAP_NOWAIT" : "handle is NULL");
	else if (!h)
		err = fail(ENOMEM, "cannot begin a commit: no memory for its handle");
	else
		err = begin_commit(&g, addr, !(flags & UMMAP_NOWAIT), h);
	err = api_leave(&g, err);
	if (err)
		free(h);
	else
		*handle = h;
	return err;
}

/* Waits for the commit, or only looks (ms 0). Returns what umsync_wait returns. */
static int end_commit(struct umsync_handle **handle, int ms, int *done)
{
	struct umsync_handle *h = handle ? *handle : NULL;
	struct guard g;
	uint64_t began;
	int err;

	/* The thread waits without a guard, so its signals are handled. */
	began = h && !h->done && ms ? timeline_begin() : 0;
	*done = !h || !commit_wait(h, ms) || h->done;
	if (!*done)
		return 0;
	api_enter(&g);
	timeline_end(began, "", "wait", 0, "");
	if (!h)
		err = fail(EINVAL, "cannot wait for the commit: the handle is NULL");
	else if (!h->done)
		err = fail(EINVAL, "cannot wait for the commit: the parent of this process has "
			   "begun it");
	else
		err = h->error ? fail(-h->error, "%s", h->message) : 0;
	err = api_leave(&g, err);
	if (h) {
		*handle = NULL;
		free(h);
	}
	return err;
}

int umsync_wait(struct umsync_handle **handle)
{
	int done;

	return end_commit(handle, -1, &done);
}

int umsync_test(struct umsync_handle **handle, int *done)
{
	return end_commit(handle, 0, done);
}

/* ---- Ranges ---- */

/* A job's argument holds the end of its segments, and the flags from this bit on. */
#define JOB_FLAGS_SHIFT 56

static int sync_range(const struct range *r, int flags)
{
	struct mapping *map = r->map;
	int err;

	commit_await(map);
	/* In place, exactly the bytes of the range become durable, not whole segments. */
	if (map->in_place)
		return flags & UMMAP_NOFLUSH ? 0 : inplace_sync(map, r->at, r->len);
	if (r->first == 0 && r->last == map->segs && !(flags & UMMAP_NOFLUSH)) {
		err = sync_segments(map);
	} else {
		err = sync_migrate(map, r->first, r->last);
		if (!err && (flags & UMMAP_NOFLUSH))
			err = writeback_range(map, r->first, r->last, UINT64_MAX);
		else if (!err)
			err = sync_changes(map, r->first, r->last);
	}
	if (!err && (flags & UMMAP_EVICT))
		seg_evict(map, r->first, r->last);
	return err;
}

static void sync_job(void *arg, uint64_t first, uint64_t last)
{
	struct mapping *map = arg;
	struct range r = { .map = map, .first = first,
			   .last = last & ((1ull << JOB_FLAGS_SHIFT) - 1) };
	int err;

	r.at = r.first << map->shift;
	r.len = min_size(r.last << map->shift, map->size) - r.at;
	err = sync_range(&r, (int)(last >> JOB_FLAGS_SHIFT));
	if (err)
		writeback_keep_error(map, err);
	map_leave(map);
}

/* A job that waits for a commit must not delay other jobs. */
static bool sync_later(struct mapping *map, const struct range *r, int flags)
{
	return (commit_runs(map) ? worker_post_long : worker_post)(
		sync_job, map, r->first, r->last | (uint64_t)flags << JOB_FLAGS_SHIFT);
}

int umsync_range(void *addr, size_t len, int flags)
{
	struct guard g;
	struct range r;
	struct mapping *map;
	int err, earlier;

	api_enter(&g);
	if (flags & ~(UMMAP_ASYNC | UMMAP_EVICT | UMMAP_NOFLUSH))
		return api_leave(&g, fail(EINVAL, "cannot sync the range: flags is %d. Try "
					  "UMMAP_ASYNC, UMMAP_EVICT and UMMAP_NOFLUSH only",
					  flags));
	err = find_range(addr, len, &r);
	if (err)
		return api_leave(&g, err);
	map = r.map;
	if ((flags & UMMAP_ASYNC) && sync_later(map, &r, flags))
		return api_leave(&g, 0);
	/* A synchronous call, or the queue of jobs is full. */
	err = write_range(&g, addr, len, &r);
	if (err)
		return api_leave(&g, err);
	map = r.map;
	err = sync_range(&r, flags);
	earlier = writeback_take_error(map);
	err = err ? err : earlier;
	if (err)
		sync_explain(r.map, err);
	map_leave(map);
	return api_leave(&g, err);
}

int umcommits(const void *addr, uint64_t *oldest, uint64_t *newest)
{
	struct guard g;
	struct mapping *map;
	int err;

	api_enter(&g);
	map = map_find(addr);
	if (!map)
		return api_leave(&g, fail(EINVAL, "cannot find a mapping that contains %p", addr));
	if (!oldest || !newest)
		err = fail(EINVAL, "cannot find the commits of the mapping: oldest or newest is "
			   "NULL");
	else
		err = io_epoch(map->backings[map->current].store, oldest, newest);
	if (err == -EOPNOTSUPP)
		fail(EOPNOTSUPP, "cannot find the commits of the mapping: its store keeps none. "
		     "Try the filter wal+");
	map_leave(map);
	return api_leave(&g, err);
}

static int lengthen_store(struct mapping *map, uint64_t size)
{
	struct store *store = map->backings[map->current].store;
	int err;

	if (!map->writable)
		return fail(EACCES, "cannot make the store of '%s' longer: the mapping is "
			    "read-only", map->name);
	if (size > INT64_MAX)
		return fail(EINVAL, "cannot make the store of '%s' %ju bytes long: no file is so "
			    "long", map->name, (uintmax_t)size);
	err = io_lengthen(store, size);
	if (!err && io_size(store) < size)
		err = -EOPNOTSUPP;
	return err ? fail(-err, "cannot make the store of '%s' %ju bytes long: %s", map->name,
			  (uintmax_t)size, strerror(-err)) : 0;
}

/* No other thread uses the mapping during the call, so the store has no requests in flight. */
int umlengthen(void *addr, uint64_t size)
{
	struct guard g;
	struct mapping *map;
	int err;

	api_enter(&g);
	map = map_find_alone(addr);
	if (!map)
		return api_leave(&g, api_fail_no_mapping(addr));
	err = lengthen_store(map, size);
	map_thaw(map);
	map_leave(map);
	return api_leave(&g, err);
}

/* Discards the segments that lie completely in the range. */
static int discard_range(const struct range *r)
{
	struct mapping *map = r->map;
	size_t end = r->at + r->len, first = (r->at + map->seg_size - 1) >> map->shift;
	size_t last = end == map->size ? map->segs : end >> map->shift;
	int err;

	commit_await(map);
	if (map->in_place)
		return fail(EINVAL, "cannot discard the range: the mapping is in place on "
			    "persistent memory");
	if (map->backings[map->current].read)
		return fail(EINVAL, "cannot discard the range: the mapping was made without "
			    "UMMAP_BLANK (read_file 0)");
	err = first < last ? seg_discard(map, first, last) : 0;
	if (err == -EBUSY)
		return fail(EBUSY, "cannot discard a part of the range: it is pinned. The rest is "
			    "discarded");
	return err ? fail(-err, "cannot discard a part of the range: %s", strerror(-err)) : 0;
}

/* Counts the segments of all ranges. A segment in n ranges counts n times. 0 or -errno. */
static int count_segments(struct mapping *map, const struct iovec *ranges, int n, size_t *segments)
{
	struct range r;

	*segments = 0;
	for (int i = 0; i < n; i++) {
		int err = set_range(map, ranges[i].iov_base, ranges[i].iov_len, &r);

		if (err == -ENOMEM)
			return fail(ENOMEM, "cannot prefetch range %d: it leaves the mapping in "
				    "which the first range begins", i);
		if (err)
			return fail(-err, "cannot prefetch range %d: its length is 0", i);
		*segments += min_size(r.last - r.first, SIZE_MAX - *segments);
	}
	return 0;
}

static int prefetch_ranges(struct mapping *map, const struct iovec *ranges, int n)
{
	struct prefetch *p;
	size_t segments;
	struct range r;
	int err = count_segments(map, ranges, n, &segments);

	if (err || (map->in_place && !map->copy))
		return err;
	p = prefetch_open(map, segments);
	if (!p)
		return fail(ENOMEM, "cannot prefetch the ranges: no memory for the list");
	for (int i = 0; i < n; i++) {
		if (set_range(map, ranges[i].iov_base, ranges[i].iov_len, &r) ||
		    !prefetch_add(p, r.first, r.last))
			break;
	}
	prefetch_start(p);
	return 0;
}

/* Advice on the tier of a range, or unknown advice. */
static int keep_in_tier(const struct range *r, int advice)
{
	unsigned tier = advice == UMMAP_ADV_ANY_TIER ? tier_count :
						       (unsigned)(advice - UMMAP_ADV_TIER);
	int err;

	if (advice != UMMAP_ADV_ANY_TIER &&
	    (advice < UMMAP_ADV_TIER || tier >= UMMAP_MAX_TIERS))
		return fail(EINVAL, "cannot apply the advice %d: it is unknown. Try one of "
			    "UMMAP_ADV_*", advice);
	if (advice != UMMAP_ADV_ANY_TIER && (tier >= tier_count || !(r->map->tiers >> tier & 1)))
		return fail(EINVAL, "cannot keep the range in tier %u: the mapping has no such "
			    "tier. Try UMMAP_TIERS, or another attribute `tiers`", tier);
	err = tier_count && !r->map->in_place ? tiering_pin(r->map, r->first, r->last, tier) : 0;
	return err ? fail(-err, "cannot keep the range in tier %u: %s", tier, err == -ENOSPC ?
			  "eight other ranges of the mapping stay in tiers. Try "
			  "UMMAP_ADV_ANY_TIER for one" : strerror(-err)) : 0;
}

int umadvise(void *addr, size_t len, int advice)
{
	struct guard g;
	struct range r;
	struct mapping *map;
	int err;

	api_enter(&g);
	err = find_range(addr, len, &r);
	if (err)
		return api_leave(&g, err);
	map = r.map;
	switch (advice) {
	case UMMAP_ADV_NORMAL:
	case UMMAP_ADV_RANDOM:
	case UMMAP_ADV_SEQUENTIAL:
		readahead_advise(map, advice);
		break;
	case UMMAP_ADV_WILLNEED:
		if (map->copy)
			err = prefetch_ranges(map, &(struct iovec){ addr, len }, 1);
		else if (!map->in_place)
			readahead_want(map, r.first, r.last);
		break;
	case UMMAP_ADV_DONTNEED:
		err = write_range(&g, addr, len, &r);
		if (err)
			return api_leave(&g, err);
		map = r.map;
		err = sync_range(&r, UMMAP_NOFLUSH | UMMAP_EVICT);
		if (err)
			sync_explain(r.map, err);
		break;
	case UMMAP_ADV_DISCARD:
		err = discard_range(&r);
		break;
	default:
		err = keep_in_tier(&r, advice);
	}
	map_leave(map);
	return api_leave(&g, err);
}

int umprefetch(const struct iovec *ranges, int n)
{
	size_t size = n > 0 ? (size_t)n * sizeof(*ranges) : 1;
	struct iovec *copy = malloc(size);
	struct mapping *map;
	struct guard g;
	int err = 0;

	/* The list may be in a mapping, and a fault on it could not be served during the call. */
	if (copy && n > 0 && ranges)
		memcpy(copy, ranges, size);
	api_enter(&g);
	if (n < 0 || (n > 0 && !ranges))
		err = fail(EINVAL, "cannot prefetch the ranges: %s",
			   n < 0 ? "their number is negative" : "the list is NULL");
	else if (!copy)
		err = fail(ENOMEM, "cannot prefetch the ranges: no memory for the list");
	if (!err && n > 0) {
		map = map_find(copy->iov_base);
		err = map ? prefetch_ranges(map, copy, n) :
		      fail(EINVAL, "cannot find a mapping that contains %p, the first range",
			   copy->iov_base);
		if (map)
			map_leave(map);
	}
	err = api_leave(&g, err);
	free(copy);
	return err;
}

static int check_pin(const struct range *r, int prot)
{
	const struct mapping *map = r->map;
	size_t more = 0, limit = 0, pinned = 0, room = tiering_room(map); /* bytes */
	bool fits = true, fits_tiers = true;

	/* A mapping in place uses no frames, so no budget applies. */
	for (size_t i = r->first; i < r->last && fits && fits_tiers && !map->in_place; i++) {
		more += seg_pins(map_seg(map, i)) ? 0 : map_hold(map);
		fits = account_can_pin(map_account(map), more, map->member.least, &limit, &pinned);
		fits_tiers = more <= room;
	}
	if (prot != PROT_READ && prot != (PROT_READ | PROT_WRITE))
		return fail(EINVAL, "cannot pin the range: prot is %d. Try PROT_READ or PROT_READ "
			    "| PROT_WRITE", prot);
	if ((prot & PROT_WRITE) && !map->writable)
		return fail(EACCES, "cannot pin the range for writing: the mapping is read-only");
	if (!fits)
		return fail(ENOMEM, "cannot pin the range of %zu bytes: it does not fit into the "
			    "%zu bytes that may be in memory, of which %zu are pinned already. Try "
			    "umunpin of other ranges, or a larger budget", r->len, limit, pinned);
	if (!fits_tiers)
		return fail(ENOMEM, "cannot pin the range of %zu bytes: its tiers have only %zu "
			    "bytes beside pinned segments. Try umunpin of other ranges, or larger "
			    "tiers (UMMAP_TIERS)", r->len, room);
	return 0;
}

static void unpin_segment(struct mapping *map, size_t i)
{
	if (map->in_place)
		inplace_unpin(map, i);
	else
		seg_unpin(map, i);
}

static bool must_wait_for_writes(const struct range *r)
{
	for (size_t i = r->first; i < r->last; i++) {
		if (stall_must_wait(r->map, i))
			return true;
	}
	return false;
}

/* Waits, as a store does, while writes of the mapping fail: a pin for writing makes segments dirty.
 * On failure, ends the use of the mapping. */
static int wait_for_pin(struct guard *g, const void *addr, size_t len, struct range *r)
{
	int err = 0;

	while (!err && must_wait_for_writes(r)) {
		struct mapping *map = r->map;

		if (map->bus_when_full) {
			err = writeback_error(map) ? writeback_error(map) : EIO;
			err = fail(err, "cannot pin the range for writing: writes to '%s' fail "
				   "(%s), and the memory for changes is used up "
				   "(UMMAP_OVER_BUDGET). Try again after a sync that succeeds",
				   map->name, strerror(err));
			map_leave(map);
			return err;
		}
		stall_note_wait(map);
		map_leave(map);
		guard_leave(g);
		stall_sleep();
		guard_enter(g);
		err = find_range(addr, len, r);
	}
	return err;
}

int umpin(void *addr, size_t len, int prot)
{
	struct guard g;
	struct range r;
	struct mapping *map;
	int err;

	api_enter(&g);
	err = find_range(addr, len, &r);
	if (!err && (prot & PROT_WRITE) && r.map->writable)
		err = wait_for_pin(&g, addr, len, &r);
	if (err)
		return api_leave(&g, err);
	map = r.map;
	err = check_pin(&r, prot);
	for (size_t i = r.first; i < r.last && !err; i++) {
		err = map->in_place ? inplace_pin(map, i) : seg_pin(map, i, prot & PROT_WRITE);
		if (err == -EAGAIN)
			fail(EAGAIN, "cannot pin the range: a segment has %d pins, the maximum",
			     SEG_PINS_MAX);
		else if (err == -ENOMEM && map->copy)
			fail(ENOMEM, "cannot pin the range: half of the node copy may be pinned, "
			     "by all processes together. Try umunpin of other ranges, or umcopy");
		else if (err)
			fail(-err, "cannot read the range into memory: %s", strerror(-err));
		while (err && i-- > r.first)
			unpin_segment(map, i);
	}
	map_leave(map);
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
		if (!seg_pins(map_seg(r.map, i)))
			err = fail(EINVAL, "cannot unpin the range: part of it is not pinned");
	}
	for (size_t i = r.first; i < r.last && !err; i++)
		unpin_segment(r.map, i);
	map_leave(r.map);
	return api_leave(&g, err);
}

int umcopy(void *dst, const void *src, size_t len)
{
	int err;

	fail_clear();
	err = copy_bytes(dst, src, len);
	if (!err)
		return 0;
	errno = -err;
	fail(-err, "cannot copy %zu bytes from %p to %p: a mapping cannot be read or written: %s",
	     len, src, dst, strerror(-err));
	return -1;
}
