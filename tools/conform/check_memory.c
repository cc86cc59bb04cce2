/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of pages of the store itself: mapped in place, and from the page cache. */
#include "common/memory_calls.h"
#include "conform.h"

#include <string.h>
#include <sys/mman.h>

/* Maps the store in memory of the checker. Returns NULL with the reason in *err if that fails. */
static unsigned char *map_store(struct handle *h, size_t len, uint64_t off, int prot, int *err)
{
	void *at = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	expect(at != MAP_FAILED, "there is no address space for %zu bytes", len);
	doing("map of %zu bytes at %ju", len, (uintmax_t)off);
	*err = h->driver.map(h->h, at, len, off, prot);
	return *err ? NULL : at;
}

void check_map(void)
{
	struct handle h;
	size_t len = facts->size & ~(PAGE - 1);
	int err, prot = facts->writable ? PROT_READ | PROT_WRITE : PROT_READ;
	unsigned char *at;

	handle_fill(&h);
	if (!h.driver.map)
		skip("map is NULL");
	if (facts->writable)
		handle_flush(&h);
	at = map_store(&h, len, 0, prot, &err);
	if (!at)
		skip("this store cannot be put in place: %s", error_name(err));
	shadow_compare(at, len, 0, "the pages that map has put in place");
	for (int i = 0; i < 200 && facts->writable; i++) {
		size_t n = 1 + random_below(500), off = random_below(len - n);

		random_fill(at + off, n);
		shadow_write(off, at + off, n);
		if (h.driver.persist && i % 10 == 0) {
			err = h.driver.persist(h.h, at + off, n);
			expect(err == 0, "persist of %zu bytes: %s", n, error_name(err));
		}
	}
	if (h.driver.persist && facts->writable)
		expect(h.driver.persist(h.h, at, len) == 0, "persist of the whole store fails");
	shadow_compare_all(&h, "after stores to the pages that map has put in place");
	raw_munmap(at, len);
	handle_close(&h);
}

#define NOTHING 0xa5 /* value of all bytes where nothing was mapped */

/* Lets the driver map pages of the store over memory whose bytes are all NOTHING. Returns the
 * result of the driver. */
static int map_pages(struct handle *h, unsigned char *at, size_t len, uint64_t off)
{
	int got;

	expect(raw_mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
			-1, 0) == at,
	       "there is no memory for %zu bytes", len);
	memset(at, NOTHING, len);
	doing("map_pagecache of %zu bytes at %ju", len, (uintmax_t)off);
	got = h->driver.map_pagecache(h->h, at, len, off);
	expect(got <= 1, "map_pagecache gives %d: it must give 1, 0 or a negative errno", got);
	for (size_t i = 0; got < 1 && i < len; i++)
		expect(at[i] == NOTHING, "%s has changed memory, but gives %d", verdict->doing,
		       got);
	return got;
}

/* Mapped pages must show the store, also after it changes. A call that maps nothing must not change
 * the memory. */
void check_pagecache(void)
{
	struct handle h;
	size_t pages = facts->size / PAGE, mapped = 0;
	unsigned char *at = memory(pages * PAGE);

	handle_fill(&h);
	if (!h.driver.map_pagecache || !handle_can(&h, UMMAP_CAP_PAGECACHE))
		skip(h.driver.map_pagecache ? "UMMAP_CAP_PAGECACHE is not set" :
					      "map_pagecache is NULL");
	for (int i = 0; i < 40; i++) {
		size_t first = random_below(pages), n = 1 + random_below(pages - first),
		       off = first * PAGE, len = n * PAGE;
		size_t at_byte = off + random_below(len);
		unsigned char byte = (unsigned char)random_number();

		if (map_pages(&h, at, len, off) < 1)
			continue;
		mapped++;
		shadow_compare(at, len, off, "what map_pagecache has put in place");
		if (!facts->writable)
			continue;
		handle_write(&h, &byte, 1, at_byte);
		shadow_write(at_byte, &byte, 1);
		shadow_compare(at, len, off, "a page-cache mapping after a write to it");
	}
	expect(map_pages(&h, at, PAGE, (pages + 1) * PAGE) < 1,
		"map_pagecache maps pages from behind the end of the store");
	handle_close(&h);
	if (!mapped)
		skip("the page cache never had the pages that were to be mapped");
}
