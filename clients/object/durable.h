/* SPDX-License-Identifier: BSD-3-Clause */
/* Files and folders that become durable together: each waits for storage, all at once. */
#ifndef OBJECT_DURABLE_H
#define OBJECT_DURABLE_H

#include <stddef.h>
#include <sys/uio.h>

/* fsync(2) for each; where the system lets it, all are on their way together. 0, or the errno of one that failed. */
int durable_all(const int *fds, size_t n);
/* Writes all of it, at most 8 pieces, whatever is interrupted. 0 or an errno. */
int durable_write(int fd, const struct iovec *iov, int n);
/* Reads all of it. 0 or an errno; EBADMSG: there are fewer bytes. */
int durable_read(int fd, void *to, size_t size, unsigned long long at);
/* All of a file, for the caller to free; NULL with errno. */
void *durable_contents(int fd, size_t *size);

#endif
