/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Absent -> standby, before anybody asks. What is loaded together stands in one piece at home, too, as far as that can
 * be had, so that it can appear by one call. Segments are trylocked only, and the lock for taking frames is held for no
 * I/O. Evicts nothing that a fault has not asked to go.
 */
#include "prefetch.h"

#include "appear.h"
#include "evict.h"
#include "fill.h"

#include <string.h>

static bool is_wanted(const struct set *set, const struct seg *s)
{
	return !seg_has(s, SEG_VALID) && !seg_has(s, SEG_LENT) && set_reads(set, s);
}

/* Locks absent segments that are read from one target: `count` at most, from i on, every `step`th. Returns how many. */
static unsigned lock_absent(struct set *set, size_t i, size_t count, size_t step, struct seg **list)
{
	size_t most = min_size(min_size(count, PIECE_MOST), max_size(HUGE_PAGE >> set->shift, 1));
	unsigned n = 0;

	for (; n < most; n++, i += step) {
		struct seg *s = set_seg(set, i);

		if (!is_wanted(set, s) || !seg_trylock(s))
			break;
		if (!is_wanted(set, s) || (n && seg_target(s) != seg_target(list[0]))) {
			seg_unlock(s);
			break;
		}
		list[n] = s;
	}
	return n;
}

/* Makes frames writable that are sorted: one call for each stretch. Returns for how many. */
static unsigned make_writable(const uint32_t *frames, unsigned n)
{
	unsigned first, end;

	for (first = 0; first < n; first = end) {
		for (end = first + 1; end < n && frame_follows(frames[end - 1], frames[end]); end++)
			;
		if (frame_make_writable(frames[first], end - first) < 0)
			return first;
	}
	return n;
}

/* Where n frames that are a huge page begin among `got` sorted ones; `got`: nowhere. */
static unsigned find_block(const uint32_t *frames, unsigned got, unsigned n)
{
	for (unsigned first = 0, k; first + n <= got; first += k) {
		for (k = 1; k < n && frame_follows(frames[first + k - 1], frames[first + k]); k++)
			;
		if (k == n && frames[first] % n == 0)
			return first;
	}
	return got;
}

/* Puts a frame among `got` sorted ones. */
static void sort_in(uint32_t *frames, unsigned got, uint32_t frame)
{
	for (; got > 0 && frames[got - 1] > frame; got--)
		frames[got] = frames[got - 1];
	frames[got] = frame;
}

/* Pieces of such a mapping do not stay whole: what is stored to is written, and leaves, by itself. */
static bool is_stored_to(const struct set *set)
{
	return set->stat.write_faults || set->stat.upgrade_faults;
}

/* Takes up to n frames, sorted. Where n are a huge page, some more are tried for one that is whole; what was left of
 * others goes to whoever needs single ones. */
static unsigned gather_frames(struct set *set, uint32_t *frames, unsigned n, bool whole)
{
	unsigned most = whole ? 2 * n - 1 : n, got = 0, first = 0;
	uint32_t block = whole ? evict_take_block(set) : FRAME_NONE;

	for (; block != FRAME_NONE && got < n; got++)
		frames[got] = block + got;
	while (block == FRAME_NONE && got < most) {
		uint32_t frame = evict_take_frame(set, true);

		if (frame == FRAME_NONE)
			break;
		sort_in(frames, got++, frame);
		first = whole ? find_block(frames, got, n) : got;
		if (first < got)
			break;
	}
	first = first < got ? first : 0;
	for (unsigned k = 0; k < got; k++) {
		if (k < first || k >= first + n)
			evict_return_frame(set, frames[k]);
	}
	got = got - first < n ? got - first : n;
	memmove(frames, frames + first, got * sizeof(*frames));
	return got;
}

/* Up to n frames that may be written, in the order in which they stand at home; *full: there are no more. */
static unsigned take_frames(struct set *set, uint32_t *frames, unsigned n, bool *full)
{
	bool whole = n > 1 && frame_block(set_frames(set), set->seg_size, evict_limit(set)) == n;
	unsigned got, ok;

	/* One at a time, so that what one takes is of one piece. */
	futex_lock(&set->take_lock);
	got = gather_frames(set, frames, n, whole);
	futex_unlock(&set->take_lock);
	if (whole && got == n && find_block(frames, got, n) == 0 && !is_stored_to(set))
		frame_mend(frames[0], n);
	ok = make_writable(frames, got);
	*full = ok < n;
	while (got > ok)
		evict_return_frame(set, frames[--got]);
	return got;
}

/* Requests for absent segments, which are locked then. Returns how many. */
static unsigned prepare_batch(struct set *set, size_t i, size_t count, size_t step, struct ummap_io *io, bool *full)
{
	struct seg *list[PIECE_MOST];
	uint32_t frames[2 * PIECE_MOST];
	unsigned locked = lock_absent(set, i, count, step, list), n = take_frames(set, frames, locked, full);

	for (unsigned k = locked; k-- > n;)
		seg_unlock(list[k]);
	for (unsigned k = 0; k < n; k++) {
		list[k]->frame = frames[k];
		fill_request(set, i + k * step, list[k], frames[k], &io[k]);
	}
	return n;
}

/* Requests that follow one another, in the store and at home, become one, which stands where the first one stood, and
 * is run for all of them. */
static void run_joined(struct set *set, struct ummap_io *io, unsigned n)
{
	struct ummap_io joined[PIECE_MOST];
	unsigned of[PIECE_MOST], last = 0;

	for (unsigned k = 0; k < n; k++) {
		struct ummap_io *j = &joined[last];

		if (k && (char *)j->buf + j->len == io[k].buf && j->off + j->len == io[k].off) {
			j->len += io[k].len;
		} else {
			last += k > 0;
			joined[last] = io[k];
		}
		of[k] = last;
	}
	io_run(set->targets[seg_target(io->owner)].store, joined, last + 1, true, &set->stat.io);
	for (unsigned k = 0; k < n; k++)
		io[k].res = joined[of[k]].res;
}

/* Loaded, or not: whoever needs one that failed will meet the error himself. */
static void stand_by(struct set *set, size_t i, struct seg *s, int res)
{
	if (res == 0) {
		seg_change(s, 0, SEG_VALID | SEG_STANDBY | SEG_AHEAD);
		set_mark(set->touched, i);
		cache_stand(&set->member, s, STANDBY_AHEAD);
		add(set->stat.ahead_loads, 1);
	} else {
		evict_return_frame(set, s->frame);
	}
	seg_unlock(s);
}

bool prefetch(struct set *set, size_t first, size_t count, size_t step)
{
	struct ummap_io io[PIECE_MOST];
	bool full = false;

	while (count > 0 && !full && !set->frozen) {
		unsigned n = prepare_batch(set, first, count, step, io, &full), skip = n ? n : 1;

		if (n)
			run_joined(set, io, n);
		for (unsigned k = 0; k < n; k++)
			stand_by(set, first + k * step, io[k].owner, io[k].res);
		first += skip * step;
		count -= skip;
	}
	return !full;
}
