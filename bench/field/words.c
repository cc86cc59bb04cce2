/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions for all ways of counting: words, tasks as lines of a file, additional time of tasks. */
#include <fcntl.h>
#include <sys/stat.h>

#include "kit/common.h"
#include "kit/data.h"
#include "mapreduce.h"

#define LOOKAHEAD_BYTES ((size_t)64 << 10)

char words_fold[256];

__attribute__((constructor)) static void fill_fold(void)
{
	for (int c = 'a'; c <= 'z'; c++)
		words_fold[c] = words_fold[c - 'a' + 'A'] = (char)c;
}

/* FNV-1a with a final mix. Sums of hashes are equal only if the words are the same. */
uint64_t word_hash(const char *word, size_t size)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < size; i++)
		h = (h ^ (unsigned char)word[i]) * 0x100000001b3ull;
	return (h ^ h >> 32) * 0x9e3779b97f4a7c15ull;
}

void counted_add(struct counted *to, const char *word, size_t size, uint64_t count)
{
	to->words += count;
	to->different++;
	to->sum += word_hash(word, size) * count;
}

/* ---- Additional time of tasks ---- */

/* Selects a random quarter of all tasks. */
static bool is_slow(uint64_t task)
{
	uint64_t state = task * 0x9e3779b97f4a7c15ull + 1;

	next_random(&state);
	return next_random(&state) >> 62 == 0;
}

void task_work(const struct words_options *o, uint64_t task)
{
	uint64_t ns = (uint64_t)o->work * 1000000 * (is_slow(task) ? o->times : 1);

	if (ns == 0)
		return;
	if (o->sleeps)
		nanosleep(&(struct timespec){ (time_t)(ns / 1000000000), (long)(ns % 1000000000) },
			  NULL);
	else
		spend_ns(ns);
}

/* ---- Tasks ---- */

uint64_t tasks_of(const struct words_options *o)
{
	return (o->size + o->task - 1) / o->task;
}

static void reserve(char **buffer, size_t *capacity, size_t size)
{
	if (size <= *capacity)
		return;
	*buffer = realloc(*buffer, size);
	*capacity = size;
	if (!*buffer)
		die("no memory for a task of %zu bytes", size);
}

/* Reading begins one byte before the task: this byte tells whether a line begins with the task. */
size_t task_read(const struct words_options *o, int fd, uint64_t task, char **buffer,
		 size_t *capacity)
{
	uint64_t begin = task * o->task;
	uint64_t end = begin + o->task < o->size ? begin + o->task : o->size;
	uint64_t from = begin > 0 ? begin - 1 : 0;
	size_t have = (size_t)(end - from), skip = 0;
	char *newline;

	reserve(buffer, capacity, have);
	read_whole(fd, *buffer, have, from);
	if (begin > 0) {
		newline = memchr(*buffer, '\n', have);
		if (!newline || newline == *buffer + have - 1)
			return 0;
		skip = (size_t)(newline - *buffer) + 1;
	}
	while ((*buffer)[have - 1] != '\n' && from + have < o->size) {
		size_t rest = (size_t)(o->size - from) - have;
		size_t more = rest < LOOKAHEAD_BYTES ? rest : LOOKAHEAD_BYTES;

		reserve(buffer, capacity, have + more);
		read_whole(fd, *buffer + have, more, from + have);
		newline = memchr(*buffer + have, '\n', more);
		have += newline ? (size_t)(newline - *buffer) + 1 - have : more;
	}
	memmove(*buffer, *buffer + skip, have - skip);
	return have - skip;
}
