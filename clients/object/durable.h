/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers to files, and flushes of several files at once. All calls return 0 or an errno
 * value. */
#ifndef OBJECT_DURABLE_H
#define OBJECT_DURABLE_H

#include "object/backend.h"

/* Flushes n files or folders, as fsync(2) does. Waits for all of them together if the system
 * can. */
int durable_all(const int *fds, size_t n);
/* Writes all bytes of n pieces of memory. */
int durable_write(int fd, const struct iovec *iov, int n);
static inline int durable_write_bytes(int fd, const struct bytes *bytes)
{
	return durable_write(fd, &(struct iovec){ bytes->data, bytes->size }, 1);
}

/* Reads `size` bytes. EBADMSG: the file is shorter. */
int durable_read(int fd, void *to, size_t size, uint64_t at);
/* Reads a whole file, for the caller to free. data is NULL on an error. */
int durable_contents(int fd, struct bytes *bytes);

#endif
