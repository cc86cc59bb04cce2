/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that makes calls takes a caller, which has connections, and gives it back afterwards.
 * The lock protects the list of idle callers only.
 */
#include "s3_calls.h"

#include "common/minmax.h"
#include "loop.h"
#include "options.h"
#include "s3_sign.h"
#include "sockets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARALLEL 16
#define MAX_ANSWER_BYTES ((size_t)64 << 20)
#define MAX_POLL_MS 1000

/* One exchange with the server at a time. */
struct exchange {
	CURL *easy;
	struct s3_call *call;          /* NULL: none */
	bool runs;                     /* whether libcurl works on it */
	bool is_unquoted;              /* whether the condition has an ETag without quotes */
	int64_t again_at;              /* time in ms of the next exchange */
	int64_t deadline;              /* time in ms from which on there are no repetitions */
	size_t sent;                   /* bytes of the body that were sent */
	bool is_early;                 /* whether a good header came before all of them were sent */
	char *url;
	struct curl_slist *lines;
	char error[CURL_ERROR_SIZE];   /* message of libcurl */
};

struct caller {
	struct caller *next;
	CURLM *multi;
	struct exchange exchanges[MAX_PARALLEL];
};

struct s3_calls {
	const struct remote *remote;
	pthread_mutex_t lock;          /* protects `idle` */
	struct caller *idle;
};

/* The calls of one s3_run. */
struct batch {
	struct s3_calls *s;
	struct caller *caller;
	struct s3_call *calls;
	unsigned n, next;              /* number of calls, and of those that have begun */
	int err;                       /* first error */
	s3_call_fn *begin, *end;
	void *arg;
};

/* ---- The bytes of an exchange ---- */

static size_t body_bytes(const struct s3_call *call)
{
	size_t bytes = 0;

	for (int i = 0; i < call->nbody; i++)
		bytes += call->body[i].iov_len;
	return bytes;
}

static size_t give_bytes(char *to, size_t size, size_t n, void *arg)
{
	struct exchange *x = arg;
	size_t room = size * n, given = 0, skip = x->sent;

	for (int i = 0; i < x->call->nbody && given < room; i++) {
		const struct iovec *v = &x->call->body[i];
		size_t len = skip < v->iov_len ? min_size(v->iov_len - skip, room - given) : 0;

		memcpy(to + given, (const char *)v->iov_base + min_size(skip, v->iov_len), len);
		given += len;
		skip -= min_size(skip, v->iov_len);
	}
	x->sent += given;
	return given;
}

/* libcurl sends the body again if a connection that it has used before is gone. */
static int rewind_body(void *arg, curl_off_t offset, int origin)
{
	struct exchange *x = arg;

	if (origin != SEEK_SET)
		return CURL_SEEKFUNC_FAIL;
	x->sent = (size_t)offset;
	return CURL_SEEKFUNC_OK;
}

static bool is_good(const struct s3_call *call)
{
	return call->head.status / 100 == 2;
}

static size_t take_line(char *line, size_t size, size_t n, void *arg)
{
	struct exchange *x = arg;

	answer_line(&x->call->head, line, size * n);
	x->is_early = is_good(x->call) && x->sent < body_bytes(x->call);
	return size * n;
}

static bool append_answer(struct s3_call *call, const char *bytes, size_t len)
{
	char *longer;

	if (call->got + len > MAX_ANSWER_BYTES)
		return false;
	longer = realloc(call->answer, call->got + len + 1);
	if (!longer)
		return false;
	memcpy(longer + call->got, bytes, len);
	call->answer = longer;
	call->got += len;
	longer[call->got] = '\0';
	return true;
}

static size_t take_bytes(char *bytes, size_t size, size_t n, void *arg)
{
	struct s3_call *call = ((struct exchange *)arg)->call;

	n *= size;
	if (!call->to || !is_good(call))
		return append_answer(call, bytes, n) ? n : 0;
	if (n > call->room - call->got) {
		call->res = -EOVERFLOW;
		return 0;
	}
	memcpy(call->to + call->got, bytes, n);
	call->got += n;
	return n;
}

/* ---- Elements of answers ---- */

/* Decodes the text before `end`. Returns false if it does not fit. */
static bool decode(const char *at, const char *end, char *text, size_t room)
{
	static const char *const names[] = { "&quot;", "&amp;", "&lt;", "&gt;", "&apos;",
					     "&#34;", "&#39;", "&#38;" };
	size_t len = 0;

	while (at < end && len + 1 < room) {
		size_t i = 0, n = sizeof(names) / sizeof(*names);

		while (i < n && strncmp(at, names[i], strlen(names[i])) != 0)
			i++;
		text[len++] = i < n ? "\"&<>'\"'&"[i] : *at;
		at += i < n ? strlen(names[i]) : 1;
	}
	text[len] = '\0';
	return at >= end;
}

bool s3_element(const char **at, const char *name, char *text, size_t room)
{
	char mark[40];
	const char *begin, *end;

	snprintf(mark, sizeof(mark), "<%s>", name);
	begin = *at ? strstr(*at, mark) : NULL;
	if (!begin)
		return false;
	begin += strlen(mark);
	snprintf(mark, sizeof(mark), "</%s>", name);
	end = strstr(begin, mark);
	if (!end || !decode(begin, end, text, room))
		return false;
	*at = end + strlen(mark);
	return true;
}

/* ---- An exchange ---- */

static char *make_url(const struct remote *remote, const struct s3_call *call)
{
	int len = call->is_bucket ? (int)remote->bucket_len : (int)strlen(remote->url);
	char *url;

	if (asprintf(&url, "%.*s%s%s%s", len, remote->url, call->key ? call->key : "",
		     call->query ? "?" : "", call->query ? call->query : "") < 0)
		return NULL;
	return url;
}

static void set_method(CURL *easy, const struct s3_call *call)
{
	if (call->method[0] == 'P') {
		curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)body_bytes(call));
	}
	if (call->method[0] == 'H')
		curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	else if (call->method[0] != 'G')
		curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, call->method);
}

static int add_condition(struct exchange *x)
{
	const char *etag = x->call->etag;
	char bare[MAX_ETAG_BYTES];

	if (!etag)
		return 0;
	if (!*etag)
		return options_add_line(&x->lines, "If-None-Match", "*");
	snprintf(bare, sizeof(bare), "%.*s", (int)strcspn(etag + 1, "\""), etag + 1);
	return options_add_line(&x->lines, "If-Match", x->is_unquoted ? bare : etag);
}

static int make_lines(struct exchange *x, const struct remote *remote)
{
	int err;

	curl_slist_free_all(x->lines);
	x->lines = NULL;
	err = add_condition(x);
	for (const struct curl_slist *l = x->call->lines; l && !err; l = l->next)
		err = options_add_line(&x->lines, NULL, l->data);
	return err ? err : s3_sign(&x->lines, &remote->signer, x->call->method, x->url,
				   body_bytes(x->call) > 0);
}

static int set_options(struct exchange *x, const struct remote *remote)
{
	CURL *easy = x->easy;
	int64_t now = loop_now();

	curl_easy_reset(easy);
	options_set(easy, remote);
	/* The answer to another request may have come instead of the expected one. */
	curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, (long)x->is_early);
	sockets_watch(easy);
	/* A server may be busy for a while before it answers that it has copied or put together the
	 * parts of an object. */
	options_limit_stall(easy, &remote->keys);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_line);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, x);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, x);
	curl_easy_setopt(easy, CURLOPT_READFUNCTION, give_bytes);
	curl_easy_setopt(easy, CURLOPT_READDATA, x);
	curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, rewind_body);
	curl_easy_setopt(easy, CURLOPT_SEEKDATA, x);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, x->error);
	curl_easy_setopt(easy, CURLOPT_RANGE, x->call->range);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, x->lines);
	set_method(easy, x->call);
	if (x->call->end)
		curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
				 (long)(x->call->end > now ? x->call->end - now : 1));
	return curl_easy_setopt(easy, CURLOPT_URL, x->url) == CURLE_OK ? 0 : -ENOMEM;
}

static int prepare_exchange(struct exchange *x, const struct remote *remote)
{
	if (!x->easy && !(x->easy = curl_easy_init()))
		return -ENOMEM;
	if ((!x->url && !(x->url = make_url(remote, x->call))) || make_lines(x, remote) != 0)
		return -ENOMEM;
	free(x->call->answer);
	x->call->answer = NULL;
	x->call->got = x->sent = 0;
	x->call->res = 0;
	x->call->tries++;
	memset(&x->call->head, 0, sizeof(x->call->head));
	*x->error = '\0';
	return set_options(x, remote);
}

static void end_call(struct batch *b, struct exchange *x)
{
	struct s3_call *call = x->call;

	curl_slist_free_all(x->lines);
	x->lines = NULL;
	free(x->url);
	x->url = NULL;
	x->call = NULL;
	if (!call->res && b->end)
		call->res = b->end(b->arg, call);
	if (call->res && !b->err)
		b->err = call->res;
}

static void begin_exchange(struct batch *b, struct exchange *x)
{
	int err = prepare_exchange(x, b->s->remote);

	if (!err && curl_multi_add_handle(b->caller->multi, x->easy) != CURLM_OK)
		err = -ENOMEM;
	x->runs = !err;
	if (!err)
		return;
	snprintf(x->call->why, sizeof(x->call->why), "there is not enough memory");
	x->call->res = err;
	end_call(b, x);
}

/* ---- Results ---- */

/* The code of an error, which may also follow a good status of a change; "": none. */
static void find_code(const struct s3_call *call, char *code, size_t room)
{
	const char *at = call->answer;

	*code = '\0';
	if (at && (*call->method == 'P' || !is_good(call)) && strstr(at, "<Error>"))
		s3_element(&at, "Code", code, room);
}

/* Ceph's server, at least up to version 16, compares an ETag in quotes with the ETag without them,
 * and refuses each change with a condition. */
static bool try_unquoted(struct exchange *x, CURLcode result)
{
	const struct s3_call *call = x->call;

	if (result != CURLE_OK || call->head.status != 412 || x->is_unquoted || !call->etag ||
	    *call->etag != '"')
		return false;
	x->is_unquoted = true;
	return true;
}

static bool may_repeat(const struct s3_call *call, CURLcode result, const char *code)
{
	if (result != CURLE_OK)
		return options_is_transient(result) && call->res == 0;
	switch (call->head.status) {
	case 408: case 409: case 429: case 500: case 502: case 503: case 504:
		return true;
	default:
		return is_good(call) && *code;
	}
}

static int error_of_status(unsigned status)
{
	switch (status) {
	case 404:
		return -ENOENT;
	case 412:
		return -ESTALE;
	case 416:
		return -ERANGE;
	case 401: case 403:
		return -EACCES;
	default:
		return -EIO;
	}
}

/* Stores the result of a call that is not repeated. */
static void set_result(struct exchange *x, CURLcode result, const char *code)
{
	struct s3_call *call = x->call;

	if (result == CURLE_OK && is_good(call) && !*code)
		return;
	if (!call->res)
		call->res = result == CURLE_OK ? error_of_status(call->head.status) : -EIO;
	if (result != CURLE_OK)
		snprintf(call->why, sizeof(call->why), "%.150s (attempts: %u)",
			 options_error_text(result, x->error), call->tries);
	else
		snprintf(call->why, sizeof(call->why), "the server answers with status %u%s%.60s",
			 call->head.status, *code ? ", " : "", code);
}

static void finish_exchange(struct batch *b, struct exchange *x, CURLcode result)
{
	struct s3_call *call = x->call;
	char code[60];

	if (result == CURLE_OPERATION_TIMEDOUT)
		sockets_end_stalled(x->easy, (long)b->s->remote->keys.timeout);
	/* A server that answers before it has the whole body has not stored the body. */
	if (result == CURLE_OK && x->is_early)
		result = CURLE_SEND_ERROR;
	find_code(call, code, sizeof(code));
	curl_multi_remove_handle(b->caller->multi, x->easy);
	x->runs = false;
	if (try_unquoted(x, result)) {
		x->again_at = loop_now();
		return;
	}
	x->again_at = loop_now() + options_delay(call->tries - 1, &call->head);
	if (may_repeat(call, result, code) && call->tries <= b->s->remote->keys.retries &&
	    x->again_at < x->deadline)
		return;
	set_result(x, result, code);
	end_call(b, x);
}

static struct exchange *find_exchange(struct caller *c, const CURL *easy)
{
	struct exchange *x = c->exchanges;

	while (x->easy != easy)
		x++;
	return x;
}

/* Returns whether an exchange has ended. */
static bool finish_exchanges(struct batch *b)
{
	struct exchange *x;
	bool any = false;
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(b->caller->multi, &left))) {
		if (message->msg != CURLMSG_DONE)
			continue;
		x = find_exchange(b->caller, message->easy_handle);
		finish_exchange(b, x, options_result(x->easy, &x->call->head,
						     message->data.result));
		any = true;
	}
	return any;
}

/* ---- A batch ---- */

static struct caller *take_caller(struct s3_calls *s)
{
	struct caller *c;

	pthread_mutex_lock(&s->lock);
	c = s->idle;
	if (c)
		s->idle = c->next;
	pthread_mutex_unlock(&s->lock);
	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (c && !(c->multi = curl_multi_init())) {
		free(c);
		c = NULL;
	}
	return c;
}

static void give_caller(struct s3_calls *s, struct caller *c)
{
	pthread_mutex_lock(&s->lock);
	c->next = s->idle;
	s->idle = c;
	pthread_mutex_unlock(&s->lock);
}

static void begin_call(struct batch *b, struct exchange *x)
{
	x->call = &b->calls[b->next++];
	x->again_at = 0;
	x->deadline = x->call->end ? x->call->end :
		      loop_now() + (int64_t)b->s->remote->keys.timeout * 1000;
	x->call->tries = 0;
	x->is_unquoted = x->is_early = false;
	if (b->begin)
		x->call->res = b->begin(b->arg, x->call);
	if (x->call->res)
		end_call(b, x);
	else
		begin_exchange(b, x);
}

/* Begins calls and repetitions. Returns the number of calls that have not ended. *wait: ms until
 * the next repetition. */
static unsigned begin_exchanges(struct batch *b, unsigned parallel, int *wait)
{
	int64_t now = loop_now();
	unsigned active = 0;

	*wait = MAX_POLL_MS;
	for (unsigned i = 0; i < parallel; i++) {
		struct exchange *x = &b->caller->exchanges[i];

		while (!x->call && b->next < b->n && !b->err)
			begin_call(b, x);
		if (x->call && !x->runs && x->again_at <= now)
			begin_exchange(b, x);
		if (x->call && !x->runs && x->again_at - now < *wait)
			*wait = (int)(x->again_at - now);
		active += x->call != NULL;
	}
	return active;
}

int s3_run(struct s3_calls *s, struct s3_call *calls, unsigned n, unsigned parallel,
	   s3_call_fn *begin, s3_call_fn *end, void *arg)
{
	struct batch b = { .s = s, .caller = take_caller(s), .calls = calls, .n = n,
			   .begin = begin, .end = end, .arg = arg };
	int running, wait;

	if (!b.caller)
		return -ENOMEM;
	parallel = parallel < MAX_PARALLEL ? parallel : MAX_PARALLEL;
	for (unsigned i = 0; i < n; i++)
		calls[i].res = 0;
	while (begin_exchanges(&b, parallel, &wait) > 0) {
		curl_multi_perform(b.caller->multi, &running);
		if (!finish_exchanges(&b))
			curl_multi_poll(b.caller->multi, NULL, 0, wait, NULL);
	}
	give_caller(s, b.caller);
	while (b.next < n)
		calls[b.next++].res = -ECANCELED;
	return b.err;
}

int s3_call(struct s3_calls *s, struct s3_call *call)
{
	return s3_run(s, call, 1, 1, NULL, NULL, NULL);
}

void s3_call_free(struct s3_call *call)
{
	curl_slist_free_all(call->lines);
	free(call->answer);
	call->lines = NULL;
	call->answer = NULL;
}

struct s3_calls *s3_calls_new(const struct remote *remote)
{
	struct s3_calls *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->remote = remote;
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

void s3_calls_free(struct s3_calls *s)
{
	while (s && s->idle) {
		struct caller *c = s->idle;

		s->idle = c->next;
		for (int i = 0; i < MAX_PARALLEL; i++)
			curl_easy_cleanup(c->exchanges[i].easy);
		curl_multi_cleanup(c->multi);
		free(c);
	}
	if (s)
		pthread_mutex_destroy(&s->lock);
	free(s);
}
