/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_http_relay - connections that are cut, or pass no bytes from some moment on, while they
 * carry several requests: a load gives the right bytes, and in time. A relay between the driver and
 * a real web server does this to the connections.
 */
#include "s3.h"

#include <netinet/tcp.h>
#include <poll.h>

/* Shared by the relay and the test. */
static struct relay {
	int port, to;                    /* ports of the relay and of the server */
	_Atomic int connections;         /* connections so far */
	_Atomic int stalled;             /* this number of first connections pass no bytes */
	_Atomic int cut;                 /* this number of first connections are reset */
} *relay;

/* ---- The relay ---- */

static int connect_to(int server)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)server) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	return fd;
}

static bool pass_bytes(int from, int to)
{
	char bytes[16384];
	ssize_t n = recv(from, bytes, sizeof(bytes), 0);

	return n > 0 && send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static void *relay_connection(void *client)
{
	struct pollfd fds[2] = { { (int)(intptr_t)client, POLLIN, 0 },
				 { connect_to(relay->to), POLLIN, 0 } };
	int number = relay->connections++;
	struct linger now = { 1, 0 };
	bool ok = true;
	int one = 1;

	for (int i = 0; i < 2; i++)
		setsockopt(fds[i].fd, SOL_TCP, TCP_NODELAY, &one, sizeof(one));
	while (ok && number >= relay->cut) {
		int n = poll(fds, 2, 10);

		if (number < relay->stalled) {
			pause_ms(10);
			continue;
		}
		for (int i = 0; i < 2 && n > 0 && ok; i++) {
			if (fds[i].revents)
				ok = pass_bytes(fds[i].fd, fds[!i].fd);
		}
	}
	for (int i = 0; i < 2; i++) {
		setsockopt(fds[i].fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(fds[i].fd);
	}
	return NULL;
}

static void relay_start(int to)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), client;
	pthread_t thread;

	relay = mmap(NULL, sizeof(*relay), READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(relay != MAP_FAILED);
	relay->port = nginx_free_port();
	relay->to = to;
	at.sin_port = htons((uint16_t)relay->port);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 64) == 0);
	if (fork() != 0) {
		close(fd);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while ((client = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		check(pthread_create(&thread, NULL, relay_connection,
				     (void *)(intptr_t)client) == 0);
		pthread_detach(thread);
	}
	_exit(1);
}

/* ---- Loads ---- */

static uint8_t *map_by_relay(const char *keys)
{
	char uri[300];

	snprintf(uri, sizeof(uri), "https://localhost:%d/object?%s", relay->port, keys);
	return map_object(uri);
}

/* All connections that there are stop to pass bytes. Loads go on by other connections as soon as
 * they have made no progress for a quarter of the key timeout. HTTP/2 has one connection, which
 * later loads do not use. */
static void check_stalled(const char *keys, double later)
{
	uint8_t *bytes = map_by_relay(keys);
	double begin;

	check(umadvise(bytes, SIZE, UMMAP_ADV_RANDOM) == 0);
	check_bytes(bytes, SEG, 0, SEED);
	relay->stalled = relay->connections;
	begin = now();
	check_bytes(bytes + 40 * SEG, SEG, 40 * SEG, SEED);
	check(now() - begin < 15, "%g s", now() - begin);
	begin = now();
	check_bytes(bytes, SIZE, 0, SEED);
	check(now() - begin < later, "%g s", now() - begin);
	check(umunmap(bytes, 0) == 0);
}

static void *cut_connections(void *stop)
{
	while (!*(_Atomic bool *)stop) {
		pause_ms(300);
		relay->cut = relay->connections;
	}
	return NULL;
}

static void check_cut(const char *keys)
{
	uint8_t *bytes = map_by_relay(keys);
	_Atomic bool stop = false;
	pthread_t thread;

	check(pthread_create(&thread, NULL, cut_connections, &stop) == 0);
	for (double end = now() + 3; now() < end;) {
		check_bytes(bytes, SIZE, 0, SEED);
		check(umadvise(bytes, SIZE, UMMAP_ADV_DONTNEED) == 0);
	}
	stop = true;
	pthread_join(thread, NULL);
	check(umunmap(bytes, 0) == 0);
}

/* A sync of an object of S3 whose connections have stopped to pass bytes may fail, but the next one
 * makes new connections. */
static void check_stalled_sync(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	uint8_t *bytes;
	char uri[200];
	void *addr;

	snprintf(uri, sizeof(uri), "s3:bucket/object?timeout=4&endpoint=https://localhost:%d",
		 relay->port);
	attr.flags = UMMAP_CREATE;
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0, "%s", umerrormsg());
	bytes = addr;
	fill(bytes, SIZE, 0, SEED);
	check(umsync(bytes, 0) == 0, "%s", umerrormsg());
	relay->stalled = relay->connections;
	fill(bytes, 100, 0, SEED + 1);
	check(umsync(bytes, 0) == 0 || umsync(bytes, 0) == 0, "%s", umerrormsg());
	check(umunmap(bytes, 0) == 0);
}

int main(void)
{
	static const char *const versions[] = { "timeout=12&version=1.1", "timeout=12" };
	char file[400];

	set_group();
	if (!set_up_s3())
		return 77;
	nginx_behind = port;
	nginx_start();
	nginx_write("object", SIZE, SEED);
	snprintf(file, sizeof(file), "%s/ca.pem", nginx_folder);
	set_env("CURL_CA_BUNDLE", file);
	relay_start(nginx_h2_port);
	for (int i = 0; i < 2; i++) {
		nginx_forget();
		check_cut(versions[i]);
		check_stalled(versions[i], i ? 2.5 : 12);
		check((nginx_count("HTTP/2") > 0) == (i == 1));
	}
	check_stalled_sync();
	return 0;
}
