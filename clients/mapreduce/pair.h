/* SPDX-License-Identifier: BSD-3-Clause */
/* A pair: its header, and where its key and its value are. */
#ifndef MAPREDUCE_PAIR_H
#define MAPREDUCE_PAIR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <ummap-mapreduce.h>

struct pair {
	struct ummr_header head;
	const void *key, *value;
};

/* A size filled up to where the next thing begins. */
static inline uint64_t padded(uint64_t size)
{
	return (size + 7) & ~(uint64_t)7;
}

/* The pair that begins there, as pairs lie in streams; returns its size. */
static inline uint64_t pair_at(const char *data, struct pair *p)
{
	memcpy(&p->head, data, sizeof(p->head));
	p->key = data + sizeof(p->head);
	p->value = (const char *)p->key + padded(p->head.key_size);
	return sizeof(p->head) + padded(p->head.key_size) + padded(p->head.value_size);
}

/* A value in a group: this, then its bytes, filled up as a pair's are. */
struct member {
	uint64_t size;
	unsigned char data[];
};

/* The order of keys: negative, zero, positive. */
static inline int compare_keys(const void *a, size_t a_size, const void *b, size_t b_size)
{
	size_t both = a_size < b_size ? a_size : b_size;
	int order = both > 0 ? memcmp(a, b, both) : 0;

	return order ? order : (a_size > b_size) - (a_size < b_size);
}

/* The rank that reduces a key: equal parts of all hashes. */
static inline int rank_of(uint64_t hash, int ranks)
{
	return (int)((hash >> 32) * (uint64_t)ranks >> 32);
}

#endif
