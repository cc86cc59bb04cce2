/* SPDX-License-Identifier: BSD-3-Clause */
/* words.h - finds the words of a text: sequences of the letters A to Z, in lower case. */
#ifndef WORDS_H
#define WORDS_H

#include <stdbool.h>
#include <stddef.h>

static char fold[256]; /* the letter in lower case; 0: not a letter */

static inline void fold_init(void)
{
	for (int c = 'a'; c <= 'z'; c++)
		fold[c] = fold[c - 'a' + 'A'] = (char)c;
}

/* find_record for UMMR_SPLIT_OWN: a record begins after a byte that is no letter, so that no word
 * is divided. */
static inline size_t find_word(const char *data, size_t size, void *arg)
{
	(void)arg;
	for (size_t i = 0; i < size; i++)
		if (!fold[(unsigned char)data[i]])
			return i + 1;
	return 0;
}

/* Finds the next word from *p on, and changes it to lower case. Returns its size, or 0 if there is
 * none before `end`. */
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
