/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A segment header has no room to say whose it is, and lists of a group mix those of several mappings. The
 * table is searched on the way of a fault, and changes only when mappings come, go and grow. No lock of its own.
 */
#include "cache/owner.h"

#include "base/sys.h"

#include <string.h>
#include <sys/mman.h>

struct span {
	uintptr_t from, to;
	void *owner;
};

static struct span *spans;  /* by address */
static size_t count, capacity;

/* The first span that ends behind p. */
static size_t find(uintptr_t p)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (spans[mid].to <= p)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool grow(void)
{
	size_t more = capacity ? capacity * 2 : 256;
	struct span *bigger = sys_lazy(more * sizeof(*bigger));

	if (!bigger)
		return false;
	if (spans) {
		memcpy(bigger, spans, count * sizeof(*spans));
		munmap(spans, capacity * sizeof(*spans));
	}
	spans = bigger;
	capacity = more;
	return true;
}

bool owner_add(const void *from, size_t len, void *owner)
{
	size_t i;

	if (count == capacity && !grow())
		return false;
	i = find((uintptr_t)from);
	memmove(&spans[i + 1], &spans[i], (count - i) * sizeof(*spans));
	spans[i] = (struct span){ (uintptr_t)from, (uintptr_t)from + len, owner };
	count++;
	return true;
}

void owner_drop(const void *owner)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		if (spans[i].owner != owner)
			spans[kept++] = spans[i];
	}
	count = kept;
}

void *owner_of(const void *p)
{
	return spans[find((uintptr_t)p)].owner;
}

void owner_forget(void)
{
	count = 0;
}
