/* SPDX-License-Identifier: BSD-3-Clause */
/* What the store must hold, memory for transfers, and numbers that a seed repeats. */
#include "conform.h"

#include <string.h>
#include <sys/mman.h>

#define PIECE (100 * KIB + 1)   /* of reading all: off every alignment */

unsigned char *shadow;

static uint64_t state;

void shadow_write(uint64_t off, const void *buf, size_t len)
{
	if (!options.swallows)
		memcpy(shadow + off, buf, len);
}

void shadow_compare(const void *buf, size_t len, uint64_t off, const char *what)
{
	const unsigned char *got = buf;

	if (memcmp(got, shadow + off, len) == 0)
		return;
	for (size_t i = 0; i < len; i++)
		expect(got[i] == shadow[off + i], "%s: byte %ju is 0x%02x and should be 0x%02x", what,
		       (uintmax_t)(off + i), got[i], shadow[off + i]);
}

void shadow_compare_all(struct handle *h, const char *when)
{
	static unsigned char *buf;
	size_t len;

	if (!buf)
		buf = memory(PIECE);
	doing("reading the whole store %s", when);
	for (size_t off = 0; off < facts->size; off += len) {
		len = facts->size - off < PIECE ? facts->size - off : PIECE;
		handle_read(h, buf, len, off);
		shadow_compare(buf, len, off, when);
	}
}

void *memory(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	expect(p != MAP_FAILED, "there is no memory for %zu bytes: choose a smaller --size", len);
	return p;
}

/* Weyl sequence and mixer; the state moves on by one atomic addition, for threads and signal handlers. */
uint64_t random_number(void)
{
	uint64_t x = __atomic_add_fetch(&state, 0x9e3779b97f4a7c15, __ATOMIC_RELAXED) + options.seed * 0xd1342543de82ef95;

	x = (x ^ x >> 32) * 0xe9846af9b1a615d5;
	x = (x ^ x >> 29) * 0xc2b2ae3d27d4eb4f;
	return x ^ x >> 32;
}

size_t random_below(size_t n)
{
	return random_number() % n;
}

void random_fill(void *buf, size_t len)
{
	unsigned char *p = buf;

	for (size_t i = 0; i < len; i += sizeof(uint64_t)) {
		uint64_t x = random_number();

		memcpy(p + i, &x, len - i < sizeof(x) ? len - i : sizeof(x));
	}
}
