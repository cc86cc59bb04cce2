/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/header.h"

#include <errno.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

struct slot {
	uint64_t magic, number;
	unsigned char body[HEADER_BODY_MAX];
	uint64_t unused;
	uint64_t sum; /* checksum of all fields before it */
};

_Static_assert(sizeof(struct slot) == HEADER_SLOT, "a slot is a page");

uint64_t checksum(const void *bytes, size_t len, uint64_t seed)
{
	return XXH3_64bits_withSeed(bytes, len, seed);
}

static uint64_t slot_sum(const struct slot *slot)
{
	return checksum(slot, offsetof(struct slot, sum), slot->magic);
}

static bool is_empty(const struct slot *slot)
{
	static const struct slot zeros;

	return memcmp(slot, &zeros, sizeof(zeros)) == 0;
}

static bool is_whole(const struct header *h, const struct slot *slot, unsigned i)
{
	return (!h->magic || slot->magic == h->magic) && slot->number % 2 == i &&
	       slot->sum == slot_sum(slot);
}

int header_read(struct header *h, void *file, void *body, size_t len)
{
	uint64_t size = UINT64_MAX;
	unsigned empty = 0;
	struct slot slot;
	int err = h->calls->size ? h->calls->size(file, &size) : 0;

	h->number = 0;
	h->damaged = 0;
	/* The page cache may have slots that are not durable. */
	h->is_unflushed = true;
	for (unsigned i = 0; i < 2 && !err; i++) {
		err = h->calls->read(file, &slot, sizeof(slot), i * HEADER_SLOT);
		if (!err && is_empty(&slot))
			empty |= 1u << i;
		else if (!err && !is_whole(h, &slot, i))
			h->damaged |= 1u << i;
		else if (!err && slot.number > h->number) {
			h->number = slot.number;
			memcpy(body, slot.body, len);
		}
	}
	/* The first header is in slot 1, the second one in slot 0. */
	if (h->number > 1)
		h->damaged |= empty;
	if (err || h->number)
		return err;
	/* The first header is durable before slot 0 is written. */
	return size <= HEADER_BYTES && empty & 1 ? 1 : -ENODATA;
}

int header_write(struct header *h, void *file, const void *body, size_t len)
{
	struct slot slot = { .magic = h->magic };
	int err = h->is_unflushed ? h->calls->flush(file) : 0;

	if (err) {
		header_repeat(h);
		return err;
	}
	header_set_flushed(h);
	slot.number = h->number + 1;
	memcpy(slot.body, body, len);
	slot.sum = slot_sum(&slot);
	err = h->calls->write(file, &slot, sizeof(slot), slot.number % 2 * HEADER_SLOT);
	/* A failed write may leave a part of the slot, so the next write goes there, too. */
	if (!err) {
		h->number++;
		h->is_unflushed = true;
	}
	return err;
}

int header_write_durable(struct header *h, void *file, const void *body, size_t len)
{
	int err = header_write(h, file, body, len);

	if (err)
		return err;
	err = h->calls->flush(file);
	if (err)
		header_repeat(h);
	else
		header_set_flushed(h);
	return err;
}

int header_write_both(struct header *h, void *file, const void *body, size_t len)
{
	int err = header_write(h, file, body, len);

	return err ? err : header_write_durable(h, file, body, len);
}

int header_mend(struct header *h, void *file, const void *body, size_t len)
{
	int err = h->damaged ? header_write_durable(h, file, body, len) : 0;

	if (!err)
		h->damaged = 0;
	return err;
}
