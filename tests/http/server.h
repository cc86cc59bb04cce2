/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * server.h - a web server of one object that misbehaves as the last part of the path says. The
 * server is a child process, and ends with the test. The bytes of the object are
 * pattern(offset, SEED).
 *
 * The answer to a request for the first byte is correct, so that the object can be opened. A path
 * that ends in '!' misbehaves from the first request on. The other requests of the path:
 *
 *	good, slow          correct; slow: as soon as server->together requests have come
 *	far                 after 20 ms
 *	narrow              8 KiB each 20 ms
 *	part, single        half of the range, one byte of it
 *	chunked             correct, without Content-Length
 *	reset               server->failures answers end by a reset after half of the bytes
 *	torn                server->failures answers end within the header
 *	busy                server->failures answers have the status 503
 *	late                server->failures answers never come
 *	stuck, halted       half of the range, of the whole object, and then nothing
 *	excess, twice       more bytes behind the answer, the answer once more
 *	stray               an answer to no request behind the answer
 *	denied              status 403, status 404, ...: the status
 *	changed, longer     another ETag, another length of the object
 *	unmatched           status 412
 *	shifted             Content-Range is that of the bytes after the requested ones
 *	short               fewer bytes than Content-Length
 *	long, endless       more bytes than the range
 *	lying               Content-Length is that of other bytes
 *	trickle             one byte each tenth of a second
 *	encoded             Content-Encoding: gzip
 *	wide                a line of 1 MiB in the header
 *	whole, empty        200 with the whole object, an empty object; server->failures answers of
 *	                    whole without a range have the status 503
 *	unbounded           half of the whole object, without Content-Length
 *	nameless            without ETag and Last-Modified
 *	dated               Last-Modified, and a weak ETag
 *	loop                a redirect to itself
 *	moved               a redirect to signed, which then works twice
 *	garbage, silence    no HTTP, no bytes
 */
#ifndef TESTS_HTTP_SERVER_H
#define TESTS_HTTP_SERVER_H

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "common.h"

#define SEED 7
#define OBJECT_BYTES (8 * MIB + 4321)

/* Shared by the server and the test. */
struct server {
	int port;
	unsigned together;               /* requests for slow before the first answer */
	_Atomic int failures;            /* answers that still fail */
	_Atomic unsigned requests;       /* requests so far */
	_Atomic unsigned in_flight;      /* requests for slow without an answer */
	_Atomic unsigned most_in_flight; /* maximum of in_flight */
	_Atomic unsigned connections;    /* connections so far */
	_Atomic unsigned conditions;     /* requests with a condition */
	_Atomic uint64_t longest;        /* bytes of the longest range */
};

static struct server *server;

/* A request, and what its answer will be. */
struct exchange {
	int fd;
	char path[64];                   /* name in the path, without '!' */
	uint64_t first, last;
	int status;
	const char *etag;                /* line, or "" */
	uint64_t shift;                  /* added to the numbers of Content-Range */
	uint64_t total;
	uint64_t body, length;           /* bytes that are sent, and that the header tells */
	const char *more;                /* other lines */
};

static inline bool server_send(int fd, const void *bytes, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		bytes = (const char *)bytes + n;
		len -= (size_t)n;
	}
	return true;
}

/* Sends bytes of the object. */
static inline bool server_body(const struct exchange *x)
{
	static __thread uint8_t part[64 * KIB];
	uint64_t at = 0;
	bool narrow = strcmp(x->path, "narrow") == 0, chunked = strcmp(x->path, "chunked") == 0;
	size_t step = strcmp(x->path, "trickle") == 0 ? 1 : narrow ? 8 * KIB : sizeof(part);
	char line[32];

	while (at < x->body) {
		size_t n = x->body - at < step ? x->body - at : step;

		for (size_t i = 0; i < n; i++)
			part[i] = pattern(x->first + at + i, SEED);
		snprintf(line, sizeof(line), "%zx\r\n", n);
		if (chunked && !server_send(x->fd, line, strlen(line)))
			return false;
		if (!server_send(x->fd, part, n) || (chunked && !server_send(x->fd, "\r\n", 2)))
			return false;
		at += n;
		if ((!strcmp(x->path, "stuck") || !strcmp(x->path, "halted")) && at >= x->body / 2)
			pause_ms(60000);
		if (step < sizeof(part))
			pause_ms(narrow ? 20 : 100);
	}
	return !chunked || server_send(x->fd, "0\r\n\r\n", 5);
}

static inline bool server_answer(const struct exchange *x)
{
	char header[2048], length[64] = "", range[160] = "";
	bool is_part = x->status == 206 || x->status == 416;

	if (strcmp(x->path, "chunked") == 0)
		strcpy(length, "Transfer-Encoding: chunked\r\n");
	else if (strcmp(x->path, "unbounded") != 0)
		snprintf(length, sizeof(length), "Content-Length: %" PRIu64 "\r\n", x->length);
	if (is_part)
		snprintf(range, sizeof(range), "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%"
			 PRIu64 "\r\n", x->first + x->shift, x->last + x->shift, x->total);
	snprintf(header, sizeof(header), "HTTP/1.1 %d Status\r\n%s%s%s%s\r\n", x->status, length,
		 range, x->etag, x->more);
	return server_send(x->fd, header, strlen(header)) && server_body(x);
}

/* Whether this answer fails, of a path whose first answers do. */
static inline bool server_fails(void)
{
	int left = server->failures;

	while (left > 0 && !atomic_compare_exchange_weak(&server->failures, &left, left - 1))
		;
	return left > 0;
}

static inline bool server_reset(struct exchange *x)
{
	struct linger now = { 1, 0 };

	x->body /= 2;
	server_answer(x);
	pause_ms(20);
	setsockopt(x->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	return false;
}

/* Sends the first lines of a header. */
static inline bool server_tear(int fd)
{
	static const char lines[] = "HTTP/1.1 206 Status\r\nETa";

	return server_send(fd, lines, strlen(lines)) && false;
}

static inline bool server_widen(int fd)
{
	char *line = malloc(MIB);
	bool ok;

	memset(line, 'a', MIB);
	memcpy(line, "HTTP/1.1 206 Status\r\nX-Wide: ", 30);
	memcpy(line + MIB - 2, "\r\n", 2);
	ok = server_send(fd, line, MIB);
	free(line);
	return ok;
}

static inline void server_status(struct exchange *x, int status)
{
	x->status = status;
	x->body = x->length = 0;
}

static inline void server_gather(void)
{
	unsigned in_flight = ++server->in_flight, most = server->most_in_flight;

	while (in_flight > most &&
	       !atomic_compare_exchange_weak(&server->most_in_flight, &most, in_flight))
		;
	for (int i = 0; i < 3000 && server->most_in_flight < server->together; i++)
		pause_ms(10);
	server->in_flight--;
}

/* Returns false if the connection must end. */
static inline bool server_misbehave(struct exchange *x)
{
	const char *p = x->path;
	int status;

	if (strcmp(p, "slow") == 0)
		server_gather();
	else if (strcmp(p, "far") == 0)
		pause_ms(20);
	else if (strcmp(p, "part") == 0)
		x->last = x->first + (x->last - x->first) / 2;
	else if (strcmp(p, "single") == 0)
		x->last = x->first;
	else if (strcmp(p, "torn") == 0 && server_fails())
		return server_tear(x->fd);
	else if (strcmp(p, "wide") == 0)
		return server_widen(x->fd);
	else if (strcmp(p, "whole") == 0 && x->status == 200 && server_fails())
		server_status(x, 503);
	else if (strcmp(p, "reset") == 0 && server_fails())
		return server_reset(x);
	else if (strcmp(p, "busy") == 0 && server_fails())
		server_status(x, 503);
	else if (strcmp(p, "silence") == 0 || (strcmp(p, "late") == 0 && server_fails()))
		pause_ms(60000);
	else if (sscanf(p, "status%d", &status) == 1)
		server_status(x, status);
	else if (strcmp(p, "changed") == 0)
		x->etag = "ETag: \"2\"\r\n";
	else if (strcmp(p, "longer") == 0)
		x->total++;
	else if (strcmp(p, "shifted") == 0)
		x->shift = 1;
	else if (strcmp(p, "encoded") == 0)
		x->more = "Content-Encoding: gzip\r\n";
	else if (strcmp(p, "whole") == 0 || strcmp(p, "unbounded") == 0 ||
		 strcmp(p, "halted") == 0)
		x->status = 200, x->first = 0, x->last = x->total - 1;
	else if (strcmp(p, "empty") == 0)
		x->status = 200, x->first = 0, x->last = 0, x->total = 0;
	else if (strcmp(p, "nameless") == 0)
		x->etag = "";
	else if (strcmp(p, "dated") == 0)
		x->etag = "Last-Modified: Thu, 26 Nov 2026 10:00:00 GMT\r\nETag: W/\"1\"\r\n";
	else if (strcmp(p, "loop") == 0)
		server_status(x, 302), x->more = "Location: /loop!\r\n";
	else if (strcmp(p, "moved") == 0)
		server_status(x, 302), x->more = "Location: /signed!\r\n", server->failures = 2;
	else if (strcmp(p, "signed") == 0 && !server_fails())
		server_status(x, 403);
	else if (strcmp(p, "garbage") == 0)
		return server_send(x->fd, "no protocol\r\n\r\n", 15) && false;
	if (x->status == 206 || (x->status == 200 && x->total))
		x->body = x->length = x->last - x->first + 1;
	else
		x->body = x->length = 0;
	if (strcmp(p, "short") == 0 || strcmp(p, "unbounded") == 0)
		x->body /= 2;
	else if (strcmp(p, "long") == 0)
		x->length = x->body += 100;
	else if (strcmp(p, "endless") == 0)
		x->body = UINT64_MAX / 2, x->length = x->body;
	else if (strcmp(p, "lying") == 0)
		x->length = x->body = 17;
	return true;
}

/* Serves one request. Returns false if the connection ends. */
static inline bool server_serve(int fd, char *request)
{
	static const char stray[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
	const char *range = strcasestr(request, "\nrange: bytes=");
	struct exchange x = { .fd = fd, .status = 206, .etag = "ETag: \"1\"\r\n", .more = "",
			      .total = OBJECT_BYTES };
	bool always, is_first, ok = true;

	server->requests++;
	server->conditions += !!strcasestr(request, "\nif-match: \"1\"") ||
			      !!strcasestr(request, "\nif-unmodified-since: Thu, 26");
	if (sscanf(request, "GET /%60[^ ?]", x.path) != 1)
		strcpy(x.path, "status400");
	/* The driver s3 encodes the character. */
	always = strchr(x.path, '!') || strstr(x.path, "%21");
	x.path[strcspn(x.path, "!%")] = '\0';
	if (strrchr(x.path, '/'))
		memmove(x.path, strrchr(x.path, '/') + 1, strlen(strrchr(x.path, '/')));
	if (range)
		sscanf(range + 14, "%" SCNu64 "-%" SCNu64, &x.first, &x.last);
	else
		x.last = x.total - 1, x.status = 200;
	is_first = x.first == 0 && x.last == 0;
	x.body = x.length = x.last - x.first + 1;
	for (uint64_t most = server->longest; x.body > most &&
	     !atomic_compare_exchange_weak(&server->longest, &most, x.body);)
		;
	if (strcmp(x.path, "dated") == 0)
		always = true;
	if (!is_first || always)
		ok = server_misbehave(&x);
	if (ok && strcmp(x.path, "twice") == 0)
		ok = server_answer(&x);
	ok = ok && server_answer(&x) && x.body == x.length;
	if (ok && strcmp(x.path, "excess") == 0)
		ok = server_send(fd, "excess", 6);
	if (ok && strcmp(x.path, "stray") == 0)
		ok = server_send(fd, stray, sizeof(stray) - 1);
	return ok;
}

static inline void *server_connection(void *arg)
{
	int fd = (int)(intptr_t)arg, one = 1;
	char request[8192];
	size_t len = 0;
	ssize_t n;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	while ((n = recv(fd, request + len, sizeof(request) - 1 - len, 0)) > 0) {
		len += (size_t)n;
		request[len] = '\0';
		if (!strstr(request, "\r\n\r\n"))
			continue;
		len = 0;
		if (!server_serve(fd, request))
			break;
	}
	close(fd);
	return NULL;
}

static inline int server_listen(int *port)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 256) == 0);
	check(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
	*port = ntohs(at.sin_port);
	return fd;
}

/* Starts the server. */
static inline void server_start(void)
{
	pthread_t thread;
	int fd, client;

	server = mmap(NULL, sizeof(*server), READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(server != MAP_FAILED);
	fd = server_listen(&server->port);
	if (fork() != 0) {
		close(fd);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while ((client = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		server->connections++;
		check(pthread_create(&thread, NULL, server_connection,
				     (void *)(intptr_t)client) == 0);
		pthread_detach(thread);
	}
	_exit(1);
}

static inline void server_uri(const char *path, const char *keys, char uri[static 400])
{
	snprintf(uri, 400, "http://127.0.0.1:%d/%s%s%s", server->port, path, *keys ? "?" : "",
		 keys);
}

#endif
