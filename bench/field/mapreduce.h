/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Word count in several ways: the definitions of words and tasks, and the interface of a way.
 * Records are lines. A word is a run of letters, in lower case. A pair is two consecutive words of
 * a line.
 */
#ifndef FIELD_MAPREDUCE_H
#define FIELD_MAPREDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "job.h"

#define MAX_PAIR_BYTES 4096 /* longer pairs are cut */

struct words_options {
	struct alloc alloc;     /* memory of windows */
	const char *path;       /* name of the text */
	uint64_t size;          /* bytes of the text */
	size_t task;            /* bytes of a task */
	bool pairs;             /* whether pairs of words are counted */
	unsigned work;          /* additional milliseconds of each task */
	bool sleeps;            /* whether a task sleeps in this time, instead of computing */
	unsigned times;         /* factor of this time, for a quarter of the tasks */
	const char *storage;    /* folder for windows or checkpoints; NULL: none */
	uint32_t sync;          /* tasks between checkpoints; 0: the default, UINT32_MAX: none */
	size_t table;           /* bytes of pairs in a table; 0: the default */
	const char *timeline;   /* file of events; NULL: none */
};

/* The result of a way at this rank. */
struct counted {
	uint64_t words;     /* number of words */
	uint64_t different; /* number of different words */
	uint64_t sum;       /* sum of hash * count of all words */
	bool ordered;       /* whether each word is greater than the previous one */
};

/* Counts the words; collective. The time of this call is measured. */
typedef void count_function(const struct words_options *o);
/* Returns the result of this rank. */
typedef void result_function(const struct words_options *o, struct counted *to);

struct way {
	const char *name;        /* argument of -m */
	const char *description; /* name for messages */
	count_function *count;   /* NULL: the program was built without this way */
	result_function *result; /* reads the result */
};

extern const struct way way_1s, way_2s, way_table, way_sandia;

uint64_t word_hash(const char *word, size_t size);
void counted_add(struct counted *to, const char *word, size_t size, uint64_t count);

/* Gets a word or a pair. Returns false to end the loop. */
typedef bool take_word(const char *word, size_t size, void *arg);

extern char words_fold[256]; /* letters in lower case; 0 for other bytes */

/* Calls `take` for each word or pair of whole lines. Changes letters to lower case. */
static inline bool words_each(char *data, size_t size, bool pairs, take_word *take, void *arg)
{
	char *p = data, *end = data + size, pair[MAX_PAIR_BYTES];
	size_t before = 0; /* bytes of the previous word and a space */

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
		size_t length = (size_t)(p - word);

		if (length > MAX_PAIR_BYTES / 2 - 1)
			length = MAX_PAIR_BYTES / 2 - 1;
		memcpy(pair + before, word, length);
		if (before > 0 && !take(pair, before + length, arg))
			return false;
		memcpy(pair, word, length);
		pair[length] = ' ';
		before = length + 1;
	}
	return true;
}

/* Takes the additional time of the task. */
void task_work(const struct words_options *o, uint64_t task);

uint64_t tasks_of(const struct words_options *o);
/* Reads the lines that begin in a task into *buffer, which realloc(3) enlarges. Returns their
 * bytes. */
size_t task_read(const struct words_options *o, int fd, uint64_t task, char **buffer,
		 size_t *capacity);

#endif
