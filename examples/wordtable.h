/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wordtable.h - the hash table of wordcount, in a mapped file.
 *
 * The file has a header, `capacity` entries, and space for words that are too long for an entry.
 * The top bits of a word's hash are the index of its entry; if that entry is taken, the word is in
 * the next free one. Callers pass words as they are in the text; the table compares and stores them
 * in lower case.
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
#define STRING_BYTES_PER_ENTRY 8 /* space for long words */

struct header {
	char magic[8];
	uint64_t version;
	uint64_t finished; /* 1: the whole text was counted, and the whole table is on storage */
	uint64_t capacity; /* number of entries, a power of two */
	uint64_t strings;  /* bytes used by long words */
	uint64_t bytes;    /* bytes of the text */
	uint64_t words;    /* words of the text */
	uint64_t distinct; /* different words of the text */
};

struct entry {
	uint64_t count; /* occurrences of the word; 0: the entry is free */
	uint64_t hash;
	uint64_t length;
	union {
		char text[40]; /* word of at most 40 letters */
		uint64_t at;   /* offset of a longer word in the space for long words */
	};
};

struct table {
	struct header *header;
	struct entry *entries;
	char *strings;       /* space for long words */
	const char *path;
	size_t size;         /* bytes of the mapping */
	size_t seg_size;     /* bytes of a segment */
	struct header state; /* current header, in memory, because it changes with each word;
				save_table stores it in *header */
};

static unsigned char fold[256];      /* lower-case form of a letter; 0 for other bytes */
static const char *unfinished_path;  /* larger table during grow_table; die removes it */

/* Prints an error message and ends the program. The program defines this function. */
static void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

static void init_fold(void)
{
	for (int c = 'a'; c <= 'z'; c++)
		fold[c] = fold[c - 'a' + 'A'] = (unsigned char)c;
}

static const uint64_t hash_seed = 0x6a09e667f3bcc909;

static inline uint64_t add_to_hash(uint64_t hash, unsigned char letter)
{
	return (hash ^ letter) * 0x9e3779b97f4a7c15;
}

/* Mixes the bits, because the table uses only the top bits. */
static inline uint64_t finish_hash(uint64_t hash)
{
	hash ^= hash >> 31;
	hash *= 0x9e3779b97f4a7c15;
	return hash ^ hash >> 29;
}

static size_t table_size(uint64_t capacity)
{
	return sizeof(struct header) + capacity * (sizeof(struct entry) + STRING_BYTES_PER_ENTRY);
}

/* Returns the capacity of a table for so many entries. */
static uint64_t capacity_for(uint64_t entries)
{
	uint64_t capacity = TABLE_MIN_ENTRIES;

	while (capacity < entries)
		capacity *= 2;
	return capacity;
}

static void set_pointers(struct table *t, void *base)
{
	t->header = base;
	t->entries = (struct entry *)(t->header + 1);
	t->strings = (char *)(t->entries + t->state.capacity);
}

/* Opens a file that will be overwritten. Refuses a file that is neither empty nor a table. */
static int open_for_table(const char *path)
{
	char magic[sizeof(TABLE_MAGIC)];
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

	if (fd < 0)
		die("cannot open '%s': %s", path, strerror(errno));
	ssize_t got = pread(fd, magic, sizeof(magic), 0);
	if (got < 0)
		die("cannot read '%s': %s", path, strerror(errno));
	if (got > 0 && (got < (ssize_t)sizeof(magic) ||
			memcmp(magic, TABLE_MAGIC, sizeof(magic)) != 0))
		die("cannot overwrite '%s': it is not a table of wordcount. Try another --table",
		    path);
	return fd;
}

static void create_table(struct table *t, const char *path, uint64_t capacity, size_t seg_size)
{
	void *base;
	int fd = open_for_table(path);

	*t = (struct table){ .path = path, .size = table_size(capacity), .seg_size = seg_size };
	t->state = (struct header){ .magic = TABLE_MAGIC,
				    .version = TABLE_VERSION,
				    .capacity = capacity };
	/* The header is written first, so that a later run may overwrite the file if this run is
	 * killed. */
	if (ftruncate(fd, 0) < 0 ||
	    pwrite(fd, &t->state, sizeof(t->state), 0) != (ssize_t)sizeof(t->state) ||
	    ftruncate(fd, (off_t)t->size) < 0)
		die("cannot write '%s': %s", path, strerror(errno));
	/* read_file is 0, because the rest of the file is zeros, which need not be read. */
	if (ummap(t->size, seg_size, PROT_READ | PROT_WRITE, fd, 0, -1, 0, UMMAP_PTYPE_PLRU,
		  &base) < 0)
		die("cannot map '%s': %s", path, umerrormsg());
	close(fd);
	if (umadvise(base, t->size, UMMAP_ADV_RANDOM) < 0)
		die("cannot set advice for '%s': %s", path, umerrormsg());
	set_pointers(t, base);
	*t->header = t->state;
}

static void open_table(struct table *t, const char *path, size_t seg_size)
{
	void *base;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	*t = (struct table){ .path = path, .seg_size = seg_size };
	if (fd < 0 || fstat(fd, &st) < 0)
		die("cannot open '%s': %s", path, strerror(errno));
	if (pread(fd, &t->state, sizeof(t->state), 0) != (ssize_t)sizeof(t->state) ||
	    memcmp(t->state.magic, TABLE_MAGIC, sizeof(TABLE_MAGIC)) != 0 ||
	    t->state.version != TABLE_VERSION)
		die("cannot read '%s': it is not a table of wordcount", path);
	if (!t->state.finished)
		die("cannot use '%s': the count was not finished. Try to count the text again",
		    path);
	if (t->state.capacity < TABLE_MIN_ENTRIES || t->state.capacity > TABLE_MAX_ENTRIES ||
	    (t->state.capacity & (t->state.capacity - 1)) != 0 ||
	    (uint64_t)st.st_size != table_size(t->state.capacity) ||
	    t->state.distinct >= t->state.capacity)
		die("cannot read '%s': it is damaged. Try to count the text again", path);
	t->size = (size_t)st.st_size;
	if (ummap(t->size, seg_size, PROT_READ, fd, 0, -1, 1, UMMAP_PTYPE_PLRU, &base) < 0)
		die("cannot map '%s': %s", path, umerrormsg());
	close(fd);
	set_pointers(t, base);
}

static const char *entry_word(const struct table *t, const struct entry *e)
{
	return e->length <= sizeof(e->text) ? e->text : t->strings + e->at;
}

static bool is_same_word(const char *stored, const unsigned char *raw, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)stored[i] != fold[raw[i]])
			return false;
	return true;
}

/* Returns the entry of a word, or the free entry for it. has_room ensures that there is one. */
static struct entry *find_entry(const struct table *t, const unsigned char *raw, size_t length,
				uint64_t hash)
{
	uint64_t mask = t->state.capacity - 1;
	/* With the top bits, entries keep their order in a larger table, so that grow_table
	 * accesses both tables sequentially. */
	uint64_t i = hash >> (64 - __builtin_ctzll(t->state.capacity));

	for (;; i = (i + 1) & mask) {
		struct entry *e = &t->entries[i];
		if (e->count == 0)
			return e;
		if (e->hash == hash && e->length == length &&
		    is_same_word(entry_word(t, e), raw, length))
			return e;
	}
}

static bool has_room(const struct table *t, size_t length)
{
	uint64_t room = t->state.capacity * STRING_BYTES_PER_ENTRY - t->state.strings;

	return t->state.distinct < t->state.capacity / 4 * 3 &&
	       (length <= sizeof(t->entries->text) || length <= room);
}

static void fill_entry(struct table *t, struct entry *e, const unsigned char *raw, size_t length,
		       uint64_t hash)
{
	char *to = e->text;

	e->hash = hash;
	e->length = length;
	if (length > sizeof(e->text)) {
		e->at = t->state.strings;
		to = t->strings + e->at;
		t->state.strings += length;
	}
	for (size_t i = 0; i < length; i++)
		to[i] = (char)fold[raw[i]];
	t->state.distinct++;
}

/* Moves all entries to a larger table, with space for a word of this length. The new table is in
 * another file, which then replaces the old one. */
static void grow_table(struct table *old, size_t length)
{
	struct table new;
	char *path;
	uint64_t capacity = old->state.capacity * 2;

	while (capacity * STRING_BYTES_PER_ENTRY - old->state.strings < length)
		capacity *= 2;
	if (asprintf(&path, "%s.grow", old->path) < 0)
		die("cannot allocate memory");
	create_table(&new, path, capacity, old->seg_size);
	unfinished_path = path;
	if (umadvise(old->header, old->size, UMMAP_ADV_SEQUENTIAL) < 0)
		die("cannot set advice for '%s': %s", old->path, umerrormsg());
	for (uint64_t i = 0; i < old->state.capacity; i++) {
		const struct entry *from = &old->entries[i];
		if (from->count == 0)
			continue;
		const unsigned char *word = (const unsigned char *)entry_word(old, from);
		struct entry *to = find_entry(&new, word, from->length, from->hash);
		fill_entry(&new, to, word, from->length, from->hash);
		to->count = from->count;
	}
	new.state.words = old->state.words;
	new.path = old->path;
	if (umunmap(old->header, 0) < 0)
		die("cannot end the mapping of '%s': %s", old->path, umerrormsg());
	if (rename(path, old->path) < 0)
		die("cannot replace '%s': %s", old->path, strerror(errno));
	unfinished_path = NULL;
	free(path);
	*old = new;
}

/* Writes the whole table to storage, and then marks it as finished. */
static void save_table(struct table *t)
{
	*t->header = t->state;
	if (umsync(t->header, 0) < 0)
		die("cannot write '%s': %s", t->path, umerrormsg());
	t->header->finished = 1;
	if (umunmap(t->header, 1) < 0)
		die("cannot write '%s': %s", t->path, umerrormsg());
}

/* Adds 1 to the count of a word. */
static void count_word(struct table *t, const unsigned char *raw, size_t length, uint64_t hash)
{
	struct entry *e = find_entry(t, raw, length, hash);

	if (e->count == 0) {
		if (!has_room(t, length)) {
			grow_table(t, length);
			e = find_entry(t, raw, length, hash);
		}
		fill_entry(t, e, raw, length, hash);
	}
	e->count++;
	t->state.words++;
}

#endif
