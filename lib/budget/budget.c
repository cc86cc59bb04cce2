/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits, charges and room: see budget.h. An account may hold its share of the budget of the
 * process. The share of an account with a limit is that limit, and the share of the common account
 * is the rest of the budget; if the limits add up to more than the budget, all of them are reduced
 * in proportion. Segments are evicted first from the account that exceeds its share most.
 * Therefore, an account keeps its share, and other accounts may use memory that it does not use.
 */
#include "budget/budget.h"

#include "base/config.h"
#include "base/log.h"
#include "budget/machine.h"
#include "memory/frame.h"

#include <float.h>

/* The default bound on memory beyond the budget leaves this part of the memory beside the limit to
 * everything else. */
#define SPARE_MEMORY_PART 2
/* The bytes that a batch holds twice are not in the budget: this part of it for each thread. */
#define BATCH_PART 256
/* The part of a budget that page-cache mappings may have in any case, pinned memory left out. */
#define GUARANTEED_PART 4
/* The part of a budget that node copies may have in any case. */
#define COPIES_PART 2
/* A budget of fewer segments is for frames alone, because an instruction may need several segments
 * of either kind at once. */
#define MIN_PAGECACHE_SEGMENTS 16
/* Parts of a budget that segments which were read ahead and not accessed yet may take: one run; all
 * runs together where memory is short; and all runs together otherwise. */
#define WINDOW_PART 8
#define AHEAD_PART 8
#define MAX_AHEAD_PART 2
/* If all memory is in use, a list of segments to prefetch gets this part of it, as long as segments
 * that were read ahead take less than MAX_AHEAD_PART. */
#define PREFETCH_PART 8

static size_t limit;          /* bytes for all processes of the memory group */
static size_t spare_memory;   /* bytes that the default bound may add to the limit */
static _Atomic size_t budget, reachable, peak;
static _Atomic size_t pagecache, pinned; /* sums over all accounts */
static _Atomic size_t copies;            /* parts of node copies */

/* Headers of segments whose size the library chooses take at most this part of the memory of the
 * mapping: segments are pages if the mapping is at most 8 times as large as its memory. */
#define HEADERS_PART 16
/* Segments of such a mapping are larger than pages only if its memory holds this number of them. */
#define MIN_ADAPTING_SEGMENTS 64
/* Segments of the default size are smaller if the memory of the mapping does not hold this number
 * of them. */
#define MIN_FIXED_SEGMENTS 32

#define EMPTY_RING(ring) { &(ring), &(ring) }
#define EMPTY_COMMON { .charges.limit = SIZE_MAX, .groups = EMPTY_RING(common.groups), \
		       .pagecache_runs = EMPTY_RING(common.pagecache_runs) }

static struct account common = EMPTY_COMMON;
static _Atomic uint32_t lock; /* around the list of accounts, which begins with `common` */

/* The frames of places with files are charged to accounts, but are no memory of the budget. */
static size_t add_files(size_t bytes)
{
	return bytes + place_file_bytes;
}

/* ---- The process ---- */

int budget_start(void)
{
	size_t least = MIN_FRAMES * sys_page(), ram = machine_ram(), memory = machine_memory();

	limit = config.mem_limit;
	if (!limit)
		limit = (size_t)((double)memory * config.mem_share);
	spare_memory = subtract_size(memory, limit) / SPARE_MEMORY_PART;
	/* The bound is the memory of the machine and not of the cgroup, because processes of
	 * several cgroups may share the limit. */
	if (limit < least || limit > ram)
		return fail(EINVAL, "UMMAP_MEM_LIMIT is \"%.100s\", which is %zu bytes: it must be "
			    "between %zu (%d pages) and the machine's memory, %zu",
			    config.limit_text ? config.limit_text : "not set", limit, least,
			    MIN_FRAMES, ram);
	if (config.seg_size_text && config.seg_size > limit / MIN_FRAMES)
		return fail(EINVAL, "cannot use UMMAP_SEG_SIZE='%s': %d segments must fit into the "
			    "limit, %zu bytes (UMMAP_MEM_LIMIT). Try at most %zu",
			    config.seg_size_text, MIN_FRAMES, limit, limit / MIN_FRAMES);
	return 0;
}

void budget_fork_child(void)
{
	lock = 0;
	pagecache = pinned = copies = 0;
	common = (struct account)EMPTY_COMMON;
}

void budget_set(size_t bytes, size_t share)
{
	budget = bytes;
	reachable = max_size(bytes, share);
	if (bytes > peak)
		peak = bytes;
}

size_t budget_limit(void)
{
	return limit;
}

size_t budget_bytes(void)
{
	return budget;
}

bool budget_can_exceed(size_t bytes)
{
	return reachable > bytes;
}

size_t budget_peak_excess(void)
{
	return subtract_size(frame_peak(), peak);
}

size_t budget_held(void)
{
	return frame_held() + pagecache + copies;
}

void budget_set_copies(size_t bytes)
{
	copies = bytes;
}

size_t budget_copies(void)
{
	return copies;
}

size_t budget_gift(size_t part, size_t n)
{
	size_t sum = copies, room = max_size(budget / COPIES_PART,
					     subtract_size(budget, frame_held() + pagecache));

	return sum > room ? (size_t)((double)part * room / sum) : part + (room - sum) / n;
}

bool budget_has_total_room(size_t bytes)
{
	return budget_held() + bytes <= budget;
}

size_t budget_frame_limit(size_t least)
{
	size_t cached = pagecache, frames = subtract_size(budget, cached + copies);

	return cached && budget_can_unmap_pagecache() ? frames : max_size(frames, least);
}

size_t budget_room_beside(size_t bytes, size_t least)
{
	return subtract_size(budget_frame_limit(least), bytes);
}

bool budget_has_room(size_t bytes, size_t least)
{
	return frame_held() + bytes <= budget_frame_limit(least);
}

size_t budget_excess(size_t least)
{
	return subtract_size(frame_held(), budget_frame_limit(least));
}

size_t budget_batch_bytes(size_t least)
{
	return budget_frame_limit(least) / BATCH_PART;
}

size_t budget_batch_limit(size_t least)
{
	return max_size(budget_frame_limit(least), frame_held() + budget_batch_bytes(least));
}

/* The bytes of page-cache mappings that a budget allows in any case; and if it also has frames. */
static size_t guaranteed_pagecache(size_t bytes, size_t pinned_bytes)
{
	return subtract_size(bytes, pinned_bytes) / GUARANTEED_PART;
}

static size_t allowed_pagecache(size_t bytes, size_t pinned_bytes, size_t frames)
{
	return max_size(guaranteed_pagecache(bytes, pinned_bytes), subtract_size(bytes, frames));
}

bool budget_can_unmap_pagecache(void)
{
	return pagecache > guaranteed_pagecache(budget, pinned);
}

bool budget_must_unmap_pagecache(void)
{
	return pagecache > allowed_pagecache(budget, pinned, frame_held() + copies);
}

size_t budget_smallest_segment(size_t size, size_t own_budget, size_t header)
{
	size_t memory = own_budget ? min_size(own_budget, limit) : limit, bytes = sys_page();

	while (size / bytes * header > memory / HEADERS_PART && bytes < DEFAULT_SEG_SIZE &&
	       2 * bytes * MIN_ADAPTING_SEGMENTS <= memory)
		bytes *= 2;
	return bytes;
}

size_t budget_default_segment(size_t own_budget)
{
	size_t memory = own_budget ? min_size(own_budget, limit) : limit, bytes = DEFAULT_SEG_SIZE;

	while (bytes * MIN_FIXED_SEGMENTS > memory && bytes > sys_page())
		bytes /= 2;
	return bytes;
}

void budget_warn(const char *name, size_t own_budget, size_t least, size_t seg_size)
{
	static _Atomic bool has_warned_own_small, has_warned_own_large, has_warned_small;

	if (own_budget && own_budget < least && !atomic_exchange(&has_warned_own_small, true))
		log_line(LOG_WARN, "start", "the budget of '%s', %zu bytes, is too small for %d "
			 "segments of %zu bytes, the minimum, so the mapping uses %zu bytes. Try "
			 "smaller segments, or a larger budget", name, own_budget,
			 (int)(least / seg_size), seg_size, least);
	if (own_budget != SIZE_MAX && own_budget > limit &&
	    !atomic_exchange(&has_warned_own_large, true))
		log_line(LOG_WARN, "start", "the budget of '%s', %zu bytes, is more than the "
			 "limit of all mappings, %zu bytes, which holds. Try a larger "
			 "UMMAP_MEM_LIMIT", name, own_budget, limit);
	if (least > reachable && !atomic_exchange(&has_warned_small, true))
		log_line(LOG_WARN, "start", "the budget, %zu bytes, is too small for %d segments "
			 "of %zu bytes, the minimum, so the mapping uses %zu bytes. Try smaller "
			 "segments, or a larger UMMAP_MEM_LIMIT", reachable,
			 (int)(least / seg_size), seg_size, least);
}

/* ---- The list of accounts ---- */

struct account *account_common(void)
{
	return &common;
}

void account_open(struct account *account)
{
	futex_lock(&lock);
	account->next = common.next;
	common.next = account;
	futex_unlock(&lock);
}

void account_close(struct account *account)
{
	struct account *at = &common;

	futex_lock(&lock);
	while (at->next != account)
		at = at->next;
	at->next = account->next;
	futex_unlock(&lock);
}

struct account *account_nth(size_t n)
{
	struct account *at = &common;

	futex_lock(&lock);
	for (; n > 0 && at; at = at->next)
		n--;
	futex_unlock(&lock);
	return at;
}

/* Returns by how many bytes an account exceeds its share. promised: the sum of all limits. */
static double excess(const struct account *account, double promised, size_t all)
{
	size_t bytes = min_size(account->charges.limit, all);
	double share = bytes;

	if (account == &common)
		share = all > promised ? all - promised : 0;
	else if (promised > all)
		share = bytes * (all / promised);
	return account->charges.frames - share;
}

struct account *account_choose_giver(struct account *mine, size_t least)
{
	struct account *giver = mine;
	size_t all = add_files(budget_frame_limit(least));
	double promised = 0, largest = -DBL_MAX;

	futex_lock(&lock);
	for (const struct account *a = common.next; a; a = a->next)
		promised += min_size(a->charges.limit, all);
	/* While no account exceeds its share, each one evicts its own segments. */
	if (account_can_give(mine, least)) {
		largest = excess(mine, promised, all);
		largest = largest > 0 ? largest : 0;
	}
	for (struct account *a = &common; a; a = a->next) {
		double bytes = excess(a, promised, all);

		if (a != mine && bytes > largest) {
			giver = a;
			largest = bytes;
		}
	}
	futex_unlock(&lock);
	return giver;
}

/* ---- Charges ---- */

size_t account_budget(const struct account *account)
{
	return min_size(account->charges.limit, add_files(budget));
}

size_t account_budget_within(const struct account *account, size_t most)
{
	return min_size(account_budget(account), most);
}

size_t account_most(const struct account *account)
{
	return min_size(account->charges.limit, limit);
}

bool account_charge(struct account *account, size_t bytes)
{
	size_t frames = account->charges.frames;

	do {
		if (frames + bytes > account_frame_limit(account))
			return false;
	} while (!atomic_compare_exchange_weak(&account->charges.frames, &frames, frames + bytes));
	return true;
}

bool account_charge_pagecache(struct account *account, size_t bytes)
{
	size_t mine = atomic_fetch_add(&account->charges.pagecache, bytes) + bytes;
	size_t all = atomic_fetch_add(&pagecache, bytes) + bytes;

	if (mine <= allowed_pagecache(account_budget(account), account->charges.pinned,
				      account->charges.frames) &&
	    all <= allowed_pagecache(budget, pinned, frame_held() + copies))
		return true;
	account_refund_pagecache(account, bytes);
	return false;
}

void account_refund_pagecache(struct account *account, size_t bytes)
{
	account->charges.pagecache -= bytes;
	pagecache -= bytes;
}

void account_count_pin(struct account *account, size_t bytes, bool is_pinned)
{
	/* Unsigned numbers wrap, so this adds or subtracts. */
	size_t change = is_pinned ? bytes : -bytes;

	account->charges.pinned += change;
	pinned += change;
}

/* ---- Questions of eviction and faults ---- */

bool account_exceeds_limit(const struct account *account, size_t least)
{
	return account->charges.frames > max_size(account_frame_limit(account), least);
}

/* The bytes of frames that a mapping of the account may hold within all limits. */
static size_t smaller_limit(const struct account *account, size_t least)
{
	return min_size(account->charges.limit, add_files(budget_frame_limit(least)));
}

bool account_fits_beside_pinned(const struct account *account, size_t bytes, size_t least)
{
	return account->charges.pinned + bytes <= smaller_limit(account, least);
}

bool account_lacks_clean_frames(const struct account *account, size_t least)
{
	size_t kept = account->dirty + least;

	return account->charges.frames < kept && kept > smaller_limit(account, least);
}

/* The number of bytes that may be held beyond a budget while writes fail. */
static size_t allowed_excess(size_t bytes)
{
	double excess_bytes = config.over_share * (double)bytes;

	if (config.over_bytes)
		return config.over_bytes;
	if (!config.over_is_default)
		return excess_bytes < (double)SIZE_MAX ? (size_t)excess_bytes : SIZE_MAX;
	return min_size(bytes, spare_memory);
}

/* Clean segments do not count, because they can be evicted. */
static bool exceeds_bound(size_t dirty, size_t bytes)
{
	return dirty > bytes && dirty - bytes > allowed_excess(bytes);
}

static size_t sum_of_dirty(void)
{
	size_t dirty = 0;

	futex_lock(&lock);
	for (const struct account *a = &common; a; a = a->next)
		dirty += a->dirty;
	futex_unlock(&lock);
	return dirty;
}

bool account_must_stall(const struct account *account, size_t bytes, size_t least)
{
	size_t all = budget_frame_limit(least), mine = max_size(account->charges.limit, least);

	return (frame_held() > all && exceeds_bound(sum_of_dirty() + bytes, add_files(all))) ||
	       (account->charges.frames > mine && exceeds_bound(account->dirty + bytes, mine));
}

bool account_can_pin(const struct account *account, size_t bytes, size_t least, size_t *most,
	size_t *already)
{
	bool has_own_limit;

	*most = max_size(reachable, least);
	has_own_limit = account->charges.limit < *most;
	if (has_own_limit)
		*most = account->charges.limit;
	*already = has_own_limit ? account->charges.pinned : pinned;
	return bytes <= *most && *already <= *most - bytes;
}

/* ---- Questions of page-cache mappings ---- */

bool account_allows_pagecache(const struct account *account, size_t seg_size)
{
	return account_budget(account) / seg_size >= MIN_PAGECACHE_SEGMENTS;
}

bool account_can_unmap_pagecache(const struct account *account)
{
	return account->charges.pagecache >
	       guaranteed_pagecache(account_budget(account), account->charges.pinned);
}

bool account_is_half_unused(const struct account *account)
{
	size_t held = account->charges.frames + account->charges.pagecache;

	return held <= account_budget(account) / 2 && budget_held() <= budget / 2;
}

/* ---- Questions of readahead ---- */

size_t account_readahead_window(const struct account *account, size_t most)
{
	return account_budget_within(account, most) / WINDOW_PART;
}

size_t account_readahead_room(const struct account *account, size_t most)
{
	size_t all = account_budget_within(account, most);
	size_t taken = account->ahead + account->coming;
	size_t ahead = subtract_size(all / MAX_AHEAD_PART, account->readahead_cut);

	return subtract_size(max_size(ahead, all / AHEAD_PART), taken);
}

size_t account_prefetch_room(const struct account *account, size_t most)
{
	size_t all = account_budget_within(account, most), coming = account->coming;
	size_t taken = account->charges.frames + account->charges.pagecache + coming;
	size_t unused = subtract_size(all + account->clean, taken);
	size_t more = subtract_size(all / MAX_AHEAD_PART, account->ahead + coming);

	return max_size(min_size(unused, all), min_size(more, all / PREFETCH_PART));
}

void account_cut_readahead(struct account *account, size_t bytes)
{
	account->readahead_cut = min_size(account->readahead_cut + bytes,
					  account_budget(account) / MAX_AHEAD_PART);
}

/* A change by another thread at the same time may be lost, which does no harm. */
void account_restore_readahead(struct account *account, size_t bytes)
{
	size_t cut = account->readahead_cut;

	if (cut)
		account->readahead_cut = subtract_size(cut, bytes);
}
