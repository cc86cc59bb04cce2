/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes into the frame of a segment that was absent: the bytes of its store, or zeros. The frame is at home and
 * the segment locked by the caller. While the store works, the thread makes up for the frame that it took.
 */
#include "paging/fill.h"

#include "paging/evict.h"

#include <string.h>

int fill_make_writable(struct set *set, uint32_t frame)
{
	int err;

	do
		err = frame_make_writable(frame, 1);
	while (err == -ENOMEM && evict_shed(set));
	return err;
}

bool fill_request(struct set *set, size_t i, struct seg *s, uint32_t frame, struct ummap_io *io)
{
	const struct target *t = &set->targets[seg_target(s)];
	size_t len = set_len(set, i), read = set_reads(set, s) ? len : 0;
	char *home = frame_home(frame);

	if (!frame_use_blank(frame))
		memset(home + read, 0, set_view_len(set, i) - read);
	if (!read)
		return false;
	*io = (struct ummap_io){ .op = UMMAP_IO_READ, .buf = home, .len = len,
				 .off = t->offset + ((uint64_t)i << set->shift), .owner = s };
	return true;
}

static void resupply(void *set)
{
	engine_hand_off();
	evict_resupply(set, 1);
}

int fill(struct set *set, size_t i, struct seg *s, uint32_t frame)
{
	struct ummap_io io;
	struct store *store;
	int err = fill_make_writable(set, frame);

	if (err || !fill_request(set, i, s, frame, &io))
		return err;
	store = set->targets[seg_target(s)].store;
	if (!io_async(store))
		engine_hand_off();
	return io_run_while(store, &io, 1, false, &set->stat.io, resupply, set);
}
