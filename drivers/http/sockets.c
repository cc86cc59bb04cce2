/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A child that kept the sockets of its parent would keep the parent's connections open. It cannot
 * end them by libcurl, because a TLS connection would tell the server so. Only the thread of the
 * loop opens and closes sockets. The bit of a socket is cleared before the socket is closed, so a
 * child never closes a descriptor that is not a socket of ours.
 */
#include "sockets.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_SOCKET 4096         /* descriptors from this one on are not recorded */

static _Atomic uint64_t open_sockets[MAX_SOCKET / 64];

static curl_socket_t open_socket(void *unused, curlsocktype purpose, struct curl_sockaddr *address)
{
	int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);

	(void)unused;
	(void)purpose;
	if (fd >= 0 && fd < MAX_SOCKET)
		open_sockets[fd / 64] |= (uint64_t)1 << fd % 64;
	return fd < 0 ? CURL_SOCKET_BAD : fd;
}

static int close_socket(void *unused, curl_socket_t fd)
{
	(void)unused;
	if (fd >= 0 && fd < MAX_SOCKET)
		open_sockets[fd / 64] &= ~((uint64_t)1 << fd % 64);
	return close(fd);
}

void sockets_watch(CURL *easy)
{
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
}

void sockets_close_all(void)
{
	for (int fd = 0; fd < MAX_SOCKET; fd++) {
		if (open_sockets[fd / 64] >> fd % 64 & 1)
			close(fd);
	}
	for (unsigned i = 0; i < MAX_SOCKET / 64; i++)
		open_sockets[i] = 0;
}
