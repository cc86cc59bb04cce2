/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several files that have to be durable before the next step are flushed by as many requests at once, so that a file system which
 * commits all of them together does so once. Where there is no io_uring, one after the other.
 */
#include "object/durable.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define TOGETHER 64

static int one_by_one(const int *fds, size_t n)
{
	int error = 0;
	size_t i;

	for (i = 0; i < n; i++)
		if (fsync(fds[i]) < 0 && !error)
			error = errno;
	return error;
}

static int reap(struct io_uring *ring, unsigned n)
{
	struct io_uring_cqe *cqe;
	int error = 0;

	while (n-- > 0) {
		int res;

		do
			res = io_uring_wait_cqe(ring, &cqe);
		while (res == -EINTR);
		if (res < 0)
			return -res;
		if (cqe->res < 0 && !error)
			error = -cqe->res;
		io_uring_cqe_seen(ring, cqe);
	}
	return error;
}

/* The system works on each in a thread of its own. */
static int together(struct io_uring *ring, const int *fds, unsigned n)
{
	unsigned i;
	int sent;

	for (i = 0; i < n; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

		io_uring_prep_fsync(sqe, fds[i], 0);
		sqe->flags |= IOSQE_ASYNC;
	}
	do
		sent = io_uring_submit(ring);
	while (sent == -EINTR);
	return sent == (int)n ? reap(ring, n) : EIO;
}

int durable_all(const int *fds, size_t n)
{
	struct io_uring ring;
	int error = 0;
	size_t at;

	if (n < 2 || io_uring_queue_init(TOGETHER, &ring, 0) < 0)
		return one_by_one(fds, n);
	for (at = 0; at < n && !error; at += TOGETHER)
		error = together(&ring, fds + at, n - at < TOGETHER ? (unsigned)(n - at) : TOGETHER);
	io_uring_queue_exit(&ring);
	return error;
}

/* What is left of iov when so many bytes of it are written. */
static int advance(struct iovec *iov, int n, size_t done)
{
	int first = 0;

	while (first < n && done >= iov[first].iov_len)
		done -= iov[first++].iov_len;
	if (first < n) {
		iov[first].iov_base = (char *)iov[first].iov_base + done;
		iov[first].iov_len -= done;
	}
	return first;
}

int durable_write(int fd, const struct iovec *iov, int n)
{
	struct iovec left[8];
	int first = 0;

	for (int i = 0; i < n; i++)
		left[i] = iov[i];
	first = advance(left, n, 0);
	while (first < n) {
		ssize_t done = writev(fd, left + first, n - first);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done < 0 ? errno : EIO;
		first += advance(left + first, n - first, (size_t)done);
	}
	return 0;
}

int durable_read(int fd, void *to, size_t size, unsigned long long at)
{
	char *p = to;

	while (size) {
		ssize_t n = pread(fd, p, size, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? errno : EBADMSG;
		p += n;
		at += (unsigned long long)n;
		size -= (size_t)n;
	}
	return 0;
}

void *durable_contents(int fd, size_t *size)
{
	struct stat st;
	void *bytes;
	int error;

	if (fstat(fd, &st) < 0)
		return NULL;
	*size = (size_t)st.st_size;
	bytes = malloc(*size + 1);
	if (!bytes)
		return NULL;
	error = durable_read(fd, bytes, *size, 0);
	if (!error)
		return bytes;
	free(bytes);
	errno = error;
	return NULL;
}
