/* SPDX-License-Identifier: BSD-3-Clause */
/* words.h - the words of a text: runs of the letters A to Z, in lower case. */
#ifndef WORDS_H
#define WORDS_H

#include <stdbool.h>
#include <stddef.h>

static char fold[256]; /* letters in lower case, 0 for everything else */

static inline void fold_init(void)
{
	for (int c = 'a'; c <= 'z'; c++)
		fold[c] = fold[c - 'a' + 'A'] = (char)c;
}

/* For UMMR_SPLIT_OWN: a record begins behind whatever is no letter, so that no word is cut in two. */
static inline size_t find_word(const char *data, size_t size, void *arg)
{
	(void)arg;
	for (size_t i = 0; i < size; i++)
		if (!fold[(unsigned char)data[i]])
			return i + 1;
	return 0;
}

/* The next word from *p on, in lower case where it stands; its size, or 0: there is none before `end`. */
static inline size_t next_word(char **p, char *end, char **word)
{
	char *at = *p, c;

	while (at < end && !fold[(unsigned char)*at])
		at++;
	*word = at;
	for (; at < end && (c = fold[(unsigned char)*at]); at++)
		*at = c;
	*p = at;
	return (size_t)(at - *word);
}

#endif
