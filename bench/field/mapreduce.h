/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Word count, by several ways of doing it: what is a word, what a task costs besides that, and how a way is called.
 * Records are lines. A word is a run of letters, in lower case; of pairs, two words of a line, one after the other.
 */
#ifndef FIELD_MAPREDUCE_H
#define FIELD_MAPREDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "job.h"

#define WORD_MAX 4096 /* of a pair; what is longer ends there */

struct words_options {
	struct alloc alloc;
	const char *path;       /* the text */
	uint64_t size;          /* of it */
	size_t task;            /* bytes of one */
	bool pairs;             /* count pairs of words */
	unsigned work;          /* milliseconds that a task takes besides its words */
	bool sleeps;            /* in that time; else it computes */
	unsigned times;         /* a quarter of the tasks takes so many times as long */
	const char *storage;    /* NULL: no checkpoints */
	uint32_t sync;          /* tasks between checkpoints; 0: the library's default, UINT32_MAX: there is only storage */
	size_t table;           /* bytes of pairs in a table; 0: the library's default */
	const char *timeline;   /* NULL: none */
};

/* What a way has found: `sum` adds up hash * count of all words. Of this rank's part; main adds up. */
struct counted {
	uint64_t words, different, sum;
	bool ordered;           /* as far as this rank sees, each word came behind the one before */
};

/* Collective. The time is taken around it. */
typedef void count_function(const struct words_options *o);
/* And that what it has found. */
typedef void result_function(const struct words_options *o, struct counted *to);

struct way {
	const char *name, *what;
	count_function *count;  /* NULL: was not built */
	result_function *result;
};

extern const struct way way_1s, way_2s, way_table, way_sandia;

uint64_t word_hash(const char *word, size_t size);
void counted_add(struct counted *to, const char *word, size_t size, uint64_t count);

/* Each word of whole lines in [data, data + size), which are changed. */
typedef bool take_word(const char *word, size_t size, void *arg);

extern char words_fold[256]; /* letters in lower case, 0 for all else */

static inline bool words_each(char *data, size_t size, bool pairs, take_word *take, void *arg)
{
	char *p = data, *end = data + size, pair[WORD_MAX];
	size_t before = 0; /* of pair: a word and a space */

	while (p < end) {
		char *word = p, c;

		for (; p < end && (c = words_fold[(unsigned char)*p]); p++)
			*p = c;
		if (p == word) {
			before = *p++ == '\n' ? 0 : before;
			continue;
		}
		if (!pairs) {
			if (!take(word, (size_t)(p - word), arg))
				return false;
			continue;
		}
		size_t length = (size_t)(p - word) < WORD_MAX / 2 - 1 ? (size_t)(p - word) : WORD_MAX / 2 - 1;

		memcpy(pair + before, word, length);
		if (before > 0 && !take(pair, before + length, arg))
			return false;
		memcpy(pair, word, length);
		pair[length] = ' ';
		before = length + 1;
	}
	return true;
}

/* The time that the task takes besides its words. */
void task_work(const struct words_options *o, uint64_t task);

uint64_t tasks_of(const struct words_options *o);
/* The lines that begin in a task, into *buffer, which is grown by realloc. Returns how many bytes. */
size_t task_read(const struct words_options *o, int fd, uint64_t task, char **buffer, size_t *room);

#endif
