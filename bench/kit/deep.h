/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The deep floor: a bare loop around io_uring that always has `depth` requests of one segment in flight, with
 * O_DIRECT, on registered huge pages and a registered file. It knows what comes next, which no fault does; so
 * this is what the device gives to whoever asks in time.
 */
#ifndef BENCH_DEEP_H
#define BENCH_DEEP_H

#include <liburing.h>

#include "kit/data.h"

enum { DEEP_MOST = 32 };

enum deep_state { DEEP_FREE, DEEP_READING, DEEP_READY, DEEP_WRITING };

/* One thread's ring; buffer i % depth belongs to turn i. */
struct deep {
	struct io_uring ring;
	char *buffers;
	unsigned depth;
	bool registered;
	size_t seg;
	size_t sent;                      /* turns whose read was sent */
	unsigned flying;
	enum deep_state state[DEEP_MOST];
};

struct deep *deep_create(int fd, size_t seg, unsigned depth);

/* The buffer of this turn: filled if `reads`, else to be filled. */
char *deep_enter(struct deep *d, const uint32_t *order, size_t turn, size_t turns, bool reads);

void deep_leave(struct deep *d, const uint32_t *order, size_t turn, bool writes);

void deep_finish(struct deep *d);

#endif
