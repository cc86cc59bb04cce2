/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The deep floor: an io_uring loop that always has `depth` requests of one segment in flight, with
 * O_DIRECT, registered huge pages and a registered file. It knows the next segments, which no fault
 * does, so it shows what the device can do for a program that requests data in time.
 */
#ifndef BENCH_DEEP_H
#define BENCH_DEEP_H

#include <liburing.h>

#include "kit/data.h"

enum { MAX_DEPTH = 32 };

enum deep_state { DEEP_FREE, DEEP_READING, DEEP_READY, DEEP_WRITING };

/* Ring of one thread. Buffer i % depth belongs to turn i. */
struct deep {
	struct io_uring ring;
	char *buffers;
	unsigned depth;
	bool registered;
	size_t seg;
	size_t sent;                      /* number of turns whose reads were submitted */
	unsigned flying;
	enum deep_state state[MAX_DEPTH];
};

struct deep *deep_create(int fd, size_t seg, unsigned depth);

/* Returns the buffer of this turn: filled if `reads`, otherwise to be filled. */
char *deep_enter(struct deep *d, const uint32_t *order, size_t turn, size_t turns, bool reads);

void deep_leave(struct deep *d, const uint32_t *order, size_t turn, bool writes);

void deep_finish(struct deep *d);

#endif
