/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that are given messages, structures or names to be filled: where the kernel's own accesses are not served, what they are
 * given is pinned around the call as a whole. Of a message that has more than MOST in such memory, the first part is sent or
 * received, as when a socket is full; no datagram is that large.
 */
#include "umrun/calls.h"
#include "umrun/next.h"
#include "umrun/region.h"
#include "umrun/sharing.h"
#include "umrun/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <dirent.h>

#define MOST ((size_t)512 << 10)
#define WRITABLE (PROT_READ | PROT_WRITE)

/* The call, with what it fills pinned. The library's own wait for nobody: another thread may wait for the library meanwhile. */
#define WITH(buf, len, prot, call) ({ \
	struct pins pins_ = { .count = 0 }; \
	if (!FROM_LIBRARY()) \
		pin(&pins_, (const void *)(uintptr_t)(buf), len, prot); \
	__auto_type result_ = (call); \
	unpin(&pins_); \
	result_; \
})

static size_t part_of(const void *caller, uintptr_t buf, size_t len)
{
	return len > MOST && !next_is_library(caller) && is_held((const void *)buf, len) ? MOST : len;
}

/* ---- Messages. ---- */

/* The parts of a message, pinned, as far as MOST reaches. */
struct parts {
	struct iovec iov[IOV_MAX];
	struct pins pins[IOV_MAX];
	void *copies[IOV_MAX];   /* in place of those that are not pinned; NULL: it is the program's */
	size_t count;
};

static bool has_held_part(const struct iovec *iov, size_t count)
{
	for (size_t i = 0; i < count && region_count && !region_kernel; i++) {
		if (is_held(iov[i].iov_base, iov[i].iov_len))
			return true;
	}
	return false;
}

static bool has_held(const struct msghdr *msg)
{
	if (!region_count || region_kernel)
		return false;
	return has_held_part(msg->msg_iov, msg->msg_iovlen) || is_held(msg->msg_iov, 1) || is_held(msg->msg_name, msg->msg_namelen) ||
	       is_held(msg->msg_control, msg->msg_controllen);
}

/* kept: the kernel goes on using it after the call, when memory of the library may have other contents: it is given copies, or no
 * more where there is none. */
static void pin_parts(struct parts *p, const struct iovec *iov, size_t count, int prot, bool kept)
{
	size_t left = MOST;

	p->count = 0;
	for (size_t i = 0; i < count && i < IOV_MAX && left; i++) {
		struct iovec one = iov[i];
		bool held = is_held(one.iov_base, one.iov_len), copied = held && kept;

		if (held) {
			one.iov_len = one.iov_len < left ? one.iov_len : left;
			left -= one.iov_len;
		}
		p->pins[i] = (struct pins){ .count = 0 };
		if (!kept)
			pin(&p->pins[i], one.iov_base, one.iov_len, prot);
		p->copies[i] = copied || p->pins[i].over ? stand_in(one.iov_base, one.iov_len, prot) : NULL;
		if (copied && !p->copies[i])
			return;
		if (p->copies[i])
			one.iov_base = p->copies[i];
		p->iov[i] = one;
		p->count++;
	}
}

/* After n bytes; iov: the program's. */
static void unpin_parts(const struct parts *p, const struct iovec *iov, ssize_t n, int prot)
{
	size_t left = n > 0 && prot & PROT_WRITE ? (size_t)n : 0;

	for (size_t i = 0; i < p->count; i++) {
		size_t len = p->iov[i].iov_len, here = len < left ? len : left;

		if (p->copies[i]) {
			memcpy(iov[i].iov_base, p->copies[i], here);
			stand_in_end(p->copies[i], len);
		}
		left -= here;
		unpin(&p->pins[i]);
	}
}

ssize_t pinned_vector(ssize_t (*next)(int, const struct iovec *, int), int fd, const struct iovec *iov, int count, int prot)
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

/* To a pipe, which keeps the pages; or from one. */
PUBLIC ssize_t vmsplice(int fd, const struct iovec *iov, size_t count, unsigned flags)
{
	ssize_t (*next)(int, const struct iovec *, size_t, unsigned) = NEXT("vmsplice");
	bool held = count <= IOV_MAX && !FROM_LIBRARY() && has_held_part(iov, count);
	struct parts *p = held ? malloc(sizeof(*p)) : NULL;
	ssize_t n = -1;
	int prot;

	if (!p)
		return next(fd, iov, count, flags);
	prot = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY ? WRITABLE : PROT_READ;
	pin_parts(p, iov, count, prot, prot == PROT_READ);
	if (p->count)
		n = next(fd, p->iov, p->count, flags);
	else
		errno = EFAULT;
	unpin_parts(p, iov, n, prot);
	free(p);
	return n;
}

static ssize_t message(ssize_t (*next)(int, struct msghdr *, int), int fd, struct msghdr *msg, int flags, int prot)
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

PUBLIC ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	ssize_t (*next)(int, struct msghdr *, int) = NEXT("sendmsg");
	struct msghdr *mine = (struct msghdr *)(uintptr_t)msg;

	sharing_message(msg);
	return !FROM_LIBRARY() && has_held(msg) ? message(next, fd, mine, flags, PROT_READ) : next(fd, mine, flags);
}

PUBLIC ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	ssize_t (*next)(int, struct msghdr *, int) = NEXT("recvmsg");

	ssize_t n = !FROM_LIBRARY() && has_held(msg) ? message(next, fd, msg, flags, WRITABLE) : next(fd, msg, flags);

	if (n >= 0)
		sharing_message(msg);
	return n;
}

static bool any_held(const struct mmsghdr *all, unsigned count)
{
	bool held = false;

	for (unsigned i = 0; i < count && !held && region_count && !region_kernel; i++)
		held = has_held(&all[i].msg_hdr);
	return held || is_held(all, count * sizeof(*all));
}

/* One after the other: how many went. */
static int messages(ssize_t (*one)(int, struct msghdr *, int), int fd, struct mmsghdr *all, unsigned count, int flags)
{
	for (unsigned i = 0; i < count; i++) {
		ssize_t n = one(fd, &all[i].msg_hdr, flags);

		if (n < 0)
			return i ? (int)i : -1;
		all[i].msg_len = (unsigned)n;
	}
	return (int)count;
}

PUBLIC int sendmmsg(int fd, struct mmsghdr *all, unsigned count, int flags)
{
	int (*next)(int, struct mmsghdr *, unsigned, int) = NEXT("sendmmsg");

	for (unsigned i = 0; i < count; i++)
		sharing_message(&all[i].msg_hdr);
	return !FROM_LIBRARY() && any_held(all, count) ? messages((ssize_t (*)(int, struct msghdr *, int))sendmsg, fd, all, count, flags) :
	       next(fd, all, count, flags);
}

/* Where others have come, it does not wait for more, which is always allowed. */
PUBLIC int recvmmsg(int fd, struct mmsghdr *all, unsigned count, int flags, struct timespec *timeout)
{
	int (*next)(int, struct mmsghdr *, unsigned, int, struct timespec *) = NEXT("recvmmsg");
	int first, more;

	if (count == 0 || FROM_LIBRARY() || !any_held(all, count)) {
		first = next(fd, all, count, flags, timeout);
		for (int i = 0; i < first; i++)
			sharing_message(&all[i].msg_hdr);
		return first;
	}
	first = messages(recvmsg, fd, all, 1, flags & ~MSG_WAITFORONE);
	more = first == 1 && count > 1 ? messages(recvmsg, fd, all + 1, count - 1, (flags & ~MSG_WAITFORONE) | MSG_DONTWAIT) : 0;
	return first == 1 ? 1 + (more > 0 ? more : 0) : first;
}

PUBLIC ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
	ssize_t (*next)(int, const void *, size_t, int, const struct sockaddr *, socklen_t) = NEXT("sendto");
	size_t part = part_of(CALLER, (uintptr_t)buf, len);
	struct pins address = { .count = 0 };
	ssize_t n;

	if (!FROM_LIBRARY())
		pin(&address, to, to_len, PROT_READ);
	n = WITH(buf, part, PROT_READ, next(fd, buf, part, flags, to, to_len));
	unpin(&address);
	return n;
}

PUBLIC ssize_t recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
	ssize_t (*next)(int, void *, size_t, int, struct sockaddr *, socklen_t *) = NEXT("recvfrom");
	size_t part = part_of(CALLER, (uintptr_t)buf, len), room = from && from_len ? *from_len : 0;
	struct pins address = { .count = 0 };
	ssize_t n;

	if (!FROM_LIBRARY())
		pin(&address, from, room, WRITABLE);
	n = WITH(buf, part, WRITABLE, next(fd, buf, part, flags, from, from_len));
	unpin(&address);
	return n;
}

PUBLIC int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	int (*next)(int, int, int, void *, socklen_t *) = NEXT("getsockopt");
	size_t room = *len;

	return WITH(value, room, WRITABLE, next(fd, level, name, value, len));
}

PUBLIC int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	int (*next)(int, int, int, const void *, socklen_t) = NEXT("setsockopt");

	return WITH(value, len, PROT_READ, next(fd, level, name, value, len));
}

/* ---- Devices: the size is in the request, or that of the largest structure of those that are older than that. ---- */

PUBLIC int ioctl(int fd, unsigned long request, ...)
{
	int (*next)(int, unsigned long, void *) = NEXT("ioctl");
	size_t size = _IOC_SIZE(request) ? _IOC_SIZE(request) : 128;
	va_list rest;
	void *arg;

	va_start(rest, request);
	arg = va_arg(rest, void *);
	va_end(rest);
	if (region_files && !FROM_LIBRARY())
		sharing_clone(fd, request, arg);
	return WITH(arg, size, WRITABLE, next(fd, request, arg));
}

/* ---- Structures and names. ---- */

PUBLIC int fstat(int fd, struct stat *st)
{
	return WITH(st, sizeof(*st), WRITABLE, ((int (*)(int, struct stat *))NEXT("fstat"))(fd, st));
}

PUBLIC int fstat64(int fd, struct stat64 *st)
{
	return WITH(st, sizeof(*st), WRITABLE, ((int (*)(int, struct stat64 *))NEXT("fstat64"))(fd, st));
}

PUBLIC int stat(const char *path, struct stat *st)
{
	return WITH(st, sizeof(*st), WRITABLE, ((int (*)(const char *, struct stat *))NEXT("stat"))(path, st));
}

PUBLIC int stat64(const char *path, struct stat64 *st)
{
	return WITH(st, sizeof(*st), WRITABLE, ((int (*)(const char *, struct stat64 *))NEXT("stat64"))(path, st));
}

PUBLIC int lstat(const char *path, struct stat *st)
{
	return WITH(st, sizeof(*st), WRITABLE, ((int (*)(const char *, struct stat *))NEXT("lstat"))(path, st));
}

PUBLIC int lstat64(const char *path, struct stat64 *st)
{
	return WITH(st, sizeof(*st), WRITABLE, ((int (*)(const char *, struct stat64 *))NEXT("lstat64"))(path, st));
}

PUBLIC int fstatat(int folder, const char *path, struct stat *st, int flags)
{
	int (*next)(int, const char *, struct stat *, int) = NEXT("fstatat");

	return WITH(st, sizeof(*st), WRITABLE, next(folder, path, st, flags));
}

PUBLIC int fstatat64(int folder, const char *path, struct stat64 *st, int flags)
{
	int (*next)(int, const char *, struct stat64 *, int) = NEXT("fstatat64");

	return WITH(st, sizeof(*st), WRITABLE, next(folder, path, st, flags));
}

PUBLIC int statx(int folder, const char *path, int flags, unsigned mask, struct statx *st)
{
	int (*next)(int, const char *, int, unsigned, struct statx *) = NEXT("statx");

	return WITH(st, sizeof(*st), WRITABLE, next(folder, path, flags, mask, st));
}

PUBLIC ssize_t getdents64(int fd, void *buf, size_t len)
{
	size_t part = part_of(CALLER, (uintptr_t)buf, len);

	return WITH(buf, part, WRITABLE, ((ssize_t (*)(int, void *, size_t))NEXT("getdents64"))(fd, buf, part));
}

PUBLIC ssize_t getrandom(void *buf, size_t len, unsigned flags)
{
	size_t part = part_of(CALLER, (uintptr_t)buf, len);

	return WITH(buf, part, WRITABLE, ((ssize_t (*)(void *, size_t, unsigned))NEXT("getrandom"))(buf, part, flags));
}

PUBLIC ssize_t readlink(const char *path, char *buf, size_t len)
{
	size_t part = len < PATH_MAX ? len : PATH_MAX;

	return WITH(buf, part, WRITABLE, ((ssize_t (*)(const char *, char *, size_t))NEXT("readlink"))(path, buf, len));
}

PUBLIC ssize_t readlinkat(int folder, const char *path, char *buf, size_t len)
{
	size_t part = len < PATH_MAX ? len : PATH_MAX;

	return WITH(buf, part, WRITABLE, ((ssize_t (*)(int, const char *, char *, size_t))NEXT("readlinkat"))(folder, path, buf, len));
}

PUBLIC char *getcwd(char *buf, size_t len)
{
	size_t part = len < PATH_MAX ? len : PATH_MAX;

	return WITH(buf, buf ? part : 0, WRITABLE, ((char *(*)(char *, size_t))NEXT("getcwd"))(buf, len));
}

/* No attribute has more. */
#define XATTR_MOST ((size_t)64 << 10)
#define XATTR_PART(len) ((len) < XATTR_MOST ? (len) : XATTR_MOST)

PUBLIC ssize_t getxattr(const char *path, const char *name, void *value, size_t len)
{
	ssize_t (*next)(const char *, const char *, void *, size_t) = NEXT("getxattr");

	return WITH(value, XATTR_PART(len), WRITABLE, next(path, name, value, len));
}

PUBLIC ssize_t fgetxattr(int fd, const char *name, void *value, size_t len)
{
	ssize_t (*next)(int, const char *, void *, size_t) = NEXT("fgetxattr");

	return WITH(value, XATTR_PART(len), WRITABLE, next(fd, name, value, len));
}

PUBLIC int setxattr(const char *path, const char *name, const void *value, size_t len, int flags)
{
	int (*next)(const char *, const char *, const void *, size_t, int) = NEXT("setxattr");

	return WITH(value, XATTR_PART(len), PROT_READ, next(path, name, value, len, flags));
}

PUBLIC int fsetxattr(int fd, const char *name, const void *value, size_t len, int flags)
{
	int (*next)(int, const char *, const void *, size_t, int) = NEXT("fsetxattr");

	return WITH(value, XATTR_PART(len), PROT_READ, next(fd, name, value, len, flags));
}

/* ---- What is waited for. ---- */

PUBLIC int poll(struct pollfd *all, nfds_t count, int ms)
{
	return WITH(all, count * sizeof(*all), WRITABLE, ((int (*)(struct pollfd *, nfds_t, int))NEXT("poll"))(all, count, ms));
}

PUBLIC int ppoll(struct pollfd *all, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
	int (*next)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *) = NEXT("ppoll");
	sigset_t room;

	return WITH(all, count * sizeof(*all), WRITABLE, next(all, count, timeout, signals_mask(mask, &room)));
}

PUBLIC int epoll_wait(int fd, struct epoll_event *events, int most, int ms)
{
	int (*next)(int, struct epoll_event *, int, int) = NEXT("epoll_wait");
	size_t len = most > 0 ? (size_t)most * sizeof(*events) : 0;

	return WITH(events, len, WRITABLE, next(fd, events, most, ms));
}

PUBLIC int epoll_pwait(int fd, struct epoll_event *events, int most, int ms, const sigset_t *mask)
{
	int (*next)(int, struct epoll_event *, int, int, const sigset_t *) = NEXT("epoll_pwait");
	size_t len = most > 0 ? (size_t)most * sizeof(*events) : 0;
	sigset_t room;

	return WITH(events, len, WRITABLE, next(fd, events, most, ms, signals_mask(mask, &room)));
}

/* ---- The same, from programs that were built to be checked (_FORTIFY_SOURCE). ---- */

PUBLIC ssize_t __readlink_chk(const char *path, char *buf, size_t len, size_t room);
PUBLIC ssize_t __readlink_chk(const char *path, char *buf, size_t len, size_t room)
{
	check_room(len, room);
	return readlink(path, buf, len);
}

PUBLIC ssize_t __readlinkat_chk(int folder, const char *path, char *buf, size_t len, size_t room);
PUBLIC ssize_t __readlinkat_chk(int folder, const char *path, char *buf, size_t len, size_t room)
{
	check_room(len, room);
	return readlinkat(folder, path, buf, len);
}

PUBLIC char *__getcwd_chk(char *buf, size_t len, size_t room);
PUBLIC char *__getcwd_chk(char *buf, size_t len, size_t room)
{
	check_room(len, room);
	return getcwd(buf, len);
}

PUBLIC int __poll_chk(struct pollfd *all, nfds_t count, int ms, size_t room);
PUBLIC int __poll_chk(struct pollfd *all, nfds_t count, int ms, size_t room)
{
	check_room(count * sizeof(*all), room);
	return poll(all, count, ms);
}

PUBLIC int __ppoll_chk(struct pollfd *all, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t room);
PUBLIC int __ppoll_chk(struct pollfd *all, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t room)
{
	check_room(count * sizeof(*all), room);
	return ppoll(all, count, timeout, mask);
}
