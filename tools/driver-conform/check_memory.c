/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of memory that a driver registers, and of a store's own pages in place. */
#include "checks.h"
#include "conform.h"

#include <sys/mman.h>

/* With or without success of `buffers`, transfers work in and outside of the memory that it was told of. */
void check_buffers(void)
{
	struct handle h;
	size_t len = facts->size / 2;
	unsigned char *inside[2], *outside = memory(len);
	int err;

	handle_fill(&h);
	if (!h.driver.buffers)
		skip("buffers is NULL");
	for (int i = 0; i < 2; i++) {
		inside[i] = memory((size_t)2 << 20);
		doing("buffers, of %d MiB, for the %s time", 2, i ? "second" : "first");
		err = h.driver.buffers(h.h, inside[i], (size_t)2 << 20);
		expect(err <= 0, "buffers gives %d: it must give 0 or a negative errno", err);
	}
	len = len < (size_t)1 << 20 ? len : (size_t)1 << 20;
	for (int i = 0; i < 30; i++) {
		unsigned char *buf = i % 3 == 2 ? outside : inside[i % 3] + i * 8;
		size_t n = 1 + random_below(len), off = random_below(facts->size - n);

		doing("a read of %zu bytes at %zu, %s the memory given to buffers", n, off, i % 3 == 2 ? "outside" : "in");
		handle_read(&h, buf, n, off);
		shadow_compare(buf, n, off, verdict->doing);
		if (!facts->writable)
			continue;
		random_fill(buf, n);
		handle_write(&h, buf, n, off);
		shadow_write(off, buf, n);
	}
	shadow_compare_all(&h, "after transfers with registered memory");
	handle_close(&h);
}

/* Puts the store at a place of the checker's; NULL with the reason in *err. */
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
	munmap(at, len);
	handle_close(&h);
}
