/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads headers of servers, which are not trusted: an answer is good only if its fields say that
 * the body has exactly the bytes of the request, in the expected state of the object. No function
 * allocates or reads beyond a line.
 */
#include "answer.h"

#include <string.h>
#include <strings.h>

/* A part of a line. */
struct text {
	const char *at, *end;
};

static void skip_blanks(struct text *t)
{
	while (t->at < t->end && (*t->at == ' ' || *t->at == '\t'))
		t->at++;
}

static bool skip_char(struct text *t, char c)
{
	if (t->at == t->end || *t->at != c)
		return false;
	t->at++;
	return true;
}

static bool skip_word(struct text *t, const char *word)
{
	size_t len = strlen(word);

	if ((size_t)(t->end - t->at) < len || strncasecmp(t->at, word, len) != 0)
		return false;
	t->at += len;
	return true;
}

/* Reads a decimal number of at least one digit, which fits into 63 bits. */
static bool read_number(struct text *t, uint64_t *number)
{
	const char *begin = t->at;
	uint64_t n = 0;

	for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
		if (n > (INT64_MAX - 9) / 10)
			return false;
		n = n * 10 + (uint64_t)(*t->at - '0');
	}
	*number = n;
	return t->at > begin;
}

/* Copies the rest of a line, if it fits and has only printable characters; else stores "". */
static void copy_value(const struct text *t, char *to, size_t room)
{
	size_t len = (size_t)(t->end - t->at);

	*to = '\0';
	if (len >= room)
		return;
	for (size_t i = 0; i < len; i++) {
		if (t->at[i] < ' ' || t->at[i] > '~')
			return;
	}
	memcpy(to, t->at, len);
	to[len] = '\0';
}

/* Forms: bytes FIRST-LAST/TOTAL, with a star for an unknown total or for no range. */
static void read_range(struct answer *a, struct text t)
{
	bool has_range, has_total;
	uint64_t first = 0, last = 0, total = 0;

	if (a->has_range || a->has_total) {
		a->is_malformed = true;
		return;
	}
	if (!skip_word(&t, "bytes"))
		return;
	skip_blanks(&t);
	has_range = !skip_char(&t, '*');
	if (has_range && (!read_number(&t, &first) || !skip_char(&t, '-') ||
			  !read_number(&t, &last) || last < first))
		return;
	if (!skip_char(&t, '/'))
		return;
	has_total = !skip_char(&t, '*');
	if ((has_total && !read_number(&t, &total)) || t.at != t.end)
		return;
	if (has_range && has_total && last >= total)
		return;
	a->has_range = has_range;
	a->has_total = has_total;
	a->first = first;
	a->last = last;
	a->total = total;
}

static void read_length(struct answer *a, struct text t)
{
	uint64_t length;

	if (!read_number(&t, &length) || t.at != t.end || (a->has_length && a->length != length)) {
		a->is_malformed = true;
		return;
	}
	a->has_length = true;
	a->length = length;
}

/* A weak ETag may be equal for different bytes. */
static void read_etag(struct answer *a, struct text t)
{
	bool is_strong = t.end - t.at >= 2 && *t.at == '"' && t.end[-1] == '"';

	if (*a->etag)
		a->is_malformed = true;
	else if (is_strong)
		copy_value(&t, a->etag, sizeof(a->etag));
}

/* Dates instead of seconds are ignored. */
static void read_retry_after(struct answer *a, struct text t)
{
	uint64_t seconds;

	if (read_number(&t, &seconds) && t.at == t.end)
		a->retry_after = seconds < 86400 ? (unsigned)seconds : 86400;
}

static void read_status(struct answer *a, struct text t)
{
	uint64_t status;

	memset(a, 0, sizeof(*a));
	while (t.at < t.end && *t.at != ' ')
		t.at++;
	skip_blanks(&t);
	if (read_number(&t, &status) && status >= 100 && status <= 999)
		a->status = (unsigned)status;
}

void answer_line(struct answer *a, const char *line, size_t len)
{
	struct text t = { line, line + len };

	while (t.end > t.at && strchr("\r\n \t", t.end[-1]))
		t.end--;
	if (t.at == t.end) {
		a->is_complete = true;
	} else if (skip_word(&t, "HTTP/")) {
		read_status(a, t);
	} else if (skip_word(&t, "content-range:")) {
		skip_blanks(&t);
		read_range(a, t);
	} else if (skip_word(&t, "content-length:")) {
		skip_blanks(&t);
		read_length(a, t);
	} else if (skip_word(&t, "content-encoding:")) {
		skip_blanks(&t);
		a->is_encoded |= !skip_word(&t, "identity") || t.at != t.end;
	} else if (skip_word(&t, "transfer-encoding:")) {
		skip_blanks(&t);
		a->is_chunked = skip_word(&t, "chunked") && t.at == t.end;
	} else if (skip_word(&t, "etag:")) {
		skip_blanks(&t);
		read_etag(a, t);
	} else if (skip_word(&t, "last-modified:")) {
		skip_blanks(&t);
		copy_value(&t, a->modified, sizeof(a->modified));
	} else if (skip_word(&t, "date:")) {
		skip_blanks(&t);
		copy_value(&t, a->date, sizeof(a->date));
	} else if (skip_word(&t, "x-amz-bucket-region:")) {
		skip_blanks(&t);
		copy_value(&t, a->region, sizeof(a->region));
	} else if (skip_word(&t, "x-amz-meta-ummap-version:")) {
		skip_blanks(&t);
		copy_value(&t, a->mark, sizeof(a->mark));
	} else if (skip_word(&t, "retry-after:")) {
		skip_blanks(&t);
		read_retry_after(a, t);
	}
}

/* The verdict that the status alone allows. */
static enum verdict check_status(const struct answer *a)
{
	switch (a->status) {
	case 206:
		return ANSWER_GOOD;
	case 200:
		return ANSWER_NO_RANGES;
	case 401: case 403: case 407:
		return ANSWER_DENIED;
	case 404: case 410:
		return ANSWER_MISSING;
	case 412: case 416:
		return ANSWER_CHANGED;
	case 408: case 429: case 500: case 502: case 503: case 504:
		return ANSWER_REPEAT;
	default:
		return ANSWER_BAD;
	}
}

bool answer_is_busy(const struct answer *a)
{
	return check_status(a) == ANSWER_REPEAT;
}

/* Whether the body can be the range [first, last], or its beginning. */
static bool fits_range(const struct answer *a, uint64_t first, uint64_t last)
{
	return a->has_range && a->has_total && !a->is_malformed && !a->is_encoded &&
	       a->first == first && a->last <= last &&
	       (!a->has_length || a->length == a->last - a->first + 1);
}

enum verdict answer_check(const struct answer *a, const struct validator *v, uint64_t first,
			  uint64_t last)
{
	enum verdict verdict = check_status(a);

	if (verdict != ANSWER_GOOD)
		return verdict;
	if (*v->etag ? strcmp(a->etag, v->etag) != 0 : strcmp(a->modified, v->modified) != 0)
		return ANSWER_CHANGED;
	if (a->has_total && a->total != v->total)
		return ANSWER_CHANGED;
	return fits_range(a, first, last) ? ANSWER_GOOD : ANSWER_BAD;
}

enum verdict answer_check_first(const struct answer *a, struct validator *v)
{
	bool is_empty = (a->status == 200 && a->has_length && a->length == 0) ||
			(a->status == 416 && a->has_total && a->total == 0);
	enum verdict verdict = check_status(a);

	memset(v, 0, sizeof(*v));
	strcpy(v->etag, a->etag);
	strcpy(v->modified, *a->etag ? "" : a->modified);
	if (is_empty && !a->is_malformed && !a->is_encoded)
		return ANSWER_GOOD;
	if (verdict == ANSWER_CHANGED)
		return ANSWER_BAD;
	if (verdict != ANSWER_GOOD)
		return verdict;
	v->total = a->total;
	return fits_range(a, 0, 0) ? ANSWER_GOOD : ANSWER_BAD;
}
