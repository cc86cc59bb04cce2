/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A child that kept the sockets of its parent would keep the parent's connections open. It cannot
 * end them by libcurl, because a TLS connection would tell the server so. The bit of a socket is
 * cleared before the socket is closed, so a child never closes a descriptor that is not a socket of
 * ours.
 */
#include "sockets.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_SOCKET 2048         /* descriptors from this one on are not recorded */

static _Atomic uint64_t open_sockets[MAX_SOCKET / 64];
static int wake_pair[2] = { -1, -1 }; /* sockets by which libcurl wakes its own waits */

static void note_open(int fd)
{
	if (fd >= 0 && fd < MAX_SOCKET)
		open_sockets[fd / 64] |= (uint64_t)1 << fd % 64;
}

static void note_closed(int fd)
{
	if (fd >= 0 && fd < MAX_SOCKET)
		open_sockets[fd / 64] &= ~((uint64_t)1 << fd % 64);
}

static curl_socket_t open_socket(void *unused, curlsocktype purpose, struct curl_sockaddr *address)
{
	int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);

	(void)unused;
	(void)purpose;
	note_open(fd);
	return fd < 0 ? CURL_SOCKET_BAD : fd;
}

static int close_socket(void *unused, curl_socket_t fd)
{
	(void)unused;
	note_closed(fd);
	return close(fd);
}

/* ---- The sockets of a group ---- */

/* Whether a descriptor is a local socket that programs inherit. */
static bool is_inherited_pair(int fd)
{
	int domain = 0;
	socklen_t len = sizeof(domain);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX &&
	       !(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static void find_pairs(uint64_t found[MAX_SOCKET / 64])
{
	for (int fd = 0; fd < MAX_SOCKET; fd++) {
		if (is_inherited_pair(fd))
			found[fd / 64] |= (uint64_t)1 << fd % 64;
	}
}

/* Finds the pair that was not there before. If another thread has opened such sockets at the same
 * time, the pair remains unknown. */
static void note_pair(const uint64_t before[MAX_SOCKET / 64])
{
	uint64_t after[MAX_SOCKET / 64] = { 0 };
	int n = 0, fds[2] = { -1, -1 };

	find_pairs(after);
	for (int fd = 0; fd < MAX_SOCKET; fd++) {
		if ((after[fd / 64] & ~before[fd / 64]) >> fd % 64 & 1 && n++ < 2)
			fds[n - 1] = fd;
	}
	for (int i = 0; i < 2 && n == 2; i++) {
		wake_pair[i] = fds[i];
		fcntl(fds[i], F_SETFD, FD_CLOEXEC);
		note_open(fds[i]);
	}
}

/* libcurl opens its pair without SOCK_CLOEXEC, before version 8.12 at least. */
CURLM *sockets_open_multi(void)
{
	uint64_t before[MAX_SOCKET / 64] = { 0 };
	CURLM *multi;

	find_pairs(before);
	multi = curl_multi_init();
	if (multi)
		note_pair(before);
	return multi;
}

void sockets_close_multi(CURLM *multi)
{
	for (int i = 0; i < 2; i++) {
		note_closed(wake_pair[i]);
		wake_pair[i] = -1;
	}
	curl_multi_cleanup(multi);
}

/* ---- All sockets ---- */

static bool is_open(int fd)
{
	return open_sockets[fd / 64] >> fd % 64 & 1;
}

/* The port of this machine of a socket; 0: it has none. */
static long local_port(int fd)
{
	struct sockaddr_in6 at = { 0 }; /* sockaddr_in has the port at the same place */
	socklen_t len = sizeof(at);

	if (getsockname(fd, (struct sockaddr *)&at, &len) < 0 ||
	    (at.sin6_family != AF_INET && at.sin6_family != AF_INET6))
		return 0;
	return ntohs(at.sin6_port);
}

static bool is_silent(int fd, long ms)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
	       info.tcpi_last_data_recv >= ms;
}

/* libcurl itself only ends a connection of HTTP/1.1. One of HTTP/2 may have other exchanges, so it
 * would stay in use, although none of them makes progress. For libcurl, the end of reading is an
 * end of the connection by the server. */
void sockets_end_stalled(CURL *easy, long seconds)
{
	long port = 0;

	if (curl_easy_getinfo(easy, CURLINFO_LOCAL_PORT, &port) != CURLE_OK || port == 0)
		return;
	for (int fd = 0; fd < MAX_SOCKET; fd++) {
		if (is_open(fd) && local_port(fd) == port && is_silent(fd, seconds * 1000 / 2))
			shutdown(fd, SHUT_RD);
	}
}

void sockets_watch(CURL *easy)
{
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
}

void sockets_close_all(void)
{
	for (int fd = 0; fd < MAX_SOCKET; fd++) {
		if (is_open(fd))
			close(fd);
	}
	for (unsigned i = 0; i < MAX_SOCKET / 64; i++)
		open_sockets[i] = 0;
}
