/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The header of a file. It has two slots of 4 KiB, each with a number and a checksum, which are
 * written alternately. The slot with the higher number is the newer one, and its body is valid. A
 * slot is written only while the other slot is durable, so a crash at any time leaves at least one
 * slot whole. The functions take no lock and allocate nothing.
 */
#ifndef COMMON_HEADER_H
#define COMMON_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEADER_SLOT ((size_t)4096)
#define HEADER_BYTES (2 * HEADER_SLOT)
#define HEADER_BODY_MAX (HEADER_SLOT - 32)

/* Returns the XXH3 checksum of 64 bits. */
uint64_t checksum(const void *bytes, size_t len, uint64_t seed);

/* Access to the file. Each call returns 0 or a negative errno value. */
struct header_calls {
	int (*read)(void *file, void *buf, size_t len, uint64_t off); /* zeros beyond the end */
	int (*write)(void *file, const void *buf, size_t len, uint64_t off);
	int (*flush)(void *file);
	int (*size)(void *file, uint64_t *size); /* NULL: header_read never finds a new file */
};

struct header {
	const struct header_calls *calls;
	uint64_t magic;    /* kind of file and version of its format; 0: header_read accepts any */
	uint64_t number;   /* number of the newer slot; 0: no slot was written */
	unsigned damaged;  /* bits 0 and 1: slots that header_read found incomplete */
	bool is_unflushed; /* whether the newer slot may not be durable */
};

/*
 * Reads the first len bytes of the body of the newer slot. Returns 0 on success; 1 if the file is
 * new or a crash has interrupted its creation; -ENODATA if neither slot is whole; or another
 * negative errno value.
 */
int header_read(struct header *h, void *file, void *body, size_t len);
/* Writes the older slot, which then is the newer slot. The next flush of the file makes the slot
 * durable. If the present newer slot may not be durable, the function first flushes the file. */
int header_write(struct header *h, void *file, const void *body, size_t len);
/* Calls header_write, and flushes the file. */
int header_write_durable(struct header *h, void *file, const void *body, size_t len);
/* Writes both slots, and flushes the file. */
int header_write_both(struct header *h, void *file, const void *body, size_t len);
/*
 * Writes a damaged slot again, and flushes the file. The newer slot must be durable. A damaged slot
 * may contain all but a part of a later header, and the next write could complete that header.
 * Therefore, the caller must mend the header before it writes data that contradicts a later header.
 */
int header_mend(struct header *h, void *file, const void *body, size_t len);

/* Notes that the caller has flushed the file. */
static inline void header_set_flushed(struct header *h)
{
	h->is_unflushed = false;
}

/* If the newer slot may not be durable, makes the next write replace this slot. Called before a
 * repeated write, and after a failed flush, which may have lost the slot. */
static inline void header_repeat(struct header *h)
{
	h->number -= h->is_unflushed;
	h->is_unflushed = false;
}

#endif
