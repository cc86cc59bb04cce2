/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files that must be durable before the next step are flushed by concurrent requests, so that a
 * file system that commits all of them at once does so once. Without io_uring, one follows another.
 */
#include "object/folders.h"

#include "common/cursor.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_REQUESTS 64
/* Pieces of one writev(2). */
#define MAX_PIECES 8

static int flush_each(const int *fds, size_t n)
{
	int error = 0;
	size_t i;

	for (i = 0; i < n; i++)
		if (fsync(fds[i]) < 0 && !error)
			error = errno;
	return error;
}

static int wait_for_requests(struct io_uring *ring, unsigned n)
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

/* The kernel flushes each file in a thread of its own. */
static int flush_concurrently(struct io_uring *ring, const int *fds, unsigned n)
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
	return sent == (int)n ? wait_for_requests(ring, n) : EIO;
}

int durable_all(const int *fds, size_t n)
{
	struct io_uring ring;
	int error = 0;
	size_t at;

	if (n < 2 || io_uring_queue_init(MAX_REQUESTS, &ring, 0) < 0)
		return flush_each(fds, n);
	for (at = 0; at < n && !error; at += MAX_REQUESTS)
		error = flush_concurrently(&ring, fds + at,
					   (unsigned)min_size(n - at, MAX_REQUESTS));
	io_uring_queue_exit(&ring);
	return error;
}

int durable_write(int fd, const struct iovec *iov, int n)
{
	struct cursor c = cursor_begin(iov, n, 0);

	while (c.off < c.end) {
		struct iovec pieces[MAX_PIECES];
		ssize_t done;
		int count;

		cursor_slice(&c, SIZE_MAX, pieces, MAX_PIECES, &count);
		done = writev(fd, pieces, count);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done < 0 ? errno : EIO;
		cursor_advance(&c, (size_t)done);
	}
	return 0;
}

int durable_read(int fd, void *to, size_t size, uint64_t at)
{
	char *p = to;

	while (size) {
		ssize_t n = pread(fd, p, size, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? errno : EBADMSG;
		p += n;
		at += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

int durable_contents(int fd, struct bytes *bytes)
{
	struct stat st;
	int error;

	*bytes = (struct bytes){ NULL, 0 };
	if (fstat(fd, &st) < 0)
		return errno;
	*bytes = (struct bytes){ malloc((size_t)st.st_size + 1), (size_t)st.st_size };
	if (!bytes->data)
		return ENOMEM;
	error = durable_read(fd, bytes->data, bytes->size, 0);
	if (error) {
		free(bytes->data);
		bytes->data = NULL;
	}
	return error;
}
