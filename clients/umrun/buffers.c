/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages of several parts. If the kernel's own accesses to regions are not served, the parts are
 * pinned around the call. If a message has more than MAX_HELD_BYTES in such memory, its first part
 * is sent or received, as if a socket were full. A datagram is never that large.
 */
#include "umrun/calls.h"
#include "umrun/region.h"
#include "umrun/sharing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HELD_BYTES ((size_t)512 << 10)
#define WRITABLE (PROT_READ | PROT_WRITE)

size_t limit_part(const void *buf, size_t len)
{
	return len > MAX_HELD_BYTES && is_held(buf, len) ? MAX_HELD_BYTES : len;
}

/* The pinned parts of a message, up to MAX_HELD_BYTES. */
struct parts {
	struct iovec iov[IOV_MAX];
	struct pins pins[IOV_MAX];
	void *copies[IOV_MAX];   /* memory in place of a part that is not pinned, or NULL */
	size_t count;
};

bool has_held_part(const struct iovec *iov, size_t count)
{
	for (size_t i = 0; i < count && region_count && !region_kernel_can_access; i++) {
		if (is_held(iov[i].iov_base, iov[i].iov_len))
			return true;
	}
	return false;
}

static bool has_held(const struct msghdr *msg)
{
	if (!region_count || region_kernel_can_access)
		return false;
	return has_held_part(msg->msg_iov, msg->msg_iovlen) || is_held(msg->msg_iov, 1) ||
	       is_held(msg->msg_name, msg->msg_namelen) ||
	       is_held(msg->msg_control, msg->msg_controllen);
}

/* kernel_keeps: the kernel uses the memory after the call too, when memory of the library may have
 * other contents. Held parts are then copied; the message ends at a part that cannot be copied. */
static void pin_parts(struct parts *p, const struct iovec *iov, size_t count, int prot,
		      bool kernel_keeps)
{
	size_t left = MAX_HELD_BYTES;

	p->count = 0;
	for (size_t i = 0; i < count && i < IOV_MAX && left; i++) {
		struct iovec one = iov[i];
		bool held = is_held(one.iov_base, one.iov_len), copied = held && kernel_keeps;

		if (held) {
			one.iov_len = one.iov_len < left ? one.iov_len : left;
			left -= one.iov_len;
		}
		p->pins[i] = (struct pins){ .count = 0 };
		if (!kernel_keeps)
			pin(&p->pins[i], one.iov_base, one.iov_len, prot);
		p->copies[i] = copied || p->pins[i].is_refused ?
			       make_copy(one.iov_base, one.iov_len, prot) : NULL;
		if (copied && !p->copies[i])
			return;
		if (p->copies[i])
			one.iov_base = p->copies[i];
		p->iov[i] = one;
		p->count++;
	}
}

/* Ends a transfer of n bytes. iov: the parts that the program gave. */
static void unpin_parts(const struct parts *p, const struct iovec *iov, ssize_t n, int prot)
{
	size_t left = n > 0 && prot & PROT_WRITE ? (size_t)n : 0;

	for (size_t i = 0; i < p->count; i++) {
		size_t len = p->iov[i].iov_len, here = len < left ? len : left;

		if (p->copies[i]) {
			memcpy(iov[i].iov_base, p->copies[i], here);
			free_copy(p->copies[i], len);
		}
		left -= here;
		unpin(&p->pins[i]);
	}
}

ssize_t pinned_vector(vector_call next, int fd, const struct iovec *iov, int count, int prot)
{
	struct parts *p = count >= 0 && count <= IOV_MAX ? malloc(sizeof(*p)) : NULL;
	ssize_t n;

	if (!p)
		return next(fd, iov, count);
	pin_parts(p, iov, (size_t)count, prot, false);
	n = next(fd, p->iov, (int)p->count);
	unpin_parts(p, iov, n, prot);
	free(p);
	return n;
}

/* A pipe keeps the pages that are written to it. */
ssize_t take_vmsplice(int fd, const struct iovec *iov, size_t count, unsigned flags)
{
	struct parts *p = malloc(sizeof(*p));
	ssize_t n = -1;
	int prot;

	if (!p)
		return next_vmsplice(fd, iov, count, flags);
	prot = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY ? WRITABLE : PROT_READ;
	pin_parts(p, iov, count, prot, prot == PROT_READ);
	if (p->count)
		n = next_vmsplice(fd, p->iov, p->count, flags);
	else
		errno = EFAULT;
	unpin_parts(p, iov, n, prot);
	free(p);
	return n;
}

typedef ssize_t (*message_call)(int fd, struct msghdr *msg, int flags);

static ssize_t transfer_message(message_call next, int fd, struct msghdr *msg, int flags, int prot)
{
	struct msghdr part = *msg;
	struct parts *p = malloc(sizeof(*p));
	struct pins name, control;
	ssize_t n = -1;

	pin(&name, msg->msg_name, msg->msg_namelen, prot);
	pin(&control, msg->msg_control, msg->msg_controllen, prot);
	if (p) {
		pin_parts(p, msg->msg_iov, msg->msg_iovlen, prot, false);
		part.msg_iov = p->iov;
		part.msg_iovlen = p->count;
		n = next(fd, &part, flags);
		unpin_parts(p, msg->msg_iov, n, prot);
		free(p);
	}
	if (n >= 0 && prot & PROT_WRITE) {
		msg->msg_namelen = part.msg_namelen;
		msg->msg_controllen = part.msg_controllen;
		msg->msg_flags = part.msg_flags;
	}
	unpin(&name);
	unpin(&control);
	return n;
}

static ssize_t send_one(int fd, struct msghdr *msg, int flags)
{
	return next_sendmsg(fd, msg, flags);
}

static bool needs_pins(const void *caller, const struct msghdr *msg)
{
	return !next_is_library(caller) && has_held(msg);
}

ssize_t take_sendmsg(const void *caller, int fd, const struct msghdr *msg, int flags)
{
	sharing_message(msg);
	if (!needs_pins(caller, msg))
		return next_sendmsg(fd, msg, flags);
	return transfer_message(send_one, fd, (struct msghdr *)(uintptr_t)msg, flags, PROT_READ);
}

ssize_t take_recvmsg(const void *caller, int fd, struct msghdr *msg, int flags)
{
	ssize_t n = needs_pins(caller, msg) ?
		    transfer_message(next_recvmsg, fd, msg, flags, WRITABLE) :
		    next_recvmsg(fd, msg, flags);

	if (n >= 0)
		sharing_message(msg);
	return n;
}

static bool has_held_message(const struct mmsghdr *all, unsigned count)
{
	bool held = false;

	for (unsigned i = 0; i < count && !held && region_count && !region_kernel_can_access; i++)
		held = has_held(&all[i].msg_hdr);
	return held || is_held(all, count * sizeof(*all));
}

/* Transfers one message after another. Returns their number. */
static int transfer_messages(message_call one, int fd, struct mmsghdr *all, unsigned count,
			     int flags)
{
	for (unsigned i = 0; i < count; i++) {
		ssize_t n = one(fd, &all[i].msg_hdr, flags);

		if (n < 0)
			return i ? (int)i : -1;
		all[i].msg_len = (unsigned)n;
	}
	return (int)count;
}

int take_sendmmsg(const void *caller, int fd, struct mmsghdr *all, unsigned count, int flags)
{
	for (unsigned i = 0; i < count; i++)
		sharing_message(&all[i].msg_hdr);
	if (next_is_library(caller) || !has_held_message(all, count))
		return next_sendmmsg(fd, all, count, flags);
	return transfer_messages((message_call)sendmsg, fd, all, count, flags);
}

/* Does not wait for more messages after the first, which recvmmsg(2) always allows. */
int take_recvmmsg(const void *caller, int fd, struct mmsghdr *all, unsigned count, int flags,
		  struct timespec *timeout)
{
	int first, more = 0;

	if (count == 0 || next_is_library(caller) || !has_held_message(all, count)) {
		first = next_recvmmsg(fd, all, count, flags, timeout);
		for (int i = 0; i < first; i++)
			sharing_message(&all[i].msg_hdr);
		return first;
	}
	flags &= ~MSG_WAITFORONE;
	first = transfer_messages(recvmsg, fd, all, 1, flags);
	if (first == 1 && count > 1)
		more = transfer_messages(recvmsg, fd, all + 1, count - 1, flags | MSG_DONTWAIT);
	return first == 1 ? 1 + (more > 0 ? more : 0) : first;
}
