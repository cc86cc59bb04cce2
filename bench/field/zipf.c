/* SPDX-License-Identifier: BSD-3-Clause */
/* zipf - writes a text of short lines in which the word of rank r, of a million words, has the
 * probability 1/r. The same size gives the same text. */
#include <fcntl.h>

#include "kit/common.h"
#include "kit/data.h"

#define WORDS ((size_t)1 << 20)
#define LINE 70 /* letters, about */

/* Letters that stand for a number, the most common words being the shortest: at most 5. */
static size_t put_word(char *to, size_t rank)
{
	size_t length = 0;

	do
		to[length++] = (char)('a' + rank % 26);
	while ((rank /= 26) > 0);
	return length;
}

static double *make_sums(void)
{
	double *sum = malloc(WORDS * sizeof(*sum)), all = 0;

	if (!sum)
		die("no memory for %zu words", WORDS);
	for (size_t i = 0; i < WORDS; i++)
		sum[i] = all += 1.0 / (double)(i + 1);
	return sum;
}

static size_t draw_word(const double *sum, uint64_t *state)
{
	double x = (double)(next_random(state) >> 11) / (double)(1ull << 53) * sum[WORDS - 1];
	size_t low = 0, high = WORDS - 1;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (sum[middle] <= x)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int main(int argc, char **argv)
{
	char buffer[64 * KIB];
	size_t size, used = 0, line = 0;
	uint64_t state = 1, done = 0;
	double *sum;
	int fd;

	if (argc != 3 || argv[1][0] == '-') {
		printf("usage: zipf SIZE FILE\nWrites a text of SIZE bytes whose words are as "
		       "frequent as Zipf has it.\n");
		return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 1;
	}
	size = parse_size("SIZE", argv[1]);
	sum = make_sums();
	fd = open_file(argv[2], O_WRONLY | O_CREAT | O_TRUNC);
	while (done < size) {
		size_t length = put_word(buffer + used, draw_word(sum, &state));

		line = line + length < LINE ? line + length + 1 : 0;
		buffer[used + length] = line ? ' ' : '\n';
		used += length + 1;
		if (used < sizeof(buffer) - 16 && done + used < size)
			continue;
		if (used > size - done)
			used = size - done;
		write_whole(fd, buffer, used, done);
		done += used;
		used = 0;
	}
	close(fd);
	free(sum);
	return 0;
}
