/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wordtable.h - the table of wordcount: how often each word came, in a mapped file.
 *
 * The file: one header, `capacity` entries, then room for the words that are too long for an entry. An entry
 * stands at the place that the top bits of its hash name, or in the next free one after it. A word is given
 * as it stands in the text; here it is compared and kept in lower case.
 */
#ifndef WORDTABLE_H
#define WORDTABLE_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ummap.h>

#define TABLE_MAGIC "umwords" /* 8 bytes with its NUL */
#define TABLE_VERSION 1
#define TABLE_MIN_ENTRIES 16
#define TABLE_MAX_ENTRIES (UINT64_C(1) << 40)
#define STRINGS_PER_ENTRY 8 /* bytes of room for long words */

struct header {
	char magic[8];
	uint64_t version;
	uint64_t finished; /* 1: the whole text was counted and all of the table is on storage */
	uint64_t capacity; /* entries, a power of two */
	uint64_t strings;  /* bytes used by long words */
	uint64_t bytes;    /* of the text */
	uint64_t words;
	uint64_t distinct;
};

struct entry {
	uint64_t count; /* 0: free */
	uint64_t hash;
	uint64_t length;
	union {
		char text[40]; /* the word, if it fits */
		uint64_t at;   /* else where it stands among the long words */
	};
};

struct table {
	struct header *head;
	struct entry *entries;
	char *strings;
	const char *path;
	size_t size;
	size_t seg_size;
	struct header now; /* what goes into *head in the end: words come too often to store it each time */
};

static unsigned char fold[256]; /* letters in lower case, 0 for everything else */
static const char *unfinished;  /* the larger table while words move there; die takes it away */

/* The program's: says what is wrong and ends it. */
static void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* What a word is. */
static void fold_init(void)
{
	for (int c = 'a'; c <= 'z'; c++)
		fold[c] = fold[c - 'a' + 'A'] = (unsigned char)c;
}

static const uint64_t hash_seed = 0x6a09e667f3bcc909;

static inline uint64_t hash_add(uint64_t hash, unsigned char letter)
{
	return (hash ^ letter) * 0x9e3779b97f4a7c15;
}

/* The table looks at the top bits: let every letter reach them. */
static inline uint64_t hash_end(uint64_t hash)
{
	hash ^= hash >> 31;
	hash *= 0x9e3779b97f4a7c15;
	return hash ^ hash >> 29;
}

static size_t table_size(uint64_t capacity)
{
	return sizeof(struct header) + capacity * (sizeof(struct entry) + STRINGS_PER_ENTRY);
}

/* The capacity of a table that is to begin with so many entries. */
static uint64_t capacity_for(uint64_t entries)
{
	uint64_t capacity = TABLE_MIN_ENTRIES;

	while (capacity < entries)
		capacity *= 2;
	return capacity;
}

static void table_place(struct table *t, void *base)
{
	t->head = base;
	t->entries = (struct entry *)(t->head + 1);
	t->strings = (char *)(t->entries + t->now.capacity);
}

/* Opens path to be overwritten, but only what is empty or was a table before. */
static int open_scratch(const char *path)
{
	char magic[sizeof(TABLE_MAGIC)];
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	ssize_t got = pread(fd, magic, sizeof(magic), 0);
	if (got < 0)
		die("%s: %s", path, strerror(errno));
	if (got > 0 && (got < (ssize_t)sizeof(magic) || memcmp(magic, TABLE_MAGIC, sizeof(magic)) != 0))
		die("%s: exists and is no table of mine; name another one with --table", path);
	return fd;
}

static void table_create(struct table *t, const char *path, uint64_t capacity, size_t seg_size)
{
	void *base;
	int fd = open_scratch(path);

	*t = (struct table){ .path = path, .size = table_size(capacity), .seg_size = seg_size };
	t->now = (struct header){ .magic = TABLE_MAGIC, .version = TABLE_VERSION, .capacity = capacity };
	/* The header is there from the start: a run that is killed leaves what the next one knows to be a table. */
	if (ftruncate(fd, 0) < 0 || pwrite(fd, &t->now, sizeof(t->now), 0) != (ssize_t)sizeof(t->now) ||
	    ftruncate(fd, (off_t)t->size) < 0)
		die("%s: %s", path, strerror(errno));
	/* read_file 0: the rest is zeros still, so there is nothing to read before it is first written. */
	if (ummap(t->size, seg_size, PROT_READ | PROT_WRITE, fd, 0, -1, 0, UMMAP_PTYPE_PLRU, &base) < 0)
		die("%s: cannot be mapped: %s", path, umerrormsg());
	close(fd);
	if (umadvise(base, t->size, UMMAP_ADV_RANDOM) < 0)
		die("%s: %s", path, umerrormsg());
	table_place(t, base);
	*t->head = t->now;
}

static void table_open(struct table *t, const char *path, size_t seg_size)
{
	void *base;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	*t = (struct table){ .path = path, .seg_size = seg_size };
	if (fd < 0 || fstat(fd, &st) < 0)
		die("%s: %s", path, strerror(errno));
	if (pread(fd, &t->now, sizeof(t->now), 0) != (ssize_t)sizeof(t->now) ||
	    memcmp(t->now.magic, TABLE_MAGIC, sizeof(TABLE_MAGIC)) != 0 || t->now.version != TABLE_VERSION)
		die("%s: is no table of mine", path);
	if (!t->now.finished)
		die("%s: was not finished; count the text again", path);
	if (t->now.capacity < TABLE_MIN_ENTRIES || t->now.capacity > TABLE_MAX_ENTRIES ||
	    (t->now.capacity & (t->now.capacity - 1)) != 0 ||
	    (uint64_t)st.st_size != table_size(t->now.capacity) || t->now.distinct >= t->now.capacity)
		die("%s: is damaged", path);
	t->size = (size_t)st.st_size;
	if (ummap(t->size, seg_size, PROT_READ, fd, 0, -1, 1, UMMAP_PTYPE_PLRU, &base) < 0)
		die("%s: cannot be mapped: %s", path, umerrormsg());
	close(fd);
	table_place(t, base);
}

static const char *entry_word(const struct table *t, const struct entry *e)
{
	return e->length <= sizeof(e->text) ? e->text : t->strings + e->at;
}

static bool same_word(const char *stored, const unsigned char *raw, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)stored[i] != fold[raw[i]])
			return false;
	return true;
}

/* The entry of a word, or the free one where it belongs. There is always a free one: see has_room. */
static struct entry *table_find(const struct table *t, const unsigned char *raw, size_t length, uint64_t hash)
{
	uint64_t mask = t->now.capacity - 1;
	/* The top bits keep the order of entries when the table grows: both tables are then walked in order. */
	uint64_t i = hash >> (64 - __builtin_ctzll(t->now.capacity));

	for (;; i = (i + 1) & mask) {
		struct entry *e = &t->entries[i];
		if (e->count == 0)
			return e;
		if (e->hash == hash && e->length == length && same_word(entry_word(t, e), raw, length))
			return e;
	}
}

static bool has_room(const struct table *t, size_t length)
{
	uint64_t room = t->now.capacity * STRINGS_PER_ENTRY - t->now.strings;

	return t->now.distinct < t->now.capacity / 4 * 3 && (length <= sizeof(t->entries->text) || length <= room);
}

static void entry_fill(struct table *t, struct entry *e, const unsigned char *raw, size_t length, uint64_t hash)
{
	char *to = e->text;

	e->hash = hash;
	e->length = length;
	if (length > sizeof(e->text)) {
		e->at = t->now.strings;
		to = t->strings + e->at;
		t->now.strings += length;
	}
	for (size_t i = 0; i < length; i++)
		to[i] = (char)fold[raw[i]];
	t->now.distinct++;
}

/* Moves everything to a larger table beside the old one, with room for a word of this length. */
static void table_grow(struct table *old, size_t length)
{
	struct table new;
	char *path;
	uint64_t capacity = old->now.capacity * 2;

	while (capacity * STRINGS_PER_ENTRY - old->now.strings < length)
		capacity *= 2;
	if (asprintf(&path, "%s.grow", old->path) < 0)
		die("no memory");
	table_create(&new, path, capacity, old->seg_size);
	unfinished = path;
	if (umadvise(old->head, old->size, UMMAP_ADV_SEQUENTIAL) < 0)
		die("%s: %s", old->path, umerrormsg());
	for (uint64_t i = 0; i < old->now.capacity; i++) {
		const struct entry *from = &old->entries[i];
		if (from->count == 0)
			continue;
		const unsigned char *word = (const unsigned char *)entry_word(old, from);
		struct entry *to = table_find(&new, word, from->length, from->hash);
		entry_fill(&new, to, word, from->length, from->hash);
		to->count = from->count;
	}
	new.now.words = old->now.words;
	new.path = old->path;
	if (umunmap(old->head, 0) < 0)
		die("%s: %s", old->path, umerrormsg());
	if (rename(path, old->path) < 0)
		die("%s: %s", old->path, strerror(errno));
	unfinished = NULL;
	free(path);
	*old = new;
}

/* Makes the table complete on storage, and only then says in it that it is. */
static void table_save(struct table *t)
{
	*t->head = t->now;
	if (umsync(t->head, 0) < 0)
		die("%s: cannot be written: %s", t->path, umerrormsg());
	t->head->finished = 1;
	if (umunmap(t->head, 1) < 0)
		die("%s: cannot be written: %s", t->path, umerrormsg());
}

/* Counts one more of this word. */
static void table_count(struct table *t, const unsigned char *raw, size_t length, uint64_t hash)
{
	struct entry *e = table_find(t, raw, length, hash);

	if (e->count == 0) {
		if (!has_room(t, length)) {
			table_grow(t, length);
			e = table_find(t, raw, length, hash);
		}
		entry_fill(t, e, raw, length, hash);
	}
	e->count++;
	t->now.words++;
}

#endif
