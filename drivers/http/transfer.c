/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One exchange with a server: the options of libcurl, the bytes of the answer, and the decision
 * what follows. A byte is stored only after the header of its answer has been judged to fit the
 * request. The bytes that are stored are a prefix of the transfer's range in the same state of the
 * object, so a repetition asks for the rest only.
 */
#include "transfer.h"

#include "common/futex.h"
#include "common/minmax.h"
#include "loop.h"
#include "options.h"
#include "sockets.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OWN_CHANGE_DELAY_MS 20  /* time until a repetition while the handle replaces the object */
#define RECEIVE_BYTES 262144L   /* buffer of libcurl */

static bool is_opening(const struct transfer *t)
{
	return !t->request->io;
}

/* ---- The answer ---- */

static size_t take_line(char *line, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;

	answer_line(&t->answer, line, size * n);
	return size * n;
}

static void judge(struct transfer *t)
{
	struct remote *remote = t->request->remote;
	uint64_t first = t->request->off + t->at;

	if (t->is_judged)
		return;
	t->is_judged = true;
	t->verdict = is_opening(t) ?
		     answer_check_first(&t->answer, &remote->object) :
		     answer_check(&t->answer, &t->expected, first + t->got, first + t->len - 1);
	/* Amazon does not tell the length of an empty object here. */
	if (is_opening(t) && remote->is_s3 && t->answer.status == 416 && !t->answer.total) {
		remote->object.total = 0;
		t->verdict = ANSWER_GOOD;
	}
}

/* Finds the code of an error in the beginning of an answer of S3, <Code>NAME</Code>. */
static void note_code(struct transfer *t, const char *bytes, size_t n)
{
	const char *at = memmem(bytes, n, "<Code>", 6);
	size_t len = 0;

	if (!t->request->remote->is_s3 || !at)
		return;
	for (at += 6; at + len < bytes + n && isalnum((unsigned char)at[len]); len++)
		;
	snprintf(t->code, sizeof(t->code), "%.*s", (int)len, at);
}

/* The first request has all of its bytes of the transfer, which continues with the next one. */
static void pass_to_next(struct transfer *t)
{
	struct request *r = t->request;
	size_t len = r->len - t->at;

	t->request = t->more;
	t->more = t->request->next;
	t->at = 0;
	t->len -= len;
	t->got -= len;
	if (--r->active == 0)
		loop_end(r, 0);
}

static void store_bytes(struct transfer *t, const char *bytes, size_t n)
{
	while (n > 0) {
		const struct request *r = t->request;
		size_t len = t->more ? min_size(n, r->len - t->at - t->got) : n;

		if (!is_opening(t))
			memcpy(r->buf + t->at + t->got, bytes, len);
		t->got += len;
		bytes += len;
		n -= len;
		if (t->more && t->at + t->got == r->len)
			pass_to_next(t);
	}
}

/* Stores bytes of the body. The first byte of an object, or a text about an empty one, is not
 * needed at opening. The result 0 ends the exchange. */
static size_t take_bytes(char *bytes, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;

	n *= size;
	judge(t);
	if (t->verdict != ANSWER_GOOD) {
		note_code(t, bytes, n);
		return 0;
	}
	if (is_opening(t) && t->request->remote->object.total == 0)
		return n;
	if (n > t->len - t->got) {
		t->verdict = ANSWER_BAD;
		return 0;
	}
	store_bytes(t, bytes, n);
	t->received += n;
	return n;
}

/* ---- The exchange ---- */

static CURL *make_easy(struct transfer *t, const struct remote *remote)
{
	CURL *easy = curl_easy_init();

	if (!easy)
		return NULL;
	options_set(easy, remote);
	sockets_watch(easy);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, t);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_line);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, t);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, t);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t->error);
	curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, RECEIVE_BYTES);
	return easy;
}

struct transfer *transfer_take(struct remote *remote)
{
	struct transfer *t = remote->idle;

	if (t) {
		remote->idle = t->next;
	} else {
		t = calloc(1, sizeof(*t));
		if (!t)
			return NULL;
		t->easy = make_easy(t, remote);
		if (!t->easy) {
			free(t);
			return NULL;
		}
	}
	t->more = NULL;
	t->got = 0;
	t->tries = 0;
	t->is_doubtful = t->is_retry_of_url = false;
	remote->active++;
	return t;
}

void transfer_release(struct transfer *t)
{
	struct remote *remote = t->request->remote;

	t->next = remote->idle;
	remote->idle = t;
	remote->active--;
}

void transfer_free(struct remote *remote)
{
	while (remote->idle) {
		struct transfer *t = remote->idle;

		remote->idle = t->next;
		curl_easy_cleanup(t->easy);
		curl_slist_free_all(t->lines);
		free(t);
	}
}

/* The line by which requests state the validator. */
static int add_condition(struct curl_slist **lines, const struct validator *v)
{
	if (*v->etag)
		return options_add_line(lines, "If-Match", v->etag);
	return *v->modified ? options_add_line(lines, "If-Unmodified-Since", v->modified) : 0;
}

/* Takes the version of the object that the answer must be of, and makes the header. */
static int make_lines(struct transfer *t, const char *url)
{
	struct remote *remote = t->request->remote;
	int err;

	futex_lock(&remote->lock);
	t->version = remote->version;
	t->expected = remote->object;
	futex_unlock(&remote->lock);
	curl_slist_free_all(t->lines);
	t->lines = NULL;
	err = add_condition(&t->lines, &t->expected);
	if (!err && remote->sign)
		err = remote->sign(&t->lines, &remote->signer, "GET", url, false);
	return err;
}

int transfer_prepare(struct transfer *t)
{
	const struct remote *remote = t->request->remote;
	const char *url = remote->current_url ? remote->current_url : remote->url;
	uint64_t first = t->request->off + t->at;
	int64_t left = t->request->deadline - loop_now();
	char range[64];

	snprintf(range, sizeof(range), "%llu-%llu", (unsigned long long)(first + t->got),
		 (unsigned long long)(first + t->len - 1));
	memset(&t->answer, 0, sizeof(t->answer));
	t->received = 0;
	t->is_judged = false;
	*t->error = *t->code = '\0';
	if (make_lines(t, url) != 0 || curl_easy_setopt(t->easy, CURLOPT_URL, url) != CURLE_OK ||
	    curl_easy_setopt(t->easy, CURLOPT_RANGE, range) != CURLE_OK)
		return -ENOMEM;
	curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->lines);
	curl_easy_setopt(t->easy, CURLOPT_FRESH_CONNECT, (long)t->is_doubtful);
	t->is_doubtful = false;
	curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, (long)(left > 1 ? left : 1));
	return 0;
}

/* ---- What follows ---- */

static enum outcome fail_with(struct transfer *t, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Stores the reason in remote->why. */
static enum outcome fail_with(struct transfer *t, int err, const char *format, ...)
{
	struct remote *remote = t->request->remote;
	va_list args;

	va_start(args, format);
	futex_lock(&remote->lock);
	vsnprintf(remote->why, sizeof(remote->why), format, args);
	futex_unlock(&remote->lock);
	va_end(args);
	t->request->res = err;
	return OUTCOME_FAILED;
}

/* The reason of a result of libcurl, which has no message for some of them. */
static const char *error_text(const struct transfer *t, CURLcode result)
{
	if (result == CURLE_OK)
		return "the answer has no bytes";
	return options_error_text(result, t->error);
}

static enum outcome repeat(struct transfer *t, CURLcode result)
{
	const struct http_keys *keys = &t->request->remote->keys;
	bool by_status = t->is_judged && t->verdict == ANSWER_REPEAT;

	t->again_at = loop_now() + options_delay(t->tries, &t->answer);
	if (t->tries++ < keys->retries && t->again_at < t->request->deadline)
		return OUTCOME_AGAIN;
	if (by_status)
		return fail_with(t, -EIO, "the server answers with status %u (attempts: "
				 "%u)", t->answer.status, t->tries);
	if (result == CURLE_OPERATION_TIMEDOUT)
		return fail_with(t, -EIO, "the server has not answered in time (key timeout, "
				 "attempts: %u)", t->tries);
	return fail_with(t, -EIO, "%s (attempts: %u)", error_text(t, result), t->tries);
}

/* A redirect may lead to an address that is valid for some time only. Asks the URL itself again,
 * once for each transfer. */
static enum outcome retry_url(struct transfer *t)
{
	struct remote *remote = t->request->remote;

	free(remote->current_url);
	remote->current_url = NULL;
	t->is_retry_of_url = true;
	t->again_at = 0;
	return OUTCOME_AGAIN;
}

/* Whether the answer may be that to an earlier request on the same connection. */
static bool is_misplaced(const struct transfer *t)
{
	return (t->verdict == ANSWER_BAD || t->verdict == ANSWER_CHANGED ||
		t->verdict == ANSWER_NO_RANGES) && t->got < t->len && options_is_reused(t->easy);
}

static enum outcome retry_apart(struct transfer *t)
{
	t->is_doubtful = true;
	t->again_at = 0;
	return OUTCOME_AGAIN;
}

static bool is_other_region(const struct transfer *t)
{
	return t->answer.status / 100 == 3 ||
	       strcmp(t->code, "AuthorizationHeaderMalformed") == 0;
}

/* The reasons of servers for S3. */
static enum outcome refuse_s3(struct transfer *t)
{
	const char *region = t->answer.region, *reason;

	if (is_other_region(t))
		return fail_with(t, -EIO, "the bucket is in another region (status %u)%s%s",
				 t->answer.status, *region ? ". Try region=" : "", region);
	if (strcmp(t->code, "RequestTimeTooSkewed") == 0)
		reason = "the clock of this machine is wrong";
	else if (!t->request->remote->signer.region)
		reason = "the server requires credentials. Try credentials=auto";
	else
		reason = "the server refuses the access. Try other credentials or another key: "
			 "without the right to list a bucket, missing objects are refused too";
	return fail_with(t, is_opening(t) ? -EACCES : -EIO, "%s (status %u%s%s)", reason,
			 t->answer.status, *t->code ? ", " : "", t->code);
}

/* Whether the object is another one because this handle replaces it, or just has. Then the bytes of
 * the request are those of the new version, too. */
static bool is_own_change(struct transfer *t)
{
	const struct remote *remote = t->request->remote;

	t->again_at = loop_now() + OWN_CHANGE_DELAY_MS;
	return remote->is_replacing || t->version != remote->version;
}

/* An answer whose status or fields do not fit. */
static enum outcome refuse_answer(struct transfer *t)
{
	struct remote *remote = t->request->remote;

	if ((t->verdict == ANSWER_DENIED || t->verdict == ANSWER_MISSING) &&
	    remote->current_url && !t->is_retry_of_url)
		return retry_url(t);
	if (remote->is_s3 && (t->verdict == ANSWER_DENIED || is_other_region(t)))
		return refuse_s3(t);
	switch (t->verdict) {
	case ANSWER_CHANGED:
		if (is_own_change(t))
			return OUTCOME_AGAIN;
		remote->lost = t->version;
		return fail_with(t, -EIO, "the object has changed since it was opened. Try to "
				 "map it again");
	case ANSWER_DENIED:
		return fail_with(t, is_opening(t) ? -EACCES : -EIO, "the server refuses the "
				 "access (status %u). Try a user and a password in ~/.netrc",
				 t->answer.status);
	case ANSWER_MISSING:
		return fail_with(t, is_opening(t) ? -ENOENT : -EIO,
				 "there is no such object (status %u)", t->answer.status);
	case ANSWER_NO_RANGES:
		return fail_with(t, is_opening(t) ? -EOPNOTSUPP : -EIO, "the server does not send "
				 "ranges of it. Try whole=yes, which downloads the whole object");
	default:
		break;
	}
	if (t->answer.is_encoded)
		return fail_with(t, -EIO, "the answer of the server is compressed");
	if (t->answer.status == 206)
		return fail_with(t, -EIO, "the answer of the server does not have the bytes that "
				 "were requested");
	return fail_with(t, -EIO, "the server answers with status %u", t->answer.status);
}

/* Remembers the address that redirects have led to. */
static void note_url(const struct transfer *t)
{
	struct remote *remote = t->request->remote;
	char *url = NULL;

	if (remote->current_url ||
	    curl_easy_getinfo(t->easy, CURLINFO_EFFECTIVE_URL, &url) != CURLE_OK || !url)
		return;
	remote->current_url = strdup(url);
}

static void note_pace(const struct transfer *t)
{
	curl_off_t begin = 0, first = 0, end = 0;

	curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &begin);
	curl_easy_getinfo(t->easy, CURLINFO_STARTTRANSFER_TIME_T, &first);
	curl_easy_getinfo(t->easy, CURLINFO_TOTAL_TIME_T, &end);
	if (begin <= first && first <= end)
		range_note(&t->request->remote->pace, (uint64_t)(first - begin),
			   (uint64_t)(end - begin), t->received);
}

enum outcome transfer_finish(struct transfer *t, CURLcode result)
{
	bool is_empty;

	if (result == CURLE_OPERATION_TIMEDOUT)
		sockets_end_stalled(t->easy, options_stall(&t->request->remote->keys));
	result = options_result(t->easy, &t->answer, result);
	/* An answer without a body is judged here. */
	if (t->answer.is_complete && (result == CURLE_OK || t->answer.status >= 400))
		judge(t);
	if (t->is_judged && t->verdict == ANSWER_REPEAT)
		return repeat(t, result);
	if (t->is_judged && is_misplaced(t))
		return retry_apart(t);
	if (t->is_judged && t->verdict != ANSWER_GOOD)
		return refuse_answer(t);
	is_empty = is_opening(t) && t->is_judged && t->request->remote->object.total == 0;
	if (t->got == t->len || (result == CURLE_OK && is_empty)) {
		note_url(t);
		note_pace(t);
		return OUTCOME_DONE;
	}
	/* The server may send a part of the range. */
	if (result == CURLE_OK && t->received > 0) {
		t->again_at = 0;
		return OUTCOME_AGAIN;
	}
	if (result == CURLE_OK || options_is_transient(result))
		return repeat(t, result);
	return fail_with(t, -EIO, "%s", error_text(t, result));
}
