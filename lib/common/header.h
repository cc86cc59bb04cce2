/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The header of a file: two slots of a page with a number and a checksum, which are written in
 * turn. The slot with the higher number counts. A slot is written only while the other one is
 * durable, so a crash at any time leaves one of them whole. The functions take no lock and allocate
 * nothing.
 */
#ifndef COMMON_HEADER_H
#define COMMON_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEADER_SLOT ((size_t)4096)
#define HEADER_BYTES (2 * HEADER_SLOT)
#define HEADER_BODY_MAX (HEADER_SLOT - 32)

/* XXH3 with 64 bits. */
uint64_t checksum(const void *bytes, size_t len, uint64_t seed);

/* Access to the file. Each call returns 0 or a negative errno value. */
struct header_calls {
	int (*read)(void *file, void *buf, size_t len, uint64_t off); /* zeros behind the end */
	int (*write)(void *file, const void *buf, size_t len, uint64_t off);
	int (*flush)(void *file);
	int (*size)(void *file, uint64_t *size); /* NULL: header_read never finds a new file */
};

struct header {
	const struct header_calls *calls;
	uint64_t magic;    /* kind of file and version of its format; 0: header_read accepts any */
	uint64_t number;   /* number of the newer slot; 0: none was written */
	unsigned damaged;  /* bits 0 and 1: slots that header_read found incomplete */
	bool is_unflushed; /* whether the newer slot may not be durable */
};

/*
 * Reads the first len bytes of the newer body. Returns 0; 1 if the file is new, or a crash has
 * interrupted its creation; -ENODATA if neither slot is whole; or another negative errno value.
 */
int header_read(struct header *h, void *file, void *body, size_t len);
/* Writes the older slot, which becomes the newer one. The next flush of the file makes it durable.
 * If the newer slot may not be durable yet, the file is flushed first. */
int header_write(struct header *h, void *file, const void *body, size_t len);
/* Writes the older slot, and flushes the file. */
int header_write_durable(struct header *h, void *file, const void *body, size_t len);
/* Writes both slots, and flushes the file. */
int header_write_both(struct header *h, void *file, const void *body, size_t len);
/*
 * Makes a damaged slot whole, and flushes the file. The damaged slot may lack only a part of a
 * later header, which the next write could complete: so the caller mends the header before it
 * writes anything that such a header would describe wrongly. The newer slot must be durable.
 */
int header_mend(struct header *h, void *file, const void *body, size_t len);

/* The caller has flushed the file. */
static inline void header_set_flushed(struct header *h)
{
	h->is_unflushed = false;
}

/* Makes the next write replace the newer slot unless that is durable: it was not flushed yet, or a
 * flush has failed and may have lost it. */
static inline void header_repeat(struct header *h)
{
	h->number -= h->is_unflushed;
	h->is_unflushed = false;
}

#endif
