/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Word count by hand: a hash table for each rank, with tasks in equal parts, and one exchange of what is in the tables. The
 * result stays in tables, in no order. No library does less.
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
	char word[]; /* up to a multiple of 8 */
};

struct slot {
	uint64_t hash;
	struct entry *entry; /* NULL: free */
};

struct table {
	struct slot *slots;
	uint64_t mask, entries;
	char *free, *end;    /* memory for entries; a chunk is never given back */
};

static struct table mine;

static void *provide(void *memory)
{
	if (!memory)
		die("no memory for a table");
	return memory;
}

static void table_open(struct table *t)
{
	*t = (struct table){ .mask = (1 << 16) - 1 };
	t->slots = provide(calloc(t->mask + 1, sizeof(*t->slots)));
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

		t->free = provide(malloc(chunk));
		t->end = t->free + chunk;
	}
	e = (struct entry *)t->free;
	t->free += bytes;
	e->count = 0;
	e->size = (uint32_t)size;
	memcpy(e->word, word, size);
	return e;
}

static void grow(struct table *t)
{
	struct table bigger = { .mask = 2 * t->mask + 1 };

	bigger.slots = provide(calloc(bigger.mask + 1, sizeof(*bigger.slots)));
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

static void add(struct table *t, uint64_t hash, const char *word, size_t size, uint64_t count)
{
	struct slot *s = &t->slots[hash & t->mask];

	while (s->entry && (s->hash != hash || s->entry->size != size || memcmp(s->entry->word, word, size) != 0))
		s = s == &t->slots[t->mask] ? t->slots : s + 1;
	if (s->entry) {
		s->entry->count += count;
		return;
	}
	*s = (struct slot){ hash, new_entry(t, word, size) };
	s->entry->count = count;
	if (2 * ++t->entries > t->mask)
		grow(t);
}

static bool take(const char *word, size_t size, void *arg)
{
	add(arg, XXH3_64bits(word, size), word, size, 1);
	return true;
}

static void map(const struct words_options *o, struct table *t)
{
	uint64_t tasks = tasks_of(o), ranks = (uint64_t)job.ranks;
	char *buffer = NULL;
	size_t room = 0;
	int fd = open_file(o->path, O_RDONLY);

	for (uint64_t task = tasks * (uint64_t)job.rank / ranks; task < tasks * (uint64_t)(job.rank + 1) / ranks; task++) {
		task_work(o, task);
		words_each(buffer, task_read(o, fd, task, &buffer, &room), o->pairs, take, t);
	}
	close(fd);
	free(buffer);
}

/* To whom it goes: by bits that say nothing about the slot. */
static int rank_of(uint64_t hash)
{
	return (int)((hash >> 32) * (uint64_t)job.ranks >> 32);
}

static void offsets(const int *sizes, int *at)
{
	for (int i = 0, sum = 0; i < job.ranks; sum += sizes[i++])
		at[i] = sum;
}

/* All entries, in order of ranks, and how many bytes each rank gets. */
static char *pack(const struct table *t, int *sizes, int *at)
{
	int end[job.ranks];
	char *packed;

	for (uint64_t i = 0; i <= t->mask; i++)
		if (t->slots[i].entry)
			sizes[rank_of(t->slots[i].hash)] += (int)(8 + entry_size(t->slots[i].entry->size));
	offsets(sizes, at);
	memcpy(end, at, sizeof(end));
	packed = provide(malloc((size_t)at[job.ranks - 1] + (size_t)sizes[job.ranks - 1] + 1));
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

static void exchange(const struct table *from, struct table *to)
{
	int sizes[job.ranks], at[job.ranks], their_sizes[job.ranks], their_at[job.ranks], end;
	char *packed, *got;

	memset(sizes, 0, sizeof(sizes));
	packed = pack(from, sizes, at);
	MPI_Alltoall(sizes, 1, MPI_INT, their_sizes, 1, MPI_INT, MPI_COMM_WORLD);
	offsets(their_sizes, their_at);
	end = their_at[job.ranks - 1] + their_sizes[job.ranks - 1];
	got = provide(malloc((size_t)end + 1));
	MPI_Alltoallv(packed, sizes, at, MPI_BYTE, got, their_sizes, their_at, MPI_BYTE, MPI_COMM_WORLD);
	for (int i = 0; i < end; ) {
		const struct entry *e = (const struct entry *)(got + i + 8);

		add(to, *(const uint64_t *)(got + i), e->word, e->size, e->count);
		i += (int)(8 + entry_size(e->size));
	}
	free(packed);
	free(got);
}

static void count(const struct words_options *o)
{
	struct table local;

	table_open(&local);
	map(o, &local);
	table_open(&mine);
	exchange(&local, &mine);
}

static void result(const struct words_options *o, struct counted *to)
{
	(void)o;
	for (uint64_t i = 0; i <= mine.mask; i++)
		if (mine.slots[i].entry)
			counted_add(to, mine.slots[i].entry->word, mine.slots[i].entry->size, mine.slots[i].entry->count);
}

const struct way way_table = { "table", "a hash table by hand, and one exchange", count, result };
