/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way of each pair that map emits, so: one probe of the slots, one look at the entry, whose key and value are
 * beside each other, and the call of reduce. Slots have the whole hash, so that growing touches no entry. A value that
 * outgrows its place gets one from malloc, with room to grow on.
 */
#include "mapreduce/table.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_SLOTS 4096
#define CHUNK ((size_t)1 << 20)
/* A group that would get longer is followed by another one: keys with more values than memory has are streams of groups. */
#define GROUP ((uint64_t)64 << 10)

struct chunk {
	struct chunk *next;
	uint64_t unused; /* entries begin at multiples of 16 */
	char data[];
};

/* What reduce is given, and how ummr_resize finds back. */
struct reducing {
	struct ummr_value value;
	struct table *table;
	struct entry *entry;
	bool failed; /* ummr_resize has, which has left the sentence */
};

static int no_memory(uint64_t bytes)
{
	return fail(ENOMEM, "cannot store %llu bytes of pairs: no memory. Try more ranks, or a "
		    "smaller table_size", (unsigned long long)bytes);
}

int table_open(struct table *t, reduce_function *reduce, void *arg)
{
	*t = (struct table){ .reduce = reduce, .arg = arg, .mask = FIRST_SLOTS - 1 };
	t->slots = calloc(FIRST_SLOTS, sizeof(*t->slots));
	return t->slots ? 0 : no_memory(FIRST_SLOTS * sizeof(*t->slots));
}

static bool is_inside(const struct entry *e)
{
	return e->value == e->key + padded(e->head.key_size);
}

static void free_entries(struct table *t)
{
	struct chunk *c, *next;

	for (struct entry *e = t->first; e; e = e->next)
		if (!is_inside(e))
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
	t->first = t->newest = NULL;
	t->chunks = NULL;
	t->free = t->end = NULL;
}

void table_close(struct table *t)
{
	free_entries(t);
	free(t->slots);
	*t = (struct table){ 0 };
}

static void *take(struct table *t, size_t size)
{
	struct chunk *c;
	char *taken;

	if ((size_t)(t->end - t->free) < size) {
		size_t room = size > CHUNK ? size : CHUNK;

		c = malloc(sizeof(*c) + room);
		if (!c)
			return NULL;
		c->next = t->chunks;
		t->chunks = c;
		t->free = c->data;
		t->end = c->data + room;
	}
	taken = t->free;
	t->free += size;
	t->bytes += size;
	return taken;
}

/* Half of the slots stay free, so that keys seldom meet. */
static int grow(struct table *t)
{
	uint64_t mask = 2 * t->mask + 1;
	struct slot *slots = calloc(mask + 1, sizeof(*slots));

	if (!slots)
		return no_memory((mask + 1) * sizeof(*slots));
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

static int insert(struct table *t, struct slot *slot, uint64_t hash, const void *key, size_t key_size, const void *value,
		  size_t value_size)
{
	uint64_t key_room = padded(key_size), room = padded(value_size);
	struct entry *e;

	e = take(t, sizeof(*e) + key_room + room);
	if (!e)
		return no_memory(sizeof(*e) + key_room + room);
	e->head = (struct ummr_header){ hash, key_size, value_size };
	e->next = NULL;
	e->value = e->key + key_room;
	e->room = room;
	if (key_size > 0)
		memcpy(e->key, key, key_size);
	if (value_size > 0)
		memcpy(e->value, value, value_size);
	*(t->newest ? &t->newest->next : &t->first) = e;
	t->newest = e;
	*slot = (struct slot){ hash, e };
	return 2 * ++t->entries > t->mask ? grow(t) : 0;
}

static int reduce(struct table *t, struct entry *e, const void *value, size_t value_size)
{
	struct reducing r = { { e->value, e->head.value_size }, t, e, false };
	struct ummr_bytes key = { e->key, e->head.key_size }, other = { value, value_size };
	int result = t->reduce(&key, &r.value, &other, t->arg);

	if (r.failed)
		return -1;
	return result == 0 ? 0 : fail(ECANCELED, "cannot reduce: the reduce function has failed "
				      "for the key '%.*s'", (int)(key.size < 64 ? key.size : 64),
				      (const char *)e->key);
}

/* At least half as much again, so that values which grow little by little are copied seldom. */
static int move_value(struct table *t, struct entry *e, size_t size)
{
	uint64_t room = size > PTRDIFF_MAX / 2 ? size : size + size / 2;
	unsigned char *value = realloc(is_inside(e) ? NULL : e->value, room);

	if (!value)
		return no_memory(room);
	if (is_inside(e))
		memcpy(value, e->value, e->head.value_size);
	t->bytes += room - e->room;
	e->value = value;
	e->room = room;
	return 0;
}

/* 0: it would be too long. */
static int join(struct table *t, struct entry *e, const void *group, size_t size)
{
	uint64_t before = e->head.value_size;

	if (before + size > GROUP)
		return 0;
	if (before + size > e->room && move_value(t, e, before + size) < 0)
		return -1;
	memcpy(e->value + before, group, size);
	e->head.value_size += size;
	return 1;
}

static struct slot *find(struct table *t, uint64_t hash, const void *key, size_t key_size)
{
	struct slot *slot = &t->slots[hash & t->mask];

	while (slot->entry) {
		const struct entry *e = slot->entry;

		if (slot->hash == hash && e->head.key_size == key_size &&
		    (key_size == 0 || memcmp(e->key, key, key_size) == 0))
			break;
		if (++slot > &t->slots[t->mask])
			slot = t->slots;
	}
	return slot;
}

int table_add(struct table *t, uint64_t hash, const void *key, size_t key_size, const void *value, size_t value_size)
{
	struct slot *slot = find(t, hash, key, key_size);
	int joined;

	if (slot->entry && t->reduce)
		return reduce(t, slot->entry, value, value_size);
	joined = slot->entry ? join(t, slot->entry, value, value_size) : 0;
	if (joined != 0)
		return joined < 0 ? -1 : 0;
	return insert(t, slot, hash, key, key_size, value, value_size);
}

int ummr_resize(struct ummr_value *value, size_t size)
{
	struct reducing *r = (struct reducing *)value;

	if (size > PTRDIFF_MAX)
		r->failed = fail(EINVAL, "cannot resize a value to %zu bytes: the size is too "
				 "large", size) < 0;
	else if (size > r->entry->room)
		r->failed = move_value(r->table, r->entry, size) < 0;
	if (r->failed)
		return -1;
	r->entry->head.value_size = size;
	*value = (struct ummr_value){ r->entry->value, size };
	return 0;
}

/* ---- Sorting: most keys differ in their first bytes, which are compared as one number. ---- */

struct sorted {
	uint64_t prefix;
	struct entry *entry;
};

static uint64_t prefix_of(const struct entry *e)
{
	unsigned char bytes[8] = { 0 };
	uint64_t prefix = 0;

	memcpy(bytes, e->key, e->head.key_size < 8 ? e->head.key_size : 8);
	for (int i = 0; i < 8; i++)
		prefix = prefix << 8 | bytes[i];
	return prefix;
}

static int ascending(const void *a, const void *b)
{
	const struct sorted *x = a, *y = b;

	if (x->prefix != y->prefix)
		return x->prefix < y->prefix ? -1 : 1;
	return compare_keys(x->entry->key, x->entry->head.key_size, y->entry->key, y->entry->head.key_size);
}

static int descending_order(const void *a, const void *b)
{
	return ascending(b, a);
}

struct entry **table_sorted(const struct table *t, bool descending)
{
	struct sorted *all = malloc((t->entries + 1) * sizeof(*all));
	struct entry **sorted;
	uint64_t i = 0;

	if (!all) {
		no_memory(t->entries * sizeof(*all));
		return NULL;
	}
	for (struct entry *e = t->first; e; e = e->next)
		all[i++] = (struct sorted){ prefix_of(e), e };
	qsort(all, t->entries, sizeof(*all), descending ? descending_order : ascending);
	/* In place: each is written where only earlier ones have been. */
	sorted = (struct entry **)all;
	for (i = 0; i < t->entries; i++) {
		struct entry *e = all[i].entry;

		memcpy(&sorted[i], &e, sizeof(e));
	}
	return sorted;
}
