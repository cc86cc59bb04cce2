/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks through mappings, which use the driver as applications do. */
#include "conform.h"

#include <string.h>
#include <sys/mman.h>
#include <ummap.h>

#define SEGMENT (4 * PAGE)
#define STORES 20000

static unsigned char *map_store(int prot, size_t size, off_t offset)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *base = NULL;

	attr.seg_size = SEGMENT;
	attr.budget = size / 4;
	attr.flags = prot & PROT_WRITE && facts->creates ? UMMAP_CREATE : 0;
	doing("mapping %zu bytes at %jd, with a quarter of them in memory", size, (intmax_t)offset);
	expect(ummap_open(options.uri, size, offset, prot, &attr, &base) == 0, "%s: %s",
	       verdict->doing, umerrormsg());
	return base;
}

static void unmap_store(unsigned char *base)
{
	doing("unmapping");
	expect(umunmap(base, 1) == 0, "umunmap: %s", umerrormsg());
}

static void compare_view(const unsigned char *base, size_t size, off_t offset, const char *when)
{
	doing("loading from a mapping, %s", when);
	shadow_compare(base, size, (uint64_t)offset, when);
}

/* Stores at random offsets, some of them adjacent, with occasional syncs. */
static void store_at_random(unsigned char *base, size_t size, off_t offset)
{
	size_t at = 0;

	for (int i = 0; i < STORES; i++) {
		uint64_t value = random_number();

		doing("storing through a mapping");
		at = i % 4 ? at + sizeof(value) : random_below(size);
		at = at < size - sizeof(value) ? at : 0;
		memcpy(base + at, &value, sizeof(value));
		shadow_write((uint64_t)offset + at, &value, sizeof(value));
		if (i % (STORES / 4) == 0)
			expect(umsync(base, i % (STORES / 2) == 0) == 0, "umsync: %s",
			       umerrormsg());
	}
	expect(umsync(base, 0) == 0, "umsync: %s", umerrormsg());
}

static void use_mapping(size_t size, off_t offset)
{
	struct handle h;
	unsigned char *base;

	handle_fill(&h);
	if (facts->writable)
		handle_flush(&h);
	handle_close(&h);
	if (options.forgets || options.swallows)
		memset(shadow, 0, facts->size);
	base = map_store(PROT_READ | (facts->writable ? PROT_WRITE : 0), size, offset);
	compare_view(base, size, offset, "through a new mapping");
	if (facts->writable && !options.swallows)
		store_at_random(base, size, offset);
	compare_view(base, size, offset, "after random stores");
	unmap_store(base);
	if (options.forgets)
		return;
	base = map_store(PROT_READ, size, offset);
	compare_view(base, size, offset, "through a mapping of what another one has left");
	unmap_store(base);
	handle_open_readonly(&h);
	shadow_compare_all(&h, "by a handle, after a mapping wrote it");
	handle_close(&h);
}

void check_mapping(void)
{
	use_mapping(facts->size, 0);
}

void check_mapping_offset(void)
{
	use_mapping(facts->size - 9999, 4099);
}
