/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Word count by a hand-written program: a hash table for each rank, equal parts of the tasks, and
 * one exchange of the entries. The result stays in tables, without an order. This is the least
 * work that a solution must do.
 */
#include <fcntl.h>

#include "kit/common.h"
#include "kit/data.h"
#include "mapreduce.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

struct entry {
	uint64_t count;
	uint32_t size;
	char word[]; /* padded to a multiple of 8 bytes */
};

struct slot {
	uint64_t hash;
	struct entry *entry; /* NULL: the slot is free */
};

struct table {
	struct slot *slots;
	uint64_t mask, entries;
	char *free, *end;    /* free range of the newest chunk; chunks are never freed */
};

static struct table mine;

static void *check_memory(void *memory)
{
	if (!memory)
		die("no memory for a table");
	return memory;
}

static void table_open(struct table *t)
{
	*t = (struct table){ .mask = (1 << 16) - 1 };
	t->slots = check_memory(calloc(t->mask + 1, sizeof(*t->slots)));
}

static size_t entry_size(size_t word)
{
	return (sizeof(struct entry) + word + 7) & ~(size_t)7;
}

static struct entry *new_entry(struct table *t, const char *word, size_t size)
{
	size_t bytes = entry_size(size);
	struct entry *e;

	if ((size_t)(t->end - t->free) < bytes) {
		size_t chunk = bytes > MIB ? bytes : MIB;

		t->free = check_memory(malloc(chunk));
		t->end = t->free + chunk;
	}
	e = (struct entry *)t->free;
	t->free += bytes;
	e->count = 0;
	e->size = (uint32_t)size;
	memcpy(e->word, word, size);
	return e;
}

static void double_slots(struct table *t)
{
	struct table bigger = { .mask = 2 * t->mask + 1 };

	bigger.slots = check_memory(calloc(bigger.mask + 1, sizeof(*bigger.slots)));
	for (uint64_t i = 0; i <= t->mask; i++) {
		uint64_t to = t->slots[i].hash & bigger.mask;

		if (!t->slots[i].entry)
			continue;
		while (bigger.slots[to].entry)
			to = (to + 1) & bigger.mask;
		bigger.slots[to] = t->slots[i];
	}
	free(t->slots);
	t->slots = bigger.slots;
	t->mask = bigger.mask;
}

static void add_count(struct table *t, uint64_t hash, const char *word, size_t size, uint64_t count)
{
	struct slot *s = &t->slots[hash & t->mask];

	while (s->entry && (s->hash != hash || s->entry->size != size ||
			    memcmp(s->entry->word, word, size) != 0))
		s = s == &t->slots[t->mask] ? t->slots : s + 1;
	if (s->entry) {
		s->entry->count += count;
		return;
	}
	*s = (struct slot){ hash, new_entry(t, word, size) };
	s->entry->count = count;
	if (2 * ++t->entries > t->mask)
		double_slots(t);
}

static bool take_found_word(const char *word, size_t size, void *arg)
{
	add_count(arg, XXH3_64bits(word, size), word, size, 1);
	return true;
}

static void map_word(const struct words_options *o, struct table *t)
{
	uint64_t tasks = tasks_of(o), ranks = (uint64_t)job.ranks;
	char *buffer = NULL;
	size_t capacity = 0;
	int fd = open_file(o->path, O_RDONLY);

	for (uint64_t task =
		tasks * (uint64_t)job.rank / ranks; task < tasks * (uint64_t)(job.rank +
									      1) / ranks; task++) {
		task_work(o, task);
		words_each(buffer, task_read(o, fd, task, &buffer, &capacity), o->pairs,
			   take_found_word, t);
	}
	close(fd);
	free(buffer);
}

/* Slots use the low bits of the hash, so ranks use the high ones. */
static int rank_of(uint64_t hash)
{
	return (int)((hash >> 32) * (uint64_t)job.ranks >> 32);
}

static void set_offsets(const int *sizes, int *at)
{
	for (int i = 0, sum = 0; i < job.ranks; sum += sizes[i++])
		at[i] = sum;
}

/* Returns all entries, in order of their ranks, and sets the bytes of each rank. */
static char *pack_entries(const struct table *t, int *sizes, int *at)
{
	int end[job.ranks];
	char *packed;

	for (uint64_t i = 0; i <= t->mask; i++)
		if (t->slots[i].entry)
			sizes[rank_of(t->slots[i].hash)] += (int)(8 +
					entry_size(t->slots[i].entry->size));
	set_offsets(sizes, at);
	memcpy(end, at, sizeof(end));
	packed = check_memory(malloc((size_t)at[job.ranks - 1] + (size_t)sizes[job.ranks - 1] + 1));
	for (uint64_t i = 0; i <= t->mask; i++) {
		const struct slot *s = &t->slots[i];

		if (!s->entry)
			continue;
		memcpy(packed + end[rank_of(s->hash)], &s->hash, 8);
		memcpy(packed + end[rank_of(s->hash)] + 8, s->entry, entry_size(s->entry->size));
		end[rank_of(s->hash)] += (int)(8 + entry_size(s->entry->size));
	}
	return packed;
}

static void exchange_entries(const struct table *from, struct table *to)
{
	int sizes[job.ranks], at[job.ranks], their_sizes[job.ranks], their_at[job.ranks], end;
	char *packed, *got;

	memset(sizes, 0, sizeof(sizes));
	packed = pack_entries(from, sizes, at);
	MPI_Alltoall(sizes, 1, MPI_INT, their_sizes, 1, MPI_INT, MPI_COMM_WORLD);
	set_offsets(their_sizes, their_at);
	end = their_at[job.ranks - 1] + their_sizes[job.ranks - 1];
	got = check_memory(malloc((size_t)end + 1));
	MPI_Alltoallv(packed, sizes, at, MPI_BYTE, got, their_sizes, their_at, MPI_BYTE,
		      MPI_COMM_WORLD);
	for (int i = 0; i < end; ) {
		const struct entry *e = (const struct entry *)(got + i + 8);

		add_count(to, *(const uint64_t *)(got + i), e->word, e->size, e->count);
		i += (int)(8 + entry_size(e->size));
	}
	free(packed);
	free(got);
}

static void count(const struct words_options *o)
{
	struct table local;

	table_open(&local);
	map_word(o, &local);
	table_open(&mine);
	exchange_entries(&local, &mine);
}

static void result_of_table(const struct words_options *o, struct counted *to)
{
	(void)o;
	for (uint64_t i = 0; i <= mine.mask; i++)
		if (mine.slots[i].entry)
			counted_add(to, mine.slots[i].entry->word, mine.slots[i].entry->size,
				    mine.slots[i].entry->count);
}

const struct way way_table = { "table", "a hash table by hand, and one exchange", count,
			       result_of_table };
