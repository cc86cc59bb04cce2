/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Local Reduce: a hash table in which each key has one value, into which further ones are reduced. Without a function for
 * that, values are groups: lists of values with their sizes (pair.h). These are joined as long as a group is small, so a key
 * may have several.
 */
#ifndef MAPREDUCE_TABLE_H
#define MAPREDUCE_TABLE_H

#include "mapreduce/pair.h"

#include <stdbool.h>

typedef int reduce_function(const struct ummr_bytes *key, struct ummr_value *value, const struct ummr_bytes *other, void *arg);

/* Stays where it is. Its key and, unless that has grown, its value are right behind it. */
struct entry {
	struct ummr_header head;
	struct entry *next;   /* that came after it */
	unsigned char *value;
	uint64_t room;        /* for the value */
	unsigned char key[];
};

struct slot {
	uint64_t hash;
	struct entry *entry; /* NULL: free */
};

struct chunk;

struct table {
	reduce_function *reduce;  /* NULL: groups */
	void *arg;
	struct slot *slots;
	uint64_t mask;            /* slots - 1 */
	uint64_t entries;
	uint64_t bytes;           /* of entries and their values */
	struct entry *first, *newest;
	struct chunk *chunks;     /* memory of entries, the newest first */
	char *free, *end;         /* what is left of that one */
};

int table_open(struct table *t, reduce_function *reduce, void *arg);
void table_close(struct table *t);
/* Has no entries any more. */
void table_clear(struct table *t);

/* A value, or group, of the key, whose hash this is. -1: no memory, or reduce has failed. */
int table_add(struct table *t, uint64_t hash, const void *key, size_t key_size, const void *value, size_t value_size);

/* The entries in order of keys, for free(); *entries must not be 0. NULL: no memory. */
struct entry **table_sorted(const struct table *t, bool descending);

#endif
