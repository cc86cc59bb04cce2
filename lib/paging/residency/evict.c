/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds frames: free ones, those of inactive segments, those of segments that are deactivated now, in the account from
 * which to evict. A dirty frame is reused only after it was written. Only faults evict mapped segments. Segments are
 * trylocked only: the caller holds one already.
 */
#include "paging/residency/evict.h"

#include "paging/residency/readahead.h"
#include "budget/budget.h"
#include "engine/engine.h"
#include "engine/discard.h"
#include "engine/messages.h"
#include "paging/sync/flush.h"
#include "budget/share.h"
#include "paging/residency/pagecache.h"
#include "paging/fault/segment.h"
#include "base/spare.h"
#include "paging/sync/twin.h"
#include "base/worker.h"
#include "paging/sync/writeback.h"

#include <limits.h>
#include <sched.h>

/* A request for a frame, and its progress. */
struct request {
	struct mapping *map;
	bool ahead;      /* it only reads ahead */
	bool only_frees; /* every frame that it finds is freed */
	bool charged;    /* its account has promised it the frame's bytes */
	bool over;       /* ... beyond its budget, or the frame is beyond the process's */
	unsigned waits;  /* how often it has waited for what others have in hands, since the last segment came */
	uint64_t came;   /* ... which was that one, of its account */
	unsigned help;   /* frames that it still has to free, beyond the budget, before it may take one */
	uint32_t frame;
};

static size_t frame_limit(const struct mapping *map)
{
	return budget_frame_limit(map->member.least);
}

/* Step 7 of the cycle in STATES.md: a segment that is in no list becomes absent. The store has the
 * contents of its frame, or nobody needs them. The frame stays charged. */
static uint32_t let_go(struct mapping *map, struct seg *s)
{
	if (seg_has(s, SEG_AHEAD))
		readahead_wasted(map);
	map_await(map, s);
	flush_leaves(map, s);
	if (map->writers)
		twin_drop(map, map_index(map, s));
	seg_change(s, SEG_VALID | SEG_INACTIVE | SEG_DIRTY | SEG_WRITABLE | SEG_AHEAD | SEG_LEFT_BEHIND, 0);
	cache_note_absent(&map->member, s);
	return s->frame;
}

uint32_t evict_let_go(struct mapping *map, struct seg *s)
{
	account_refund(map_account(map), map->seg_size);
	return let_go(map, s);
}

/* Out of the mapped range without one mapping more; where that takes none, what the kernel works on stays. */
static int leave_range(struct mapping *map, size_t i, struct seg *s)
{
	int err;

	if (seg_has(s, SEG_INACTIVE))
		return 0; /* writing it has sent it there */
	if (map->engine->refuses_pinned)
		return seg_unmap(map, i, &s, 1);
	err = map->engine->discard(map_place(map, i), map_place_len(map, i));
	if (!err)
		add(map->stat.evictions, 1);
	return err;
}

/* Discards a segment in place; a dirty one is written first. */
static bool discard(struct mapping *map, size_t i, struct seg *s)
{
	bool clean = !seg_has(s, SEG_DIRTY);

	/* Back in its list meanwhile, because writing it is heard of there. */
	if (!clean) {
		seg_put_back(map, s);
		clean = !map_in_order(map) && writeback_locked(map, i, i + 1) == 0 && !seg_has(s, SEG_DIRTY);
		if (clean)
			cache_remove(&map->member, s);
	}
	if (!clean)
		return false;
	if (leave_range(map, i, s) < 0) {
		seg_put_back(map, s);
		return false;
	}
	frame_free_to_system(evict_let_go(map, s));
	return true;
}

/* Out of any account: those without a budget come first. */
static struct seg *any_victim(const struct mapping *wanted, enum cache_kind kind,
	struct member **from)
{
	struct account *account;
	struct seg *s = NULL;

	for (size_t n = 0; !s && (account = account_nth(n)); n++)
		s = cache_take_segment(account, kind, &wanted->member, from);
	return s;
}

/* Discards a segment in place: 1, or 0: it has to stay; -1: there is none. *mapped: it was a VMA. */
static int shed_one(struct mapping *wanted, bool *mapped)
{
	struct member *m;
	struct seg *s = any_victim(wanted, CACHE_RESIDENT_CLEAN, &m);
	struct mapping *map;
	bool done;

	if (!s)
		s = any_victim(wanted, CACHE_RESIDENT, &m);
	if (!s)
		return -1;
	map = map_of(m);
	done = discard(map, map_index(map, s), s);
	*mapped |= done && frames_are_whole(map->frames);
	seg_unlock(s);
	return done;
}

/* There is no VMA left to move a frame with. Discarding a segment among others takes two more VMAs first, for which
 * there are the spare ones; those that become free beyond what is needed now are kept for the next time. */
bool evict_shed(struct mapping *wanted)
{
	bool given = frames_are_whole(wanted->frames) && spare_give(), mapped = false;
	unsigned most = frames_are_whole(wanted->frames) ? MAX_VMA_DISCARDS : 1, shed = 0;
	int one = 0;

	for (unsigned tries = 0; tries < MAX_VMA_DISCARD_TRIES && shed < most && one >= 0; tries++) {
		one = shed_one(wanted, &mapped);
		shed += one > 0;
	}
	/* Keep clear of where it happened. */
	if (mapped) {
		frame_restrict((uint32_t)max_size(frame_used() - frame_used() / VMA_RESERVE_PART,
						  MIN_FRAMES_WITHOUT_VMAS));
		spare_keep();
	}
	return given || shed;
}

/* A second chance costs two copies where frames are copied, and while nothing is read ahead it mostly is for nothing: only
 * what its policy has labelled gets one. Else it tells how much of the memory readahead may take. */
static bool drops(const struct mapping *wanted, const struct account *giver)
{
	return frames_are_copied(wanted->frames) && !giver->ahead && !giver->coming;
}

/* It holds its frame until free_dropped: the memory is in its place, perhaps until the end of the batch. */
static int drop_one(struct mapping *map, struct seg *s)
{
	int err = seg_drop(map, map_index(map, s), s);

	if (err)
		seg_put_back(map, s);
	else
		let_go(map, s);
	return err ? err : 1;
}

static void free_dropped(struct mapping *map, const struct seg *s)
{
	if (!seg_has(s, SEG_VALID))
		evict_return_frame(map, s->frame);
}

/* A segment that leaves the mapped range, which is locked and in no list, becomes inactive; or, with `drop`, gives its
 * frame at once where that only is a copy of what the store has: 1, or -errno. */
static int send_one(struct mapping *map, struct seg *s, struct account *giver, bool drop)
{
	int err;

	if (drop && frames_are_copied(map->frames) && !seg_has(s, SEG_DIRTY) && !seg_label(s))
		return drop_one(map, s);
	err = seg_deactivate(map, map_index(map, s), s);
	if (!err && seg_has(s, SEG_DIRTY) &&
	    giver->dirty_inactive >= min_size(account_frames(giver) / WRITE_BEHIND_PART, MAX_WRITE_BEHIND_BYTES))
		writeback_behind(map);
	return err ? err : 1;
}

/* Sends a resident segment to the inactive ones, so that its frame can be had: 1, or -errno; 0: there is none. */
static int send_off(struct mapping *wanted, struct account *giver, enum cache_kind kind)
{
	struct member *m;
	struct seg *s = cache_take_segment(giver, kind, &wanted->member, &m);
	int done;

	if (!s)
		return 0;
	done = send_one(map_of(m), s, giver, drops(wanted, giver));
	free_dropped(map_of(m), s);
	seg_unlock(s);
	return done;
}

/* What came of it, whatever it takes. */
static bool has_moved(struct mapping *wanted, int done)
{
	return done == -ENOMEM ? evict_shed(wanted) : done > 0;
}

static bool retire(struct mapping *wanted, struct account *giver, enum cache_kind kind)
{
	return has_moved(wanted, send_off(wanted, giver, kind));
}

/*
 * What is read into a frame that has memory in the pool moves to its place, and each move interrupts the other processors;
 * without that memory it is copied (seg_fault). So the memory goes, by one call with that of frames that would be taken
 * next, and these are free from now on.
 */
static void empty_frames(struct request *r, struct account *giver)
{
	size_t spare = giver->clean / EMPTY_PART / r->map->seg_size;
	uint32_t frames[EMPTY_BATCH] = { r->frame };
	unsigned n = 1;
	struct member *m;
	struct seg *s;

	for (; n < EMPTY_BATCH && n < spare &&
	     (s = cache_take_segment(giver, CACHE_CLEAN, &r->map->member, &m)); n++) {
		frames[n] = evict_let_go(map_of(m), s);
		seg_unlock(s);
	}
	if (n > 1)
		frame_empty(frames, n);
	while (n-- > 1)
		frame_free(frames[n]);
}

/* Takes the frame of a segment that is inactive and clean; true without one: try again, something has moved. */
static bool reclaim(struct request *r, struct account *giver, enum cache_kind kind)
{
	const struct member *wanted = &r->map->member;
	struct member *m;
	struct seg *s = cache_take_segment(giver, kind, wanted, &m);
	uint32_t got;
	bool fits;

	if (!s)
		return false;
	got = let_go(map_of(m), s);
	fits = !r->only_frees && map_of(m)->frames == r->map->frames &&
	       (!r->help || budget_has_room(0, wanted->least)) &&
	       (r->charged || account_has_room(giver, 0));
	/* Within a full account the charge passes on with the frame, so that no other thread can take it. */
	if (!fits || r->charged)
		account_refund(giver, m->len);
	/* Once it is unlocked, the other mapping may end at any moment. */
	seg_unlock(s);
	r->charged |= fits;
	if (fits) {
		r->frame = got;
		if (frames_are_copied(r->map->frames) && r->map->seg_size <= MAX_EMPTY_SEGMENT_BYTES && !frame_is_blank(got))
			empty_frames(r, giver);
	} else {
		frame_free_to_system(got);
		r->help -= r->help > 0;
	}
	return true;
}

static bool has_backlog(const struct account *account)
{
	return account->dirty_inactive >= account_frames(account) / DIRTY_BACKLOG_PART;
}

/* What waits to be written becomes a supply of clean frames; more of it would not come sooner. */
static bool has_supply(const struct account *account, size_t part)
{
	return account->clean >= account_frames(account) / part || has_backlog(account);
}

/* Bytes that the supply lacks. */
static size_t lacking(const struct account *account)
{
	size_t wanted = account_frames(account) / INACTIVE_PART, clean = account->clean;

	return clean >= wanted || has_backlog(account) ? 0 : wanted - clean;
}

/* Whether the second of two segments of a mapping can leave by the same call. */
static bool goes_along(const struct mapping *map, const struct seg *a, const struct seg *b)
{
	return frames_are_whole(map->frames) && map_index(map, a) + 1 == map_index(map, b) && seg_as_loaded(a) &&
	       seg_as_loaded(b) && frame_on_one(a->frame, b->frame);
}

/* What they gave; all of them have been tried. */
static int send_all(struct seg **list, struct member **from, unsigned n, struct account *giver, bool drop)
{
	int done = n > 0;

	for (unsigned i = 0, k; i < n; i += k) {
		struct mapping *map = map_of(from[i]);

		for (k = 1; i + k < n && from[i + k] == from[i] && goes_along(map, list[i + k - 1], list[i + k]); k++)
			;
		if (k > 1 && seg_deactivate_cluster(map, map_index(map, list[i]), list + i, k) == 0)
			continue;
		for (unsigned j = i; j < i + k; j++) {
			int one = send_one(map, list[j], giver, drop);

			done = one < 0 ? one : done;
		}
	}
	return done;
}

/* Resident segments of so many bytes, n at most, and the rest of the last one's cluster. Returns what they gave; 0: there
 * are none. */
static int send_together(struct mapping *wanted, struct account *giver, size_t bytes, unsigned n, bool drop)
{
	struct member *from[MAX_EVICTION_BATCH];
	struct seg *list[MAX_EVICTION_BATCH];
	int done;

	n = cache_take_victims(giver, &wanted->member, bytes, list, from, n, MAX_EVICTION_BATCH);
	discard_batch_begin(budget_batch_bytes(wanted->member.least));
	done = send_all(list, from, n, giver, drop);
	discard_batch_end();
	while (n-- > 0) {
		free_dropped(map_of(from[n]), list[n]);
		seg_unlock(list[n]);
	}
	return done;
}

/* Up to n, unless there is supply enough; 1: none was needed. */
static int send_some(struct mapping *wanted, struct account *giver, unsigned n)
{
	size_t bytes = lacking(giver);

	return bytes ? send_together(wanted, giver, bytes, n < EVICTION_BATCH ? n : EVICTION_BATCH, false) : 1;
}

/* What has been inactive for long gives its memory back, as one of so many that leave. */
static void expire_some(struct mapping *wanted, struct account *giver, size_t leaving)
{
	unsigned n = leaving / EXPIRE_PART + (giver->arrivals % EXPIRE_PART < leaving % EXPIRE_PART);
	struct member *m;
	struct seg *s;

	for (; n > 0 && (s = cache_take_segment(giver, CACHE_CLEAN, &wanted->member, &m)); n--) {
		frame_free(evict_let_go(map_of(m), s));
		seg_unlock(s);
	}
}

/* The next faults find room: 1, or -errno; 0: there is nothing to give. */
static int drop_some(struct mapping *wanted, struct account *giver)
{
	size_t bytes = min_size(account_frames(giver) / DROP_PART, MAX_DROP_BYTES);
	int done = send_together(wanted, giver, bytes, DROP_BATCH, true);

	expire_some(wanted, giver, min_size(bytes / wanted->seg_size, DROP_BATCH));
	return done;
}

/* Whether dropping comes before what is inactive gives its frame: that has its chance until there is enough of it. */
static bool drops_first(const struct mapping *wanted, const struct account *giver)
{
	return drops(wanted, giver) && giver->clean < account_frames(giver) / INACTIVE_PART &&
	       account_frames(giver) / DROP_PART >= wanted->seg_size && !has_backlog(giver);
}

/* Filling the supply takes several system calls a segment: a worker makes them while faults wait for I/O. */
static void supply_job(void *arg, uint64_t giver_address, uint64_t none)
{
	struct mapping *map = arg;
	struct account *giver = (struct account *)(uintptr_t)giver_address;

	(void)none;
	while (!map_is_frozen(map) && !has_supply(giver, INACTIVE_PART) && has_moved(map, send_some(map, giver, EVICTION_BATCH)))
		;
	giver->supplying = false;
	map_leave(map);
}

static void call_supply(struct mapping *map, struct account *giver)
{
	if (has_supply(giver, INACTIVE_LOW_PART) || atomic_exchange(&giver->supplying, true))
		return;
	map_use(map);
	if (!worker_post(supply_job, map, (uintptr_t)giver, 0)) {
		giver->supplying = false;
		map_leave(map);
	}
}

/* Who makes room for the mapping; its account has room (of the process's), or it has not. */
static struct account *giver_for(const struct mapping *map, bool room)
{
	struct account *mine = map_account(map);

	return room ? account_choose_giver(mine, map->member.least) : mine;
}

void evict_expect(struct mapping *map)
{
	bool room = account_has_room(map_account(map), map->seg_size);

	if (!room || !budget_has_room(map->seg_size, map->member.least))
		call_supply(map, giver_for(map, room));
}

/* One step towards a frame, out of one account; false: it has nothing to give. */
static bool make_room(struct request *r, struct account *giver)
{
	/* a. What is inactive and clean gives its frame, unless what gets no second chance is to go first. */
	if (!r->ahead && drops_first(r->map, giver) && has_moved(r->map, drop_some(r->map, giver)))
		return true;
	if (reclaim(r, giver, CACHE_CLEAN))
		return true;
	/* b. Readahead evicts no mapped segment, unless a fault has asked for more inactive ones anyway; and it does not wait
	 * for writes. */
	if (r->ahead)
		return giver->supplying && !has_supply(giver, INACTIVE_PART) &&
		       send_some(r->map, giver, frames_are_whole(r->map->frames) ? EVICTION_BATCH : 1) > 0;
	/* c. What is in use becomes inactive; only what is clean, where much waits to be written already. */
	if (drops(r->map, giver) && !has_backlog(giver) && has_moved(r->map, drop_some(r->map, giver)))
		return true;
	if ((!has_backlog(giver) && retire(r->map, giver, CACHE_RESIDENT)) ||
	    retire(r->map, giver, CACHE_RESIDENT_CLEAN))
		return true;
	/* d. Nothing clean is left: what is inactive and dirty is written, */
	messages_hand_off();
	if (writeback_account(giver))
		return true;
	/* e. what was read ahead just now goes unused, */
	if (reclaim(r, giver, CACHE_AHEAD))
		return true;
	/* f. what others are writing is waited for, */
	if (giver->dirty_inactive && writeback_wait())
		return true;
	/* g. and what is in use and dirty joins what waits to be written. */
	return retire(r->map, giver, CACHE_RESIDENT);
}

/* Other threads load or write the segments that an account could give up. false: the wait has been long enough, or all
 * of them are pinned. */
static bool wait_for_hands(struct request *r, unsigned naps)
{
	const struct account *mine = map_account(r->map);
	_Atomic uint32_t nobody = 0;

	if (!account_fits_beside_pinned(mine, r->map->seg_size, r->map->member.least))
		return false;
	if (mine->arrivals != r->came) {
		r->came = mine->arrivals;
		r->waits = min_size(r->waits, MAX_YIELDS);
	}
	if (r->waits >= MAX_YIELDS + naps)
		return false;
	if (r->waits++ < MAX_YIELDS)
		sched_yield();
	else
		futex_wait(&nobody, 0, SLEEP_MS);
	return true;
}

/* Before it goes over the budget: what is loaded or written now comes back, unless it needs a frame itself, as what has
 * a twin does. What storage refuses to take, or what the kernel has pinned, does not: once a wait was in vain, the next
 * ones are short, or none, until something has come. */
static bool wait_for_others(struct request *r, unsigned tries)
{
	struct account *mine = map_account(r->map);

	if (r->map->writers)
		return wait_for_hands(r, MAX_SLEEPS);
	if (mine->stuck)
		return !r->charged && wait_for_hands(r, MAX_SLEEPS);
	if (tries < MAX_LOCK_RETRIES / 2 && wait_for_hands(r, MAX_STORAGE_SLEEPS))
		return true;
	mine->stuck = true;
	return false;
}

/* What the mapping's own account could give may be in the hands of a worker just now. Who holds more than is due waits
 * for that a moment, rather than take what another account is due. */
static bool waits_for_own(struct request *r, const struct account *giver)
{
	const struct account *mine = map_account(r->map);

	if (!r->charged || giver != mine || !account_can_give(mine, r->map->member.least) ||
	    !account_nth(1))
		return false;
	return wait_for_hands(r, MAX_SLEEPS);
}

/* Moves one segment, of whichever mapping, one step towards giving up its frame; false: there is no such segment. */
static bool find_room(struct request *r)
{
	struct account *giver = giver_for(r->map, r->charged), *other;

	/* Faults keep up the supply of inactive segments, which readahead uses. */
	if (!r->ahead && !drops(r->map, giver))
		call_supply(r->map, giver);
	if (make_room(r, giver))
		return true;
	if (r->ahead)
		return false;
	if (waits_for_own(r, giver))
		return true;
	/* The budget of the process comes before the share of an account; but no other account gives for one that exceeds
	 * its own. */
	for (size_t n = 0; r->charged && (other = account_nth(n)); n++) {
		if (other != giver && make_room(r, other))
			return true;
	}
	return writeback_wait();
}

static bool take_free(struct request *r, size_t limit)
{
	if (r->charged)
		r->frame = frame_take(r->map->frames, limit);
	return r->frame != FRAME_NONE;
}

/* Over its account's budget; or if that has promised the bytes already, over the process's: by one frame, and not by a
 * huge page of them. */
static void go_over(struct request *r)
{
	r->over = true;
	if (!r->charged) {
		account_charge_beyond(map_account(r->map), r->map->seg_size);
		r->charged = true;
	} else if (!take_free(r, FRAME_ONE_MORE) && !spare_give()) {
		sched_yield();
	}
}

/* Where changes that storage refuses fill the budget, few frames are left for other segments. An instruction may need several at
 * a time, which would evict each other without end. */
static bool lacks_clean_frames(const struct request *r)
{
	return writeback_error(r->map) &&
	       account_lacks_clean_frames(map_account(r->map), r->map->member.least);
}

uint32_t evict_take_frame(struct mapping *map, bool ahead)
{
	struct request r = { .map = map, .ahead = ahead, .help = FRAMES_FREED_PER_FAULT_OVER_BUDGET, .frame = FRAME_NONE };
	bool keeps_clean;
	size_t limit;

	share_expect(map->seg_size);
	for (unsigned tries = 0; r.frame == FRAME_NONE && tries < MAX_LOCK_RETRIES; tries++) {
		/* 1. The account promises the bytes, if it has room for them. */
		r.charged = r.charged || account_charge(map_account(map), map->seg_size);
		/* 2. A free frame, within the budget of the process. */
		limit = frame_limit(map);
		if (limit && take_free(&r, limit))
			break;
		/* 3. The memory of free frames of other sizes. It may take many small ones. */
		if (r.charged && frame_shrink(map->frames)) {
			tries = 0;
			continue;
		}
		/* 4. The oldest page-cache mappings are unmapped. Readahead unmaps nothing that may
		 * be in use. */
		if (!ahead && pagecache_yield(map, !r.charged))
			continue;
		/* 5. A segment is evicted, in the steps of make_room, and its frame is used. */
		keeps_clean = !ahead && lacks_clean_frames(&r);
		if (!keeps_clean && find_room(&r))
			continue;
		/* 6. Nothing can be evicted now. Readahead gives up. */
		if (ahead)
			break;
		/* 7. Wait for frames that other threads are loading or writing. */
		if (!keeps_clean && wait_for_others(&r, tries))
			continue;
		/* 8. Exceed the budget, because a fault must be served. */
		go_over(&r);
	}
	if (r.charged && r.frame == FRAME_NONE)
		account_refund(map_account(map), map->seg_size);
	if (r.frame != FRAME_NONE && !r.over && map_account(map)->stuck)
		map_account(map)->stuck = false;
	return r.frame;
}

/* The next fault finds a frame that is free, and may be written. What it held loses its second chance: one of many. */
static void keep_ready(struct mapping *map, struct account *giver)
{
	struct request r = { .map = map, .charged = true, .frame = FRAME_NONE };

	if (giver->clean < MIN_INACTIVE_TO_PREPARE * map->seg_size || frame_is_available(map->frames, 0))
		return;
	if (!reclaim(&r, giver, CACHE_CLEAN) || r.frame == FRAME_NONE)
		return;
	frame_make_writable(r.frame, 1);
	frame_free(r.frame);
}

void evict_resupply(struct mapping *map, unsigned n)
{
	struct account *mine = map_account(map), *giver;
	bool room = account_has_room(mine, map->seg_size);

	if (room && frame_is_available(map->frames, frame_limit(map))) {
		frame_stock(map->frames, frame_limit(map));
		return;
	}
	giver = giver_for(map, room);
	if (!drops(map, giver))
		send_some(map, giver, n);
	/* Who drops gives no second chance: an instruction needs up to four segments at the same time, which must not go for
	 * the sake of the next one while something is inactive, nor where they are all that there is. */
	else if (drops_first(map, giver))
		drop_some(map, giver);
	if (frames_are_whole(map->frames))
		keep_ready(map, giver);
}

bool evict_shrink(struct mapping *map, size_t least, unsigned frames)
{
	const struct account *mine = map_account(map);
	struct request r = { .map = map, .only_frees = true, .waits = MAX_YIELDS + MAX_SLEEPS,
		.came = mine->arrivals, .frame = FRAME_NONE };

	for (; frames > 0; frames--) {
		r.charged = !account_exceeds_limit(mine, map->member.least);
		if (r.charged && !budget_excess(least))
			break;
		if (!frame_shrink(NULL) && !find_room(&r))
			return false;
	}
	return true;
}

void evict_return_frame(struct mapping *map, uint32_t frame)
{
	account_refund(map_account(map), map->seg_size);
	frame_free(frame);
}
