/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds frames: free ones, those of inactive segments, and those of resident segments, which are
 * deactivated for it. The frame of a dirty segment is used again only after it was written. Only
 * faults and loads of neighbors evict resident segments. The caller holds the lock of a segment, so
 * the locks of other segments are only tried.
 */
#include "paging/residency/evict.h"

#include "paging/residency/huge_blocks.h"
#include "paging/residency/neighbors.h"
#include "paging/residency/readahead.h"
#include "budget/budget.h"
#include "engine/engine.h"
#include "engine/discard.h"
#include "engine/messages.h"
#include "paging/sync/commit.h"
#include "paging/sync/sync.h"
#include "budget/share.h"
#include "paging/residency/pagecache.h"
#include "paging/residency/tiering.h"
#include "paging/fault/segment.h"
#include "paging/fault/stall.h"
#include "base/spare.h"
#include "paging/sync/twin.h"
#include "base/worker.h"
#include "paging/sync/writeback.h"

#include <limits.h>
#include <sched.h>

/* A request for a frame, and its progress. */
struct request {
	struct mapping *map;
	unsigned places; /* places of the frame; with tiers, only a preference */
	bool ahead;      /* whether the frame is for readahead */
	bool spare;      /* whether the request fails rather than wait, exceed a budget, or write
			    segments that are on small pages */
	bool only_frees; /* whether every frame that is found is freed */
	bool charged;    /* whether the account has reserved the bytes of the frame */
	bool over;       /* whether the frame exceeds the budget of the account or the process */
	unsigned waits;  /* waits for other threads since a segment last became resident */
	uint64_t seen_arrivals; /* account.arrivals at that time */
	unsigned to_free; /* frames to be freed before one is taken, if the budget is exceeded */
	uint32_t frame;
};

/* Step 7 of the cycle in STATES.md: a segment that is in no list becomes absent. Its contents are
 * in the store or are not needed. Returns its frame, which stays charged. */
static uint32_t release_frame(struct mapping *map, struct seg *s)
{
	bool ahead = seg_has(s, SEG_AHEAD);

	if (ahead)
		readahead_note_waste(map);
	huge_blocks_note_single(map, s);
	map_await(map, s);
	flush_leaves(map, s);
	if (map->writers)
		twin_drop(map, map_index(map, s));
	seg_change(s, SEG_VALID | SEG_INACTIVE | SEG_DIRTY | SEG_WRITABLE | SEG_AHEAD |
		   SEG_LEFT_BEHIND, 0);
	cache_note_absent(&map->member, s, !ahead);
	return s->frame;
}

uint32_t evict_release_frame(struct mapping *map, struct seg *s)
{
	account_refund(map_account(map), map->seg_size);
	return release_frame(map, s);
}

/* Empties the slot of a segment without another VMA. If the engine refuses to unmap pages that the
 * kernel has pinned, the segment may stay. */
static int unmap_segment(struct mapping *map, size_t i, struct seg *s)
{
	int err;

	if (seg_has(s, SEG_INACTIVE))
		return 0; /* writing the segment has deactivated it */
	if (map->engine->refuses_pinned)
		return seg_unmap(map, i, &s, 1);
	err = map->engine->discard(map_slot(map, i), map_slot_len(map, i));
	if (!err)
		add(map->stat.evictions, 1);
	return err;
}

/* Discards a segment in place. A dirty one is written first. */
static bool discard_segment(struct mapping *map, size_t i, struct seg *s)
{
	bool clean = !seg_has(s, SEG_DIRTY);

	/* The segment returns to its list meanwhile, because a write changes its place there. */
	if (!clean) {
		seg_put_back(map, s);
		clean = !map_in_order(map) && !commit_bars(map, s) &&
			writeback_locked(map, i, i + 1) == 0 &&
			!seg_has(s, SEG_DIRTY);
		if (clean)
			cache_remove(&map->member, s);
	}
	if (!clean)
		return false;
	if (unmap_segment(map, i, s) < 0) {
		seg_put_back(map, s);
		return false;
	}
	frame_free_to_system(evict_release_frame(map, s));
	return true;
}

/* Takes a victim from any account: accounts without a budget come first. */
static struct seg *take_any_victim(const struct mapping *wanted, enum cache_kind kind,
	struct member **from)
{
	struct account *account;
	struct seg *s = NULL;

	for (size_t n = 0; !s && (account = account_nth(n)); n++)
		s = cache_take_segment(account, kind, &wanted->member, from);
	return s;
}

/* Discards a victim in place. Returns 1; 0: the segment must stay; -1: there is no victim. Sets
 * *mapped if that freed a VMA. */
static int discard_victim(struct mapping *wanted, bool *mapped)
{
	struct member *m;
	struct seg *s = take_any_victim(wanted, CACHE_RESIDENT_CLEAN, &m);
	struct mapping *map;
	bool done;

	if (!s)
		s = take_any_victim(wanted, CACHE_RESIDENT, &m);
	if (!s)
		return -1;
	map = map_of(m);
	done = discard_segment(map, map_index(map, s), s);
	*mapped |= done && frames_are_whole(map->frames);
	seg_unlock(s);
	return done;
}

/* The process has no VMA left to move a frame with. To discard a segment between two mapped ones
 * takes two more VMAs at first, which the spare mappings give. VMAs that become free in excess of
 * that are kept as spare mappings. */
bool evict_unmap_for_vma_limit(struct mapping *wanted)
{
	bool given = frames_are_whole(wanted->frames) && spare_release(), mapped = false;
	int discarded = 0;

	for (unsigned i = 0; i < MAX_VMA_DISCARD_TRIES && !discarded; i++)
		discarded = discard_victim(wanted, &mapped);
	/* Fewer frames from now on keep the process below the limit. */
	if (mapped) {
		frame_restrict((uint32_t)max_size(frame_used() - frame_used() / VMA_RESERVE_PART,
						  MIN_FRAMES_WITHOUT_VMAS));
		spare_refill();
	}
	return given || discarded > 0;
}

/* Whether clean victims are dropped, and not deactivated. Where frames are copied, an inactive
 * segment costs two copies, and while nothing is read ahead it is seldom used again, so only
 * segments with a label of the policy become inactive. With readahead, inactive segments that are
 * used again show how much memory readahead may take. */
static bool should_drop_clean(const struct mapping *wanted, const struct account *giver)
{
	return frames_are_copied(wanted->frames) &&
	       (neighbors_come(wanted) || (!giver->ahead && !giver->coming));
}

/* The segment keeps its frame until free_frame_if_dropped: the mapped range may have its memory
 * until the end of the batch. */
static int drop_segment(struct mapping *map, struct seg *s)
{
	int err = seg_drop(map, map_index(map, s), s);

	if (err)
		seg_put_back(map, s);
	else
		release_frame(map, s);
	return err ? err : 1;
}

static void free_frame_if_dropped(struct mapping *map, const struct seg *s)
{
	if (!seg_has(s, SEG_VALID))
		evict_return_frame(map, s->frame);
}

/* Deactivates a resident segment, which is locked and in no list. With `drop`, a clean segment
 * without a label becomes absent instead, if frames are copied. Returns 1 or -errno. */
static int deactivate_segment(struct mapping *map, struct seg *s, struct account *giver, bool drop)
{
	int err;

	if (drop && frames_are_copied(map->frames) && !seg_has(s, SEG_DIRTY) && !seg_label(s))
		return drop_segment(map, s);
	err = seg_deactivate(map, map_index(map, s), s);
	if (!err && seg_has(s, SEG_DIRTY) &&
	    giver->dirty_inactive >= min_size(account_frames(giver) / WRITE_BEHIND_PART,
					      MAX_WRITE_BEHIND_BYTES))
		writeback_behind(map);
	return err ? err : 1;
}

/* Returns whether something has changed, so that a frame may be found now (done: 1, 0 or -errno).
 * If VMAs are short, some are freed. */
static bool has_progress(struct mapping *wanted, int done)
{
	return done == -ENOMEM ? evict_unmap_for_vma_limit(wanted) : done > 0;
}

/* Deactivates a victim of an account. Returns whether something has changed. */
static bool deactivate_victim(struct mapping *wanted, struct account *giver, enum cache_kind kind)
{
	struct member *m;
	struct seg *s = cache_take_segment(giver, kind, &wanted->member, &m);
	int done;

	if (!s)
		return false;
	done = deactivate_segment(map_of(m), s, giver, should_drop_clean(wanted, giver));
	free_frame_if_dropped(map_of(m), s);
	seg_unlock(s);
	return has_progress(wanted, done);
}

/*
 * If a frame has memory in the pool, the memory that is read into it must be moved to the slot, and
 * each move interrupts the other processors. A frame without memory is copied to (seg_fault).
 * Therefore the memory of the frame is freed, by one call with that of the frames that would be
 * taken next. Those are free from now on.
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
		frames[n] = evict_release_frame(map_of(m), s);
		seg_unlock(s);
	}
	if (n > 1)
		frame_empty(frames, n);
	while (n-- > 1)
		frame_free(frames[n]);
}

/* Whether a frame that a segment has given up can be used for the request. Without tiers, memory of
 * another NUMA node is freed, so that the next frame can have memory of this one. With tiers, the
 * memory of a tier that exceeds its size is freed. */
static bool frame_fits(const struct request *r, const struct mapping *from, uint32_t frame)
{
	return !r->only_frees && from->frames == r->map->frames &&
	       (r->map->tiers || r->places >> frame_place(frame) & 1) &&
	       (!r->to_free || (budget_has_room(0, r->map->member.least) &&
				!(r->map->tiers && frame_exceeds_limit(frame))));
}

/* Takes the frame of a clean inactive segment. If it returns true without a frame, something has
 * changed, and the caller must try again. */
static bool reclaim_inactive(struct request *r, struct account *giver, enum cache_kind kind)
{
	const struct member *wanted = &r->map->member;
	struct member *m;
	struct seg *s = cache_take_segment(giver, kind, wanted, &m);
	uint32_t got;
	bool fits;

	if (!s)
		return false;
	got = release_frame(map_of(m), s);
	fits = frame_fits(r, map_of(m), got) && (r->charged || account_has_room(giver, 0));
	/* The charge passes on with the frame, so that no other thread takes the room in a full
	 * account. */
	if (!fits || r->charged)
		account_refund(giver, m->len);
	/* The mapping of the segment may end as soon as the segment is unlocked. */
	seg_unlock(s);
	r->charged |= fits;
	if (fits) {
		r->frame = got;
		if (frames_are_copied(r->map->frames) &&
		    r->map->seg_size <= MAX_EMPTY_SEGMENT_BYTES && !frame_is_blank(got))
			empty_frames(r, giver);
	} else {
		frame_free_to_system(got);
		r->to_free -= r->to_free > 0;
	}
	return true;
}

static bool has_backlog(const struct account *account)
{
	return account->dirty_inactive >= account_frames(account) / DIRTY_BACKLOG_PART;
}

/* Whether enough frames are clean and inactive. A backlog becomes such frames when it is written,
 * and further segments would have to wait behind it. */
static bool has_supply(const struct account *account, size_t part)
{
	return account->clean >= account_frames(account) / part || has_backlog(account);
}

/* Returns the bytes of clean inactive segments that are missing to the full supply. */
static size_t missing_supply(const struct account *account)
{
	size_t wanted = account_frames(account) / INACTIVE_PART, clean = account->clean;

	return clean >= wanted || has_backlog(account) ? 0 : wanted - clean;
}

/* Whether one call can deactivate segments a and b of a mapping. */
static bool can_move_together(const struct mapping *map, const struct seg *a, const struct seg *b)
{
	return frames_are_whole(map->frames) && map_index(map, a) + 1 == map_index(map, b) &&
	       seg_as_loaded(a) && seg_as_loaded(b) && frame_on_one(a->frame, b->frame);
}

/* Deactivates all segments of a list. Returns 0: it is empty; 1; or the last error. */
static int deactivate_list(struct seg **list, struct member **from, unsigned n,
	struct account *giver, bool drop)
{
	int done = n > 0;

	for (unsigned i = 0, k; i < n; i += k) {
		struct mapping *map = map_of(from[i]);

		for (k = 1; i + k < n && from[i + k] == from[i] &&
			    can_move_together(map, list[i + k - 1], list[i + k]); k++)
			;
		if (k > 1 && seg_deactivate_cluster(map, map_index(map, list[i]), list + i, k) == 0)
			continue;
		for (unsigned j = i; j < i + k; j++) {
			int one = deactivate_segment(map, list[j], giver, drop);

			done = one < 0 ? one : done;
		}
	}
	return done;
}

/* Deactivates n segments of a list by one batch, and unlocks them. Returns what deactivate_list
 * returns. */
static int deactivate_victims(struct mapping *wanted, struct account *giver, struct seg **list,
	struct member **from, unsigned n, bool drop)
{
	int done;

	discard_batch_begin(budget_batch_bytes(wanted->member.least));
	done = deactivate_list(list, from, n, giver, drop);
	discard_batch_end();
	while (n-- > 0) {
		free_frame_if_dropped(map_of(from[n]), list[n]);
		seg_unlock(list[n]);
	}
	return done;
}

/* Deactivates resident segments of `bytes`, at most n, and the rest of the last one's cluster.
 * Returns what deactivate_list returns. */
static int deactivate_batch(struct mapping *wanted, struct account *giver, size_t bytes, unsigned n,
	bool drop)
{
	struct member *from[MAX_EVICTION_BATCH];
	struct seg *list[MAX_EVICTION_BATCH];

	n = cache_take_victims(giver, &wanted->member, bytes, list, from, n, MAX_EVICTION_BATCH);
	return deactivate_victims(wanted, giver, list, from, n, drop);
}

/* Deactivates up to n segments. Returns 1, also if the supply is full; 0: there are none; or
 * -errno. */
static int replenish_inactive(struct mapping *wanted, struct account *giver, unsigned n)
{
	size_t bytes = missing_supply(giver);

	n = n < EVICTION_BATCH ? n : EVICTION_BATCH;
	return bytes ? deactivate_batch(wanted, giver, bytes, n, false) : 1;
}

/* While segments are dropped, frees the frames of a few that have been inactive longest. */
static void expire_inactive(struct mapping *wanted, struct account *giver, size_t leaving)
{
	unsigned n = leaving / EXPIRE_PART +
		     (giver->arrivals % EXPIRE_PART < leaving % EXPIRE_PART);
	struct member *m;
	struct seg *s;

	for (; n > 0 && (s = cache_take_segment(giver, CACHE_CLEAN, &wanted->member, &m)); n--) {
		frame_free(evict_release_frame(map_of(m), s));
		seg_unlock(s);
	}
}

/* Whether dirty segments can be written now. */
static bool may_write(const struct mapping *map, const struct seg *s)
{
	return !map->member.retry && !map_in_order(map) && !commit_bars(map, s);
}

/* Writes the dirty segments of a block of n segments, all of which are locked and in no list.
 * Returns whether all are clean now. They return to their list meanwhile, because a write changes
 * their places there. */
static bool clean_block(struct mapping *map, size_t first, size_t n)
{
	size_t dirty = 0;
	bool may = true;
	int err;

	for (size_t i = first; i < first + n; i++) {
		dirty += seg_has(map_seg(map, i), SEG_DIRTY);
		may = may && may_write(map, map_seg(map, i));
	}
	if (!dirty || !may)
		return !dirty;
	for (size_t i = first; i < first + n; i++)
		seg_put_back(map, map_seg(map, i));
	err = writeback_stretch(map, first, first + n);
	for (size_t i = first; i < first + n; i++)
		cache_remove(&map->member, map_seg(map, i));
	if (err) {
		writeback_keep_error(map, err);
		stall_note_failure(map, err);
	}
	return err == 0;
}

/* Drops all segments of a block, which are locked and in no list. */
static bool drop_locked_block(struct mapping *map, size_t first)
{
	size_t n = HUGE_PAGE >> map->shift;
	bool done = clean_block(map, first, n) && huge_blocks_unmap(map, first) == 0;

	for (size_t i = first; i < first + n; i++) {
		struct seg *s = map_seg(map, i);

		if (done)
			frame_free(evict_release_frame(map, s));
		else
			seg_put_back(map, s);
		map_unlock(map, i, s);
	}
	add(map->stat.evictions, done ? n : 0);
	return done;
}

bool evict_drop_block(struct mapping *map, size_t first)
{
	return huge_blocks_lock_at(map, first) && drop_locked_block(map, first);
}

/* Takes victims as cache_take_victims does, up to the first one whose block is on a huge page. All
 * segments of that block are taken, too: *block is its mapping, and *first its first segment. kind:
 * whether some of them may be dirty. */
static unsigned take_victims_before_block(struct mapping *wanted, struct account *giver,
	enum cache_kind kind, size_t bytes, struct seg **list, struct member **from,
	struct mapping **block, size_t *first)
{
	size_t got = 0;
	unsigned n = 0;

	while (n < DROP_BATCH && got < bytes) {
		struct seg *s = cache_take_segment(giver, CACHE_RESIDENT, &wanted->member,
						   &from[n]);

		if (!s)
			break;
		*first = seg_label(s) || (seg_has(s, SEG_DIRTY) && (kind == CACHE_RESIDENT_CLEAN ||
				!may_write(map_of(from[n]), s))) ? SIZE_MAX :
			 huge_blocks_lock(map_of(from[n]), s, giver, wanted, kind);
		if (*first != SIZE_MAX) {
			*block = map_of(from[n]);
			break;
		}
		got += from[n]->len;
		list[n++] = s;
	}
	return n;
}

/* Drops clean segments one by one, up to a block on a huge page, and that block as a whole. Returns
 * what deactivate_list returns. kind: of the block. */
static int drop_batch_and_block(struct mapping *wanted, struct account *giver,
	enum cache_kind kind, size_t bytes)
{
	struct member *from[DROP_BATCH];
	struct seg *list[DROP_BATCH];
	struct mapping *block = NULL;
	size_t first;
	unsigned n = take_victims_before_block(wanted, giver, kind, bytes, list, from, &block,
					       &first);
	int done = deactivate_victims(wanted, giver, list, from, n, true);

	return block && drop_locked_block(block, first) ? 1 : done;
}

/* Drops clean segments, so that the next faults find free frames. Returns 1 or -errno; 0: there are
 * none. kind: CACHE_RESIDENT also writes and drops blocks that are on huge pages, unless the thread
 * has a request in flight. */
static int drop_batch(struct mapping *wanted, struct account *giver, enum cache_kind kind)
{
	size_t bytes = min_size(account_frames(giver) / DROP_PART, MAX_DROP_BYTES);
	int done = huge_blocks_come(wanted) ?
			   drop_batch_and_block(wanted, giver, kind, bytes) :
			   deactivate_batch(wanted, giver, bytes, DROP_BATCH, true);

	expire_inactive(wanted, giver, min_size(bytes / wanted->seg_size, DROP_BATCH));
	return done;
}

/* Whether neighbors that the program has not accessed have so much memory that they leave first. */
static bool has_unused_neighbors(const struct mapping *wanted, const struct account *giver)
{
	return neighbors_come(wanted) && giver->ahead > account_frames(giver) / MAX_AHEAD_PART;
}

/* Whether resident segments are dropped before an inactive one gives its frame: inactive segments
 * keep their second chance until there are enough of them. */
static bool should_drop_first(const struct mapping *wanted, const struct account *giver)
{
	return should_drop_clean(wanted, giver) && !has_unused_neighbors(wanted, giver) &&
	       giver->clean < account_frames(giver) / INACTIVE_PART &&
	       account_frames(giver) / DROP_PART >= wanted->seg_size && !has_backlog(giver);
}

/* Deactivating a segment takes several system calls. A worker makes them while faults wait for
 * storage. */
static void replenish_job(void *arg, uint64_t giver_address, uint64_t none)
{
	struct mapping *map = arg;
	struct account *giver = (struct account *)(uintptr_t)giver_address;

	(void)none;
	while (!map_is_frozen(map) && !has_supply(giver, INACTIVE_PART) &&
	       has_progress(map, replenish_inactive(map, giver, EVICTION_BATCH)))
		;
	giver->supplying = false;
	map_leave(map);
}

static void start_replenishing(struct mapping *map, struct account *giver)
{
	if (has_supply(giver, INACTIVE_LOW_PART) || atomic_exchange(&giver->supplying, true))
		return;
	map_use(map);
	if (!worker_post(replenish_job, map, (uintptr_t)giver, 0)) {
		giver->supplying = false;
		map_leave(map);
	}
}

/* Returns the account that makes room for the mapping. room: the account of the mapping has room,
 * so the process as a whole lacks it. */
static struct account *choose_giver(const struct mapping *map, bool room)
{
	struct account *mine = map_account(map);

	return room ? account_choose_giver(mine, map->member.least) : mine;
}

void evict_prepare_readahead(struct mapping *map)
{
	bool room = account_has_room(map_account(map), map->seg_size);

	if (!room || !budget_has_room(map->seg_size, map->member.least))
		start_replenishing(map, choose_giver(map, room));
}

/* Makes one step towards a frame with the segments of an account. Returns false if it has none. */
static bool make_room(struct request *r, struct account *giver)
{
	unsigned most = frames_are_whole(r->map->frames) ? EVICTION_BATCH : 1;
	uint32_t seen;

	if (!r->ahead && has_unused_neighbors(r->map, giver) &&
	    reclaim_inactive(r, giver, CACHE_AHEAD))
		return true;
	/* a. A clean inactive segment gives its frame, unless resident ones are dropped first. */
	if (!r->ahead && should_drop_first(r->map, giver) &&
	    has_progress(r->map, drop_batch(r->map, giver, CACHE_RESIDENT)))
		return true;
	if (reclaim_inactive(r, giver, CACHE_CLEAN))
		return true;
	/* b. Readahead evicts no resident segment, unless a fault has started to replenish the
	 * supply anyway, and it does not wait for writes. */
	if (r->ahead)
		return giver->supplying && !has_supply(giver, INACTIVE_PART) &&
		       replenish_inactive(r->map, giver, most) > 0;
	/* c. A resident segment is dropped or becomes inactive. With a backlog, only a clean
	 * one. */
	if (should_drop_clean(r->map, giver) && !has_backlog(giver) &&
	    has_progress(r->map, drop_batch(r->map, giver, CACHE_RESIDENT)))
		return true;
	if ((!has_backlog(giver) && deactivate_victim(r->map, giver, CACHE_RESIDENT)) ||
	    deactivate_victim(r->map, giver, CACHE_RESIDENT_CLEAN))
		return true;
	if (r->spare)
		return reclaim_inactive(r, giver, CACHE_AHEAD);
	/* d. There is no clean segment: a dirty inactive one is written. */
	messages_pass_turn(r->map->engine);
	if (writeback_inactive(giver, NULL))
		return true;
	/* e. A segment that was read ahead and not used yet gives its frame. */
	if (reclaim_inactive(r, giver, CACHE_AHEAD))
		return true;
	/* f. A write of another thread is waited for. */
	seen = writeback_seen();
	if (giver->dirty_inactive && writeback_wait(seen, giver->commits > 0))
		return true;
	/* g. A dirty resident segment becomes inactive in spite of the backlog. */
	return deactivate_victim(r->map, giver, CACHE_RESIDENT);
}

/* Whether a frame of the mapping fits beside pinned ones, in the budget and in its tiers. */
static bool fits_beside_pinned(const struct mapping *map)
{
	return account_fits_beside_pinned(map_account(map), map->seg_size, map->member.least) &&
	       map->seg_size <= tiering_room(map);
}

/* Waits a moment for other threads, which load or write the segments that an account could give up.
 * Returns false if the wait has been long enough, or if all of the segments are pinned. */
static bool wait_for_segments(struct request *r, unsigned max_sleeps)
{
	const struct account *mine = map_account(r->map);
	_Atomic uint32_t unchanged = 0;

	if (!fits_beside_pinned(r->map))
		return false;
	if (mine->arrivals != r->seen_arrivals) {
		r->seen_arrivals = mine->arrivals;
		r->waits = min_size(r->waits, MAX_YIELDS);
	}
	if (r->waits >= MAX_YIELDS + max_sleeps)
		return false;
	if (r->waits++ < MAX_YIELDS)
		sched_yield();
	else
		futex_wait(&unchanged, 0, SLEEP_MS);
	return true;
}

/* Waits before the budget is exceeded: segments that other threads load or write become free,
 * unless these threads need frames themselves, as they do for twins. Segments that storage refuses
 * or that the kernel has pinned do not become free. Therefore, after a wait in vain the account is
 * `stuck`, and waits are short, or none, until a frame was found within the budget. */
static bool wait_for_others(struct request *r, unsigned tries)
{
	struct account *mine = map_account(r->map);

	if (r->map->writers)
		return wait_for_segments(r, MAX_SLEEPS);
	if (mine->stuck)
		return !r->charged && wait_for_segments(r, MAX_SLEEPS);
	if (tries < MAX_LOCK_RETRIES / 2 && wait_for_segments(r, MAX_STORAGE_SLEEPS))
		return true;
	mine->stuck = true;
	return false;
}

/* A worker may hold the segments that the mapping's own account could give up. An account that
 * exceeds its share waits a moment for them, rather than take frames from the shares of others. */
static bool wait_for_own_segments(struct request *r, const struct account *giver)
{
	const struct account *mine = map_account(r->map);

	if (!r->charged || giver != mine || !account_can_give(mine, r->map->member.least) ||
	    !account_nth(1))
		return false;
	return wait_for_segments(r, MAX_SLEEPS);
}

/* Whether the end of a commit in flight can make room for the request: one of the account; or, if
 * the process lacks memory, of any account. */
static bool commit_will_help(const struct request *r)
{
	const struct account *mine = map_account(r->map), *account;
	bool any = mine->commits > 0;

	if (!fits_beside_pinned(r->map))
		return false;
	for (size_t n = 0; !any && r->charged && (account = account_nth(n)); n++)
		any = account->commits > 0;
	return any;
}

/* Moves one segment of any mapping one step towards giving up its frame. Returns false if there is
 * no such segment. */
static bool evict_step(struct request *r)
{
	struct account *giver = choose_giver(r->map, r->charged), *other;
	uint32_t seen;

	/* Faults keep up the supply of inactive segments, from which readahead takes frames. */
	if (!r->ahead && !should_drop_clean(r->map, giver))
		start_replenishing(r->map, giver);
	if (make_room(r, giver))
		return true;
	if (r->ahead || r->spare)
		return false;
	if (wait_for_own_segments(r, giver))
		return true;
	/* Other accounts give up segments for the budget of the process, even below their shares;
	 * but not for an account that exceeds its own budget. */
	for (size_t n = 0; r->charged && (other = account_nth(n)); n++) {
		if (other != giver && make_room(r, other))
			return true;
	}
	seen = writeback_seen();
	return writeback_wait(seen, commit_will_help(r));
}

/* Exceeds the budget of the account; or, if that has room, the budget of the process, by one frame
 * and not by a huge page of frames. */
static void exceed_budget(struct request *r)
{
	r->over = true;
	if (!r->charged) {
		account_charge_beyond(map_account(r->map), r->map->seg_size);
		r->charged = true;
		return;
	}
	r->frame = frame_take(r->map->frames, r->places, FRAME_ONE_MORE);
	if (r->frame == FRAME_NONE && !spare_release())
		sched_yield();
}

/* Whether changes that storage refuses leave few frames for other segments. An instruction may need
 * several at a time. With too few, they would evict each other without end. */
static bool lacks_clean_frames(const struct request *r)
{
	return writeback_error(r->map) &&
	       account_lacks_clean_frames(map_account(r->map), r->map->member.least);
}

static uint32_t take_frame(struct mapping *map, bool ahead, bool spare)
{
	struct request r = { .map = map, .places = map_places(map), .ahead = ahead,
		.spare = spare, .frame = FRAME_NONE,
		.to_free = FRAMES_FREED_PER_FAULT_OVER_BUDGET };
	bool keeps_clean;
	size_t limit;

	share_expect(map->seg_size);
	for (unsigned tries = 0; r.frame == FRAME_NONE && tries < MAX_LOCK_RETRIES; tries++) {
		/* 1. The account promises the bytes, if it has room for them. */
		r.charged = r.charged || account_charge(map_account(map), map->seg_size);
		/* 2. A free frame, within the budget of the process. */
		limit = budget_frame_limit(map->member.least);
		if (limit && r.charged)
			r.frame = frame_take(map->frames, r.places, limit);
		if (r.frame != FRAME_NONE)
			break;
		/* 3. The memory of free frames of other sizes and places. It may take many small
		 * ones. */
		if (r.charged && frame_shrink(map->frames, r.places)) {
			tries = 0;
			continue;
		}
		/* 4. The oldest page-cache mappings are unmapped. Readahead unmaps nothing that may
		 * be in use. */
		if (!ahead && pagecache_yield(map, !r.charged))
			continue;
		/* 5. A segment is evicted, in the steps of make_room, and its frame is used. */
		keeps_clean = !ahead && lacks_clean_frames(&r);
		if (!keeps_clean && evict_step(&r))
			continue;
		/* 6. Nothing can be evicted now. Only the faulting segment needs its frame. */
		if (ahead || spare)
			break;
		/* 7. Wait for frames that other threads are loading or writing. */
		if (!keeps_clean && wait_for_others(&r, tries))
			continue;
		/* 8. Exceed the budget, because a fault must be served. */
		exceed_budget(&r);
	}
	if (r.charged && r.frame == FRAME_NONE)
		account_refund(map_account(map), map->seg_size);
	if (r.frame != FRAME_NONE && !r.over && map_account(map)->stuck)
		map_account(map)->stuck = false;
	if (r.frame != FRAME_NONE && map->tiers && !spare)
		r.frame = tiering_improve(map, r.frame);
	return r.frame;
}

uint32_t evict_take_frame(struct mapping *map, bool ahead)
{
	return take_frame(map, ahead, false);
}

uint32_t evict_take_spare(struct mapping *map)
{
	return take_frame(map, false, true);
}

/* Makes one frame free and writable for the next fault, if so many segments are inactive that the
 * loss of one does not matter. */
static void prepare_frame(struct mapping *map, struct account *giver)
{
	struct request r = { .map = map, .places = map_places(map), .charged = true,
			     .frame = FRAME_NONE };

	if (giver->clean < MIN_INACTIVE_TO_PREPARE * map->seg_size ||
	    frame_is_available(map->frames, r.places, 0))
		return;
	if (!reclaim_inactive(&r, giver, CACHE_CLEAN) || r.frame == FRAME_NONE)
		return;
	frame_make_writable(r.frame, 1);
	frame_free(r.frame);
}

void evict_replenish(struct mapping *map, unsigned n)
{
	struct account *mine = map_account(map), *giver;
	bool room = account_has_room(mine, map->seg_size);

	if (room && frame_prepare_next(map->frames, map_places(map),
				       budget_frame_limit(map->member.least)))
		return;
	giver = choose_giver(map, room);
	if (!should_drop_clean(map, giver))
		replenish_inactive(map, giver, n);
	/* Dropped segments have no second chance. An instruction may need four segments at a time.
	 * They must not be dropped for the next fault while there are inactive segments, nor if
	 * they are all of the budget (should_drop_first). */
	else if (should_drop_first(map, giver))
		drop_batch(map, giver, CACHE_RESIDENT_CLEAN);
	if (frames_are_whole(map->frames))
		prepare_frame(map, giver);
}

bool evict_shrink(struct mapping *map, size_t least, unsigned frames)
{
	const struct account *mine = map_account(map);
	struct request r = { .map = map, .only_frees = true, .waits = MAX_YIELDS + MAX_SLEEPS,
		.seen_arrivals = mine->arrivals, .frame = FRAME_NONE };

	for (; frames > 0; frames--) {
		r.charged = !account_exceeds_limit(mine, map->member.least);
		if (r.charged && !budget_excess(least))
			break;
		if (!frame_shrink(NULL, 0) && !(r.charged && tiering_shrink(map)) &&
		    !evict_step(&r))
			return false;
	}
	return true;
}

void evict_return_frame(struct mapping *map, uint32_t frame)
{
	account_refund(map_account(map), map->seg_size);
	frame_free(frame);
}
