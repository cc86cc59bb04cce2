/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The staging buffer: copies of writes that the driver has accepted and that are not in the file
 * yet, in the order in which they came. The caller locks. Only one thread at a time takes or
 * removes writes; other threads may add some in the meantime.
 */
#ifndef MPIIO_STAGING_H
#define MPIIO_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct staged_write {
	struct staged_write *next;
	uint64_t off;  /* offset in the store */
	size_t len;    /* number of bytes */
	char data[];   /* the bytes */
};

struct staging {
	struct staged_write *first, **end; /* the list, and the pointer behind its last element */
	size_t count;      /* number of writes */
	size_t bytes;      /* bytes of all writes */
	size_t taken;      /* the first writes, which are being written: they must not change */
	uint64_t top;      /* all writes end at this offset or before it */
	uint64_t removals; /* number of removed writes, for reads that the file may have missed */
};

void staging_init(struct staging *s);
void staging_free(struct staging *s);

/* Adds a copy, which replaces the writes that it covers. Returns false without memory. */
bool staging_add(struct staging *s, const void *from, size_t len, uint64_t off);

/* Copies the staged bytes of [off, off + len), which are newer than those of the file, to `to`. */
void staging_overlay(const struct staging *s, char *to, size_t len, uint64_t off);

/* Stores the oldest writes in `list`, in order of offsets: those before the first one that overlaps
 * an older one, and not many more than max_bytes. Returns their number, at most s->count. */
size_t staging_take(struct staging *s, struct staged_write **list, size_t max_bytes);

/* Ends what staging_take has begun. are_written: the writes are in the file, and are removed. */
void staging_end_take(struct staging *s, bool are_written);

#endif
