/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each pair that the map function emits costs one search of the slots, one read of the entry, whose
 * key and value are adjacent, and one call of reduce. Slots have the whole hash, so that enlarging
 * the table reads no entry. A value that outgrows its place moves to memory of malloc(3), with
 * capacity for further growth.
 */
#include "mapreduce/table.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <stdlib.h>

#define INITIAL_SLOTS 4096
#define CHUNK_BYTES ((size_t)1 << 20)

/* Limit of a group. A key with more values has several groups, because all its values may be larger
 * than memory. */
#define MAX_GROUP_BYTES ((uint64_t)64 << 10)

#define MAX_KEY_IN_MESSAGE 64

struct chunk {
	struct chunk *next; /* next older chunk */
	uint64_t padding;   /* aligns entries to 16 bytes */
	char data[];        /* entries */
};

/* The argument `value` of a reduce function. ummr_resize finds the entry by its address. */
struct reduced_value {
	struct ummr_value value; /* the structure that the program sees */
	struct table *table;     /* table of the entry */
	struct entry *entry;     /* entry of the key */
	bool has_failed;         /* whether ummr_resize has failed and set the message */
};

static int report_no_memory(uint64_t bytes)
{
	return set_error(ENOMEM, "cannot store %llu bytes of pairs: no memory. Try more ranks, or "
			 "a smaller table_size", (unsigned long long)bytes);
}

int table_open(struct table *t, reduce_function *reduce, void *arg)
{
	*t = (struct table){ .reduce = reduce, .arg = arg, .mask = INITIAL_SLOTS - 1 };
	t->slots = calloc(INITIAL_SLOTS, sizeof(*t->slots));
	return t->slots ? 0 : report_no_memory(INITIAL_SLOTS * sizeof(*t->slots));
}

static bool has_inline_value(const struct entry *e)
{
	return e->value == e->key + padded_size(e->header.key_size);
}

static void free_entries(struct table *t)
{
	struct chunk *c, *next;

	for (struct entry *e = t->oldest; e; e = e->next)
		if (!has_inline_value(e))
			free(e->value);
	for (c = t->chunks; c; c = next) {
		next = c->next;
		free(c);
	}
}

void table_clear(struct table *t)
{
	free_entries(t);
	memset(t->slots, 0, (t->mask + 1) * sizeof(*t->slots));
	t->entries = t->bytes = 0;
	t->oldest = t->newest = NULL;
	t->chunks = NULL;
	t->free = t->end = NULL;
}

void table_close(struct table *t)
{
	free_entries(t);
	free(t->slots);
	*t = (struct table){ 0 };
}

static void *allocate_entry(struct table *t, size_t size)
{
	struct chunk *c;
	char *memory;

	if ((size_t)(t->end - t->free) < size) {
		size_t capacity = size > CHUNK_BYTES ? size : CHUNK_BYTES;

		c = malloc(sizeof(*c) + capacity);
		if (!c)
			return NULL;
		c->next = t->chunks;
		t->chunks = c;
		t->free = c->data;
		t->end = c->data + capacity;
	}
	memory = t->free;
	t->free += size;
	t->bytes += size;
	return memory;
}

/* Half of the slots stay free, so that searches are short. */
static int double_slots(struct table *t)
{
	uint64_t mask = 2 * t->mask + 1;
	struct slot *slots = calloc(mask + 1, sizeof(*slots));

	if (!slots)
		return report_no_memory((mask + 1) * sizeof(*slots));
	for (uint64_t i = 0; i <= t->mask; i++) {
		uint64_t to = t->slots[i].hash & mask;

		if (!t->slots[i].entry)
			continue;
		while (slots[to].entry)
			to = (to + 1) & mask;
		slots[to] = t->slots[i];
	}
	free(t->slots);
	t->slots = slots;
	t->mask = mask;
	return 0;
}

static int insert_entry(struct table *t, struct slot *slot, uint64_t hash, const void *key,
			size_t key_size, const void *value, size_t value_size)
{
	uint64_t key_capacity = padded_size(key_size), capacity = padded_size(value_size);
	struct entry *e;

	e = allocate_entry(t, sizeof(*e) + key_capacity + capacity);
	if (!e)
		return report_no_memory(sizeof(*e) + key_capacity + capacity);
	e->header = (struct ummr_header){ hash, key_size, value_size };
	e->next = NULL;
	e->value = e->key + key_capacity;
	e->capacity = capacity;
	if (key_size > 0)
		memcpy(e->key, key, key_size);
	if (value_size > 0)
		memcpy(e->value, value, value_size);
	*(t->newest ? &t->newest->next : &t->oldest) = e;
	t->newest = e;
	*slot = (struct slot){ hash, e };
	return 2 * ++t->entries > t->mask ? double_slots(t) : 0;
}

static int key_size_in_message(const struct ummr_bytes *key)
{
	return (int)(key->size < MAX_KEY_IN_MESSAGE ? key->size : MAX_KEY_IN_MESSAGE);
}

static int reduce_value(struct table *t, struct entry *e, const void *value, size_t value_size)
{
	struct reduced_value r = { { e->value, e->header.value_size }, t, e, false };
	struct ummr_bytes key = { e->key, e->header.key_size }, other = { value, value_size };
	int result = t->reduce(&key, &r.value, &other, t->arg);

	if (r.has_failed)
		return -1;
	return result == 0 ? 0 : set_error(ECANCELED, "cannot reduce: the reduce function has "
					   "failed for the key '%.*s'", key_size_in_message(&key),
					   (const char *)e->key);
}

/* The new capacity is 1.5 times the size, so that a value that grows in small steps is seldom
 * copied. */
static int move_value(struct table *t, struct entry *e, size_t size)
{
	uint64_t capacity = size > PTRDIFF_MAX / 2 ? size : size + size / 2;
	unsigned char *value = realloc(has_inline_value(e) ? NULL : e->value, capacity);

	if (!value)
		return report_no_memory(capacity);
	if (has_inline_value(e))
		memcpy(value, e->value, e->header.value_size);
	t->bytes += capacity - e->capacity;
	e->value = value;
	e->capacity = capacity;
	return 0;
}

/* Returns 1, 0 if the group would be too long, or -1. */
static int join_groups(struct table *t, struct entry *e, const void *group, size_t size)
{
	uint64_t before = e->header.value_size;

	if (before + size > MAX_GROUP_BYTES)
		return 0;
	if (before + size > e->capacity && move_value(t, e, before + size) < 0)
		return -1;
	memcpy(e->value + before, group, size);
	e->header.value_size += size;
	return 1;
}

static struct slot *find_slot(struct table *t, uint64_t hash, const void *key, size_t key_size)
{
	struct slot *slot = &t->slots[hash & t->mask];

	while (slot->entry) {
		const struct entry *e = slot->entry;

		if (slot->hash == hash && e->header.key_size == key_size &&
		    (key_size == 0 || memcmp(e->key, key, key_size) == 0))
			break;
		if (++slot > &t->slots[t->mask])
			slot = t->slots;
	}
	return slot;
}

int table_add(struct table *t, uint64_t hash, const void *key, size_t key_size, const void *value,
	      size_t value_size)
{
	struct slot *slot = find_slot(t, hash, key, key_size);
	int joined;

	if (slot->entry && t->reduce)
		return reduce_value(t, slot->entry, value, value_size);
	joined = slot->entry ? join_groups(t, slot->entry, value, value_size) : 0;
	if (joined != 0)
		return joined < 0 ? -1 : 0;
	return insert_entry(t, slot, hash, key, key_size, value, value_size);
}

int ummr_resize(struct ummr_value *value, size_t size)
{
	struct reduced_value *r = (struct reduced_value *)value;

	if (size > PTRDIFF_MAX)
		r->has_failed = set_error(EINVAL, "cannot resize a value to %zu bytes: the size is "
					  "too large", size) < 0;
	else if (size > r->entry->capacity)
		r->has_failed = move_value(r->table, r->entry, size) < 0;
	if (r->has_failed)
		return -1;
	r->entry->header.value_size = size;
	*value = (struct ummr_value){ r->entry->value, size };
	return 0;
}

/* ---- Sorting. Most keys differ in their first 8 bytes, which are compared as one number. ---- */

struct prefixed_entry {
	uint64_t prefix;     /* first 8 bytes of the key, as a big-endian number */
	struct entry *entry; /* the entry */
};

static uint64_t prefix_of(const struct entry *e)
{
	unsigned char bytes[8] = { 0 };
	uint64_t prefix = 0;

	memcpy(bytes, e->key, e->header.key_size < 8 ? e->header.key_size : 8);
	for (int i = 0; i < 8; i++)
		prefix = prefix << 8 | bytes[i];
	return prefix;
}

static int compare_ascending(const void *a, const void *b)
{
	const struct prefixed_entry *x = a, *y = b;

	if (x->prefix != y->prefix)
		return x->prefix < y->prefix ? -1 : 1;
	return compare_keys(x->entry->key, x->entry->header.key_size,
			    y->entry->key, y->entry->header.key_size);
}

static int compare_descending(const void *a, const void *b)
{
	return compare_ascending(b, a);
}

struct entry **table_sort(const struct table *t, bool is_descending)
{
	struct prefixed_entry *all = malloc((t->entries + 1) * sizeof(*all));
	struct entry **sorted;
	uint64_t i = 0;

	if (!all) {
		report_no_memory(t->entries * sizeof(*all));
		return NULL;
	}
	for (struct entry *e = t->oldest; e; e = e->next)
		all[i++] = (struct prefixed_entry){ prefix_of(e), e };
	qsort(all, t->entries, sizeof(*all),
	      is_descending ? compare_descending : compare_ascending);
	/* The pointers replace the array in place. Each one is shorter than the element that it
	 * comes from, so it overwrites only elements that were read. */
	sorted = (struct entry **)all;
	for (i = 0; i < t->entries; i++) {
		struct entry *e = all[i].entry;

		memcpy(&sorted[i], &e, sizeof(e));
	}
	return sorted;
}
