/* SPDX-License-Identifier: BSD-3-Clause */
/* If the kernel's own accesses to memory of the library are not served, the memory is pinned around
 * a call. */
#include "umrun/pins.h"

#include "umrun/heap.h"
#include "umrun/list.h"
#include "umrun/next_calls.h"
#include "umrun/region.h"

#include <ummap.h>

static bool is_in_library(const void *buf, size_t len)
{
	if (!region_count || !len || list_is_locked_here())
		return false;
	return heap_left(buf) || list_has_range(buf, len);
}

bool is_held(const void *buf, size_t len)
{
	return (!region_kernel_can_access || region_private_count) && is_in_library(buf, len);
}

bool has_held_part(const struct iovec *iov, size_t count)
{
	for (size_t i = 0; i < count && region_count; i++) {
		if (is_held(iov[i].iov_base, iov[i].iov_len))
			return true;
	}
	return false;
}

size_t limit_part(const void *buf, size_t len)
{
	return len > MAX_HELD_BYTES && is_held(buf, len) ? MAX_HELD_BYTES : len;
}

static void pin_part(struct pins *pins, char *at, size_t len, int prot)
{
	if (pins->count == MAX_PINS)
		return;
	if (umpin(at, len, prot) == 0)
		pins->part[pins->count++] = (struct iovec){ at, len };
	else
		pins->is_refused |= errno == ENOMEM || errno == EAGAIN;
}

/* Pins the parts of the range that are in regions. */
static void pin_regions(struct pins *pins, char *from, size_t len, int prot)
{
	char *end = from + len;

	list_lock_read();
	for (const struct region *r = list_find(from, len); r; r = list_find_next(r, from, len)) {
		char *first = from > r->addr ? from : r->addr;
		char *last = end < r->addr + r->library_len ? end : r->addr + r->library_len;

		if (first < last)
			pin_part(pins, first, (size_t)(last - first), prot);
	}
	list_unlock();
}

static void pin_memory(struct pins *pins, char *buf, size_t len, int prot)
{
	int error = errno;
	size_t left = heap_left(buf);

	if (prot & PROT_WRITE)
		region_begin_stores(buf, len);
	if (left)
		pin_part(pins, buf, len < left ? len : left, prot);
	else
		pin_regions(pins, buf, len, prot);
	errno = error;
}

void pin(struct pins *pins, const void *buf, size_t len, int prot)
{
	*pins = (struct pins){ .count = 0 };
	if (is_held(buf, len))
		pin_memory(pins, (char *)(uintptr_t)buf, len, prot);
}

void unpin(const struct pins *pins)
{
	int error = errno;

	for (size_t i = 0; i < pins->count; i++)
		umunpin(pins->part[i].iov_base, pins->part[i].iov_len);
	errno = error;
}

/* Whether the whole range is memory of the library with these rights. */
static bool is_whole(const char *from, size_t len, int prot)
{
	const struct region *r;
	bool whole;

	if (heap_left(from))
		return heap_left(from) >= len;
	list_lock_read();
	r = list_find(from, len);
	whole = r && from >= r->addr && len <= (size_t)(r->addr + r->library_len - from) &&
		(r->is_writable || !(prot & PROT_WRITE));
	list_unlock();
	return whole;
}

void *pin_or_copy(struct pins *pins, void *buf, size_t len, int prot)
{
	int error = errno;
	void *copy = MAP_FAILED;

	*pins = (struct pins){ .count = 0 };
	if (!is_in_library(buf, len))
		return buf;
	pin_memory(pins, buf, len, prot);
	if (pins->is_refused && is_whole(buf, len, prot))
		copy = map_private(len);
	errno = error;
	if (copy == MAP_FAILED)
		return buf;
	if (!(prot & PROT_WRITE))
		memcpy(copy, buf, len);
	return pins->copy = copy;
}

void unpin_or_fill(const struct pins *pins, void *buf, size_t len, size_t filled)
{
	int error = errno;

	if (pins->copy) {
		memcpy(buf, pins->copy, filled < len ? filled : len);
		kernel_munmap(pins->copy, len);
	}
	errno = error;
	unpin(pins);
}
