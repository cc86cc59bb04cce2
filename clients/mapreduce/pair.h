/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs, and their layout in streams: a header, the key, and the value, padded to 8 bytes each. */
#ifndef MAPREDUCE_PAIR_H
#define MAPREDUCE_PAIR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <ummap-mapreduce.h>

struct pair {
	struct ummr_header header; /* hash and sizes */
	const void *key, *value;   /* addresses of the bytes */
};

/* Returns the size rounded up to a multiple of 8. */
static inline uint64_t padded_size(uint64_t size)
{
	return (size + 7) & ~(uint64_t)7;
}

/* Sets *p to the pair at this address of a stream. Returns the bytes that it takes there. */
static inline uint64_t parse_pair(const char *data, struct pair *p)
{
	memcpy(&p->header, data, sizeof(p->header));
	p->key = data + sizeof(p->header);
	p->value = (const char *)p->key + padded_size(p->header.key_size);
	return sizeof(p->header) + padded_size(p->header.key_size) +
	       padded_size(p->header.value_size);
}

/* The header of a value in a group; the value follows, padded to 8 bytes. A group is the value of a
 * pair in a job with reduce_all: a list of values of one key. */
struct group_member {
	uint64_t size;        /* bytes of the value */
	unsigned char data[]; /* the value */
};

/* Returns a negative number, 0 or a positive number for the order of two keys. */
static inline int compare_keys(const void *a, size_t a_size, const void *b, size_t b_size)
{
	size_t common = a_size < b_size ? a_size : b_size;
	int order = common > 0 ? memcmp(a, b, common) : 0;

	return order ? order : (a_size > b_size) - (a_size < b_size);
}

/* Returns the rank that reduces a key: each rank has an equal part of all hashes. */
static inline int rank_of_hash(uint64_t hash, int ranks)
{
	return (int)((hash >> 32) * (uint64_t)ranks >> 32);
}

#endif
