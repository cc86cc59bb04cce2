/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Headers of web servers: whatever their lines are, an answer that counts as good says that its
 * body has bytes of the request, of the object that was opened. The first byte of an input chooses
 * the request, and the others are the lines.
 */
#include "fuzz.h"

#include "drivers/http/answer.h"

static void read_lines(struct answer *a, const uint8_t *data, size_t size)
{
	const uint8_t *end = data + size;

	while (data < end) {
		const uint8_t *newline = memchr(data, '\n', (size_t)(end - data));
		size_t len = newline ? (size_t)(newline + 1 - data) : (size_t)(end - data);
		char *line = malloc(len);

		/* A line of its own, so that the sanitizer sees accesses beyond its end. */
		memcpy(line, data, len);
		answer_line(a, line, len);
		free(line);
		data += len;
	}
}

static void check_good(const struct answer *a, uint64_t first, uint64_t last)
{
	must(a->status == 206 && !a->is_encoded && !a->is_malformed);
	must(a->has_range && a->has_total && a->first == first);
	must(a->last >= first && a->last <= last && a->last < a->total);
	must(!a->has_length || a->length == a->last - a->first + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct validator object = { .etag = "\"1\"", .total = 1000 }, opened;
	struct answer a = { .status = 0 };
	uint64_t first, last;

	if (size == 0)
		return 0;
	first = data[0] & 1 ? 100 : 0;
	last = data[0] & 2 ? 199 : 999;
	if (data[0] & 4) {
		*object.etag = '\0';
		strcpy(object.modified, "Thu, 26 Nov 2026 10:00:00 GMT");
	}
	read_lines(&a, data + 1, size - 1);
	must(strlen(a.etag) < sizeof(a.etag) && strlen(a.modified) < sizeof(a.modified));
	if (answer_check(&a, &object, first, last) == ANSWER_GOOD) {
		check_good(&a, first, last);
		must(a.total == object.total);
		must(*object.etag ? strcmp(a.etag, object.etag) == 0 :
		     strcmp(a.modified, object.modified) == 0);
	}
	if (answer_check_first(&a, &opened) == ANSWER_GOOD && opened.total > 0)
		check_good(&a, 0, 0);
	return 0;
}
