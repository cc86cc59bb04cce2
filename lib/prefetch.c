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

static bool is_wanted(const struct set *set, const struct seg *s)
{
	return !seg_has(s, SEG_VALID) && !seg_has(s, SEG_LENT) && set_reads(set, s);
}

/* Locks absent segments that are read from one target: `count` at most, from i on, every `step`th. Returns how many. */
static unsigned lock_absent(struct set *set, size_t i, size_t count, size_t step, struct seg **list)
{
	size_t most = min_size(min_size(count, APPEAR_MOST), max_size(HUGE_PAGE >> set->shift, 1));
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

/* Up to n frames that may be written, in the order in which they stand at home; *full: there are no more. */
static unsigned take_frames(struct set *set, uint32_t *frames, unsigned n, bool *full)
{
	unsigned got = 0, k;

	/* One at a time, so that what one takes is of one piece. */
	futex_lock(&set->take_lock);
	while (got < n && (frames[got] = evict_take_frame(set, true)) != FRAME_NONE) {
		uint32_t frame = frames[got];

		for (k = got++; k > 0 && frames[k - 1] > frame; k--)
			frames[k] = frames[k - 1];
		frames[k] = frame;
	}
	futex_unlock(&set->take_lock);
	k = make_writable(frames, got);
	*full = k < n;
	while (got > k)
		evict_return_frame(set, frames[--got]);
	return got;
}

/* Requests for absent segments, which are locked then. Returns how many. */
static unsigned prepare_batch(struct set *set, size_t i, size_t count, size_t step, struct ummap_io *io, bool *full)
{
	struct seg *list[APPEAR_MOST];
	uint32_t frames[APPEAR_MOST];
	unsigned locked = lock_absent(set, i, count, step, list), n = take_frames(set, frames, locked, full);

	for (unsigned k = locked; k-- > n;)
		seg_unlock(list[k]);
	for (unsigned k = 0; k < n; k++) {
		list[k]->frame = frames[k];
		fill_request(set, i + k * step, list[k], frames[k], &io[k]);
	}
	return n;
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
	struct ummap_io io[APPEAR_MOST];
	bool full = false;

	while (count > 0 && !full && !set->frozen) {
		unsigned n = prepare_batch(set, first, count, step, io, &full), skip = n ? n : 1;

		if (n)
			io_run(set->targets[seg_target(io->owner)].store, io, n, true, &set->stat.io);
		for (unsigned k = 0; k < n; k++)
			stand_by(set, first + k * step, io[k].owner, io[k].res);
		first += skip * step;
		count -= skip;
	}
	return !full;
}
