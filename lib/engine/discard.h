/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Discards the contents of many places together. Each time that the kernel removes pages, it
 * interrupts the other processors, which takes longer than all other work for a small place.
 */
#ifndef DISCARD_H
#define DISCARD_H

#include <stddef.h>
#include <sys/uio.h>

#define DISCARD_MAX_PLACES 32
#define DISCARD_MAX_BYTES ((size_t)512 << 10)

/* Places of private memory whose contents will be discarded. */
struct discard_list {
	struct iovec places[DISCARD_MAX_PLACES];
	unsigned n;
	size_t len; /* bytes of all places */
};

/* Adds a place. If the list is full, or has DISCARD_MAX_BYTES, discards all of its places. */
void discard_later(struct discard_list *list, void *p, size_t len);
void discard_all(struct discard_list *list);

/*
 * Between these two calls, frames that the calling thread maps and unmaps may leave copies, and
 * places that it discards may keep copies. They are discarded together at the end, or earlier when
 * copies of `most` bytes are left. Until then the caller keeps their segments locked, and discarded
 * segments keep their frames. The calls do not nest.
 */
void discard_batch_begin(size_t most);
void discard_batch_end(void);
/* Discards the copy that a frame leaves behind: at once, or at the end of the batch. Such copies
 * count as memory that is held twice. */
void discard_copy(char *at, size_t len);
/* Discards a place: at once, or at the end of the batch. Returns 0 or -errno. */
int discard_place(char *at, size_t len);

/* Prepares discarding several places by one call. In a forked child, discard_forget. */
void discard_start(void);
void discard_forget(void);

#endif
