/* SPDX-License-Identifier: BSD-3-Clause */
/* Layout: HDF5 File Format Specification 3.0, II.A. All numbers are little-endian. */
#include "hdf5/store.h"

#include <string.h>

#include <ummap.h>

#include "common/minmax.h"

#define SIGNATURE "\211HDF\r\n\032\n"
#define VERSION_AT 8
#define OFFSET_BYTES_AT 9       /* bytes of an offset */
#define FLAGS_AT 11
#define BASE_AT 12              /* base address, extension, end of file, root: an offset each */
#define OFFSET_BYTES_MAX 8
#define SUPERBLOCK_MAX (BASE_AT + 4 * OFFSET_BYTES_MAX + 4)
#define FLAG_WRITE 1
#define FLAG_SWMR 4

/* A copy of a superblock. */
struct superblock {
	unsigned char bytes[SUPERBLOCK_MAX];
	unsigned offset_bytes;  /* bytes of an offset */
	unsigned sum_at;        /* place of the checksum of all bytes before it */
};

static uint64_t get_number(const unsigned char *at, unsigned n)
{
	uint64_t value = 0;

	while (n-- > 0)
		value = value << 8 | at[n];
	return value;
}

static void put_number(unsigned char *at, unsigned n, uint64_t value)
{
	for (unsigned i = 0; i < n; i++, value >>= 8)
		at[i] = (unsigned char)value;
}

/* ---- The checksum: lookup3 by Bob Jenkins, 2006, in the public domain ---- */

static uint32_t rotate(uint32_t x, unsigned bits)
{
	return x << bits | x >> (32 - bits);
}

static void mix(uint32_t x[3])
{
	static const unsigned bits[] = { 4, 6, 8, 16, 19, 4 };

	for (unsigned i = 0; i < 6; i++) {
		uint32_t *a = &x[i % 3], *b = &x[(i + 1) % 3], *c = &x[(i + 2) % 3];

		*a = (*a - *c) ^ rotate(*c, bits[i]);
		*c += *b;
	}
}

static void finish(uint32_t x[3])
{
	static const unsigned bits[] = { 14, 11, 25, 16, 4, 14, 24 };

	for (unsigned i = 0; i < 7; i++) {
		uint32_t *to = &x[(i + 2) % 3], from = x[(i + 1) % 3];

		*to = (*to ^ from) - rotate(from, bits[i]);
	}
}

static uint32_t lookup3(const unsigned char *bytes, unsigned len)
{
	uint32_t x[3] = { 0xdeadbeef + len, 0xdeadbeef + len, 0xdeadbeef + len };
	unsigned char rest[12] = { 0 };

	for (; len > sizeof(rest); bytes += sizeof(rest), len -= (unsigned)sizeof(rest)) {
		for (unsigned i = 0; i < 3; i++)
			x[i] += (uint32_t)get_number(bytes + 4 * i, 4);
		mix(x);
	}
	memcpy(rest, bytes, len);
	for (unsigned i = 0; i < 3; i++)
		x[i] += (uint32_t)get_number(rest + 4 * i, 4);
	finish(x);
	return x[2];
}

/* ---- The superblock ---- */

/* Whether there is a superblock of version 3 that is not damaged. */
static bool read_superblock(struct superblock *s, const char *at, uint64_t eof)
{
	size_t len = (size_t)min_u64(eof, sizeof(s->bytes));

	if (len < BASE_AT || umcopy(s->bytes, at, len) == -1 ||
	    memcmp(s->bytes, SIGNATURE, VERSION_AT) != 0 || s->bytes[VERSION_AT] != 3)
		return false;
	s->offset_bytes = s->bytes[OFFSET_BYTES_AT];
	s->sum_at = BASE_AT + 4 * s->offset_bytes;
	return s->offset_bytes <= OFFSET_BYTES_MAX && s->sum_at + 4 <= len &&
	       lookup3(s->bytes, s->sum_at) == get_number(s->bytes + s->sum_at, 4);
}

bool hdf5_superblock_is_swmr(const char *at, uint64_t eof)
{
	struct superblock s;

	return read_superblock(&s, at, eof) && s.bytes[FLAGS_AT] & FLAG_SWMR;
}

int hdf5_superblock_settle(char *at, uint64_t eof, uint64_t end, bool raises)
{
	struct superblock s;
	unsigned char *end_field;
	bool is_low, is_marked;

	if (!read_superblock(&s, at, eof))
		return 0;
	end_field = s.bytes + BASE_AT + 2 * s.offset_bytes;
	is_low = raises && get_number(end_field, s.offset_bytes) < end;
	is_marked = s.bytes[FLAGS_AT] & (FLAG_WRITE | FLAG_SWMR);
	if (!is_low && !is_marked)
		return 0;
	s.bytes[FLAGS_AT] &= (unsigned char)~(FLAG_WRITE | FLAG_SWMR);
	if (is_low)
		put_number(end_field, s.offset_bytes, end);
	put_number(s.bytes + s.sum_at, 4, lookup3(s.bytes, s.sum_at));
	return umcopy(at, s.bytes, s.sum_at + 4);
}
