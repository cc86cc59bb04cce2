/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hash table of Local Reduce. Each key has one value, and further values of the key are reduced
 * into it. Without a reduce function, values are groups (pair.h), which are joined while they are
 * short; a key may then have several groups, each in an entry of its own.
 */
#ifndef MAPREDUCE_TABLE_H
#define MAPREDUCE_TABLE_H

#include "mapreduce/pair.h"

#include <stdbool.h>

typedef int reduce_function(const struct ummr_bytes *key, struct ummr_value *value,
			    const struct ummr_bytes *other, void *arg);

/* A pair in the table. It never moves. The value follows the key until it outgrows its place. */
struct entry {
	struct ummr_header header; /* hash and sizes */
	struct entry *next;        /* the entry that was added after this one */
	unsigned char *value;      /* address of the value */
	uint64_t capacity;         /* bytes of memory for the value */
	unsigned char key[];       /* the key */
};

struct slot {
	uint64_t hash;       /* hash of the entry's key */
	struct entry *entry; /* NULL: the slot is free */
};

struct chunk;

struct table {
	reduce_function *reduce; /* NULL: values are groups */
	void *arg;               /* argument of reduce */
	struct slot *slots;      /* open hash table */
	uint64_t mask;           /* number of slots - 1 */
	uint64_t entries;        /* number of entries */
	uint64_t bytes;          /* bytes of entries and their values */
	struct entry *oldest;    /* first entry that was added */
	struct entry *newest;    /* last entry that was added */
	struct chunk *chunks;    /* memory of entries; the newest chunk is the first */
	char *free, *end;        /* free range of the newest chunk */
};

int table_open(struct table *t, reduce_function *reduce, void *arg);
void table_close(struct table *t);
/* Removes all entries. */
void table_clear(struct table *t);

/* Adds a value or a group of the key, which has this hash. */
int table_add(struct table *t, uint64_t hash, const void *key, size_t key_size, const void *value,
	      size_t value_size);

/* Returns the entries in order of keys, for free(3); NULL without memory. */
struct entry **table_sort(const struct table *t, bool is_descending);

#endif
