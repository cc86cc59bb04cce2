/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between the filter ioranks+ and the I/O processes of a machine. They travel over a Unix
 * socket of the type SOCK_SEQPACKET, whose name is abstract, so nothing is left behind by processes
 * that were killed. A connection has at most one request without a reply.
 */
#ifndef DRIVERS_IORANKS_H
#define DRIVERS_IORANKS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#define IORANKS_MAX_PROCESSES 64
#define IORANKS_MAX_NAME_LEN 63
#define IORANKS_MAX_OPERATION_LEN 255
#define IORANKS_WHY_BYTES 512                     /* room for the message of a reply */
#define IORANKS_MAX_PIECES 64                     /* pieces of memory of a write */
/* A shorter write takes less time than a request: with many ranks on few processors, the reply to a
 * request took 74 to 250 microseconds. */
#define IORANKS_MIN_BYTES ((size_t)16 << 10)
#define IORANKS_MAX_BYTES ((size_t)32 << 20)      /* bytes of a write */

enum ioranks_op {
	IORANKS_HELLO,  /* checks that the I/O process can read the word at `piece`: it is `off` */
	/* Passes the descriptor of the file, as SCM_RIGHTS. A piece: the text of an operation. */
	IORANKS_OPEN,
	IORANKS_WRITE,  /* writes `pieces` of the sender's memory to the file at `off` */
	IORANKS_FLUSH,  /* makes all writes of the connection durable */
	IORANKS_CLOSE,  /* closes the file */
};

/* A request ends after the last piece. */
struct ioranks_request {
	uint32_t op;                             /* enum ioranks_op */
	uint32_t pieces;                         /* number of pieces */
	uint64_t off;                            /* offset in the file, in bytes */
	struct iovec piece[IORANKS_MAX_PIECES];  /* addresses in the sender's memory */
};

/* A reply ends after the message. */
struct ioranks_reply {
	/* 0; a negative errno value; or a positive one, after IORANKS_FLUSH and IORANKS_CLOSE: the
	 * request was carried out, but the operation has failed. */
	int error;
	char why[IORANKS_WHY_BYTES];             /* message; may be absent */
};

#define IORANKS_REQUEST_BYTES(pieces) \
	(offsetof(struct ioranks_request, piece) + (pieces) * sizeof(struct iovec))

/* Sets the address of an I/O process. Returns its length. */
static inline socklen_t ioranks_address(struct sockaddr_un *to, unsigned uid, const char *name,
					int name_len, unsigned number)
{
	int len;

	*to = (struct sockaddr_un){ .sun_family = AF_UNIX };
	len = snprintf(to->sun_path + 1, sizeof(to->sun_path) - 1, "ummap-io/%u/%.*s/%u", uid,
		       name_len, name, number);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

#endif
