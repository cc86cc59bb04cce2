/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that move bytes between memory and a descriptor. Memory of the library is pinned around a
 * call, MAX_HELD_BYTES at a time. A call that reads or writes a file with regions finds the stores
 * of the regions, and the regions show the bytes that the call wrote (files.c). The C library's
 * internal calls are not intercepted; large transfers of streams from and to such memory are
 * therefore copied.
 */
#include "umrun/calls.h"

#include "common/cursor.h"
#include "umrun/list.h"

#define STREAM_COPY_BYTES 16384

struct transfer {
	int fd;
	off_t off;               /* offset in the file; -1: that of the descriptor */
	int prot;                /* the kernel's access to the memory */
	int flags;               /* of the call */
	struct msghdr *msg;      /* for messages: its fields except the parts; otherwise NULL */
};

static ssize_t call_next(const struct transfer *t, size_t done, struct iovec *iov, int count)
{
	off_t off = t->off < 0 ? t->off : t->off + (off_t)done;
	bool fills = t->prot & PROT_WRITE;

	if (!t->msg)
		return fills ? next_preadv2(t->fd, iov, count, off, t->flags) :
		       next_pwritev2(t->fd, iov, count, off, t->flags);
	t->msg->msg_iov = iov;
	t->msg->msg_iovlen = (size_t)count;
	return fills ? next_recvmsg(t->fd, t->msg, t->flags) :
	       next_sendmsg(t->fd, t->msg, t->flags);
}

/* Transfers the next bytes by one call. *len: how many they are. */
static ssize_t transfer_part(const struct transfer *t, const struct cursor *at, size_t done,
			     size_t *len)
{
	int count = at->n > 0 ? at->n : 1;
	struct iovec iov[count], used[count];
	struct pins pins[count];
	size_t left;
	ssize_t n;

	*len = cursor_slice(at, MAX_HELD_BYTES, iov, count, &count);
	for (int i = 0; i < count; i++) {
		used[i].iov_base = pin_or_copy(&pins[i], iov[i].iov_base, iov[i].iov_len, t->prot);
		used[i].iov_len = iov[i].iov_len;
	}
	n = call_next(t, done, used, count);
	left = n > 0 && t->prot & PROT_WRITE ? (size_t)n : 0;
	for (int i = 0; i < count; i++) {
		unpin_or_fill(&pins[i], iov[i].iov_base, iov[i].iov_len, left);
		left -= min_size(left, iov[i].iov_len);
	}
	return n;
}

/* Transfers by parts, and ends like one call: after a short part, or after the first part unless
 * the call transfers all that it can (`goes_on`). Allocates no memory, because the calls may be
 * made in signal handlers. */
static ssize_t transfer_by_parts(const struct transfer *t, const struct iovec *iov, int count,
				 bool goes_on)
{
	struct cursor at = cursor_begin(iov, count, 0);
	size_t done = 0, len;
	ssize_t n;

	do {
		n = transfer_part(t, &at, done, &len);
		if (n > 0) {
			done += (size_t)n;
			cursor_advance(&at, (size_t)n);
		}
	} while (n > 0 && (size_t)n == len && at.n && goes_on);
	return done ? (ssize_t)done : n;
}

/*
 * Pins memory for a file with regions even if the kernel's accesses are served: the kernel locks
 * the file while it waits for memory, and the library may need the file to provide it. A file never
 * makes the caller wait for more. Reads of other descriptors may, so they end after the first part.
 */
ssize_t take_transfer(int fd, off_t off, int flags, int prot, const struct iovec *iov, int count)
{
	const struct transfer t = { fd, off, prot, flags, NULL };
	bool writes = !(prot & PROT_WRITE);
	struct span span;
	ssize_t n;

	begin_span(&span, fd, off < 0 ? NULL : &off, (size_t)cursor_begin(iov, count, 0).end,
		   writes);
	n = transfer_by_parts(&t, iov, count, writes || span.has_regions ||
			      lseek(fd, 0, SEEK_CUR) >= 0);
	if (writes)
		end_span(&span, n);
	return n;
}

ssize_t transfer_one(int fd, off_t off, int prot, const void *buf, size_t len)
{
	const struct iovec iov = { (void *)(uintptr_t)buf, len };

	return take_transfer(fd, off, 0, prot, &iov, 1);
}

bool needs_care(int fd, const void *buf, size_t len)
{
	struct file_id file;

	return is_held(buf, len) || has_regions(fd, &file);
}

/* The kernel refuses other counts. */
bool needs_care_parts(int fd, const struct iovec *iov, int count)
{
	return count > 0 && count <= IOV_MAX &&
	       (has_held_part(iov, (size_t)count) || needs_care(fd, NULL, 0));
}

/* A pipe keeps the pages that are spliced to it, so they are copied by write(2) instead. */
ssize_t take_vmsplice(int fd, const struct iovec *iov, size_t count, unsigned flags)
{
	bool fills = !is_open_for_writing(fd);
	struct pollfd ready = { fd, fills ? POLLIN : POLLOUT, 0 };
	struct iovec part = { iov->iov_base, min_size(iov->iov_len, PIPE_BUF) };

	if (flags & SPLICE_F_NONBLOCK) {
		if (poll(&ready, 1, 0) == 0)
			return errno = EAGAIN, -1;
		iov = &part;
		count = 1;
	}
	return take_transfer(fd, -1, 0, fills ? KERNEL_STORES : PROT_READ, iov, (int)count);
}

/* ---- Messages: one with more than MAX_HELD_BYTES is cut, as if a socket were full ---- */

static bool has_held(const struct msghdr *msg)
{
	if (!region_count || msg->msg_iovlen > IOV_MAX)
		return false;
	return has_held_part(msg->msg_iov, msg->msg_iovlen) || is_held(msg->msg_iov, 1) ||
	       is_held(msg->msg_name, msg->msg_namelen) ||
	       is_held(msg->msg_control, msg->msg_controllen);
}

static ssize_t transfer_message(int fd, struct msghdr *msg, int flags, int prot)
{
	struct msghdr part = *msg;
	const struct transfer t = { fd, -1, prot, flags, &part };
	struct pins name, control;
	ssize_t n;

	pin(&name, msg->msg_name, msg->msg_namelen, prot);
	pin(&control, msg->msg_control, msg->msg_controllen, prot);
	n = transfer_by_parts(&t, msg->msg_iov, (int)msg->msg_iovlen, false);
	if (n >= 0 && prot & PROT_WRITE) {
		msg->msg_namelen = part.msg_namelen;
		msg->msg_controllen = part.msg_controllen;
		msg->msg_flags = part.msg_flags;
	}
	unpin(&name);
	unpin(&control);
	return n;
}

ssize_t transfer_to_socket(int fd, const void *buf, size_t len, int flags, int prot)
{
	const struct iovec iov = { (void *)(uintptr_t)buf, len };
	struct msghdr msg = { .msg_iov = NULL };
	const struct transfer t = { fd, -1, prot, flags, &msg };

	return transfer_by_parts(&t, &iov, 1, !(prot & PROT_WRITE));
}

ssize_t take_sendmsg(const void *caller, int fd, const struct msghdr *msg, int flags)
{
	share_message(msg);
	if (next_is_library(caller) || !has_held(msg))
		return next_sendmsg(fd, msg, flags);
	return transfer_message(fd, (struct msghdr *)(uintptr_t)msg, flags, PROT_READ);
}

ssize_t take_recvmsg(const void *caller, int fd, struct msghdr *msg, int flags)
{
	ssize_t n = next_is_library(caller) || !has_held(msg) ? next_recvmsg(fd, msg, flags) :
		    transfer_message(fd, msg, flags, KERNEL_STORES);

	if (n >= 0)
		share_message(msg);
	return n;
}

static bool has_held_message(const void *caller, const struct mmsghdr *all, unsigned count)
{
	bool held = is_held(all, count * sizeof(*all));

	for (unsigned i = 0; i < count && !held && region_count; i++)
		held = has_held(&all[i].msg_hdr);
	return held && !next_is_library(caller);
}

int take_sendmmsg(const void *caller, int fd, struct mmsghdr *all, unsigned count, int flags)
{
	unsigned done = 0;
	ssize_t n = 0;

	if (!has_held_message(caller, all, count)) {
		for (unsigned i = 0; i < count; i++)
			share_message(&all[i].msg_hdr);
		return next_sendmmsg(fd, all, count, flags);
	}
	for (; done < count; done++) {
		n = take_sendmsg(caller, fd, &all[done].msg_hdr, flags);
		if (n < 0)
			break;
		all[done].msg_len = (unsigned)n;
	}
	return done ? (int)done : (int)n;
}

/* Does not wait for more messages after the first, which recvmmsg(2) always allows. */
int take_recvmmsg(const void *caller, int fd, struct mmsghdr *all, unsigned count, int flags,
		  struct timespec *timeout)
{
	int done = 0;
	ssize_t n = 0;

	if (!has_held_message(caller, all, count)) {
		n = next_recvmmsg(fd, all, count, flags, timeout);
		for (int i = 0; i < (int)n; i++)
			share_message(&all[i].msg_hdr);
		return (int)n;
	}
	flags &= ~MSG_WAITFORONE;
	for (; done < (int)count; done++, flags |= MSG_DONTWAIT) {
		n = take_recvmsg(caller, fd, &all[done].msg_hdr, flags);
		if (n < 0)
			break;
		all[done].msg_len = (unsigned)n;
	}
	return done ? done : (int)n;
}

/* ---- Streams ---- */

size_t transfer_stream(read_call fill, write_call write_next, const void *memory, size_t size,
		       size_t count, FILE *file)
{
	size_t all = size * count, done = 0, part, n;
	char copy[STREAM_COPY_BYTES];

	do {
		part = min_size(all - done, STREAM_COPY_BYTES);
		if (fill) {
			n = fill(copy, 1, part, file);
			memcpy((char *)(uintptr_t)memory + done, copy, n);
		} else {
			memcpy(copy, (const char *)memory + done, part);
			n = write_next(copy, 1, part, file);
		}
		done += n;
	} while (n == part && done < all);
	return done / size;
}

int write_text(write_call next, const char *text, FILE *file)
{
	size_t len = strlen(text);

	return transfer_stream(NULL, next, text, 1, len, file) == len ? 1 : EOF;
}
