/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of userfaultfd(2), and definitions that older headers lack. The features of the kernel are queried when the
 * descriptor is opened, not when the library is built. Takes no lock; opening is for one thread at a time.
 */
#include "engine/userfaultfd.h"

#include "base/log.h"
#include "base/sys.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef UFFDIO_MOVE /* Linux 6.8 */
#define UFFD_FEATURE_MOVE (1 << 16)
struct uffdio_move {
	__u64 dst, src, len, mode;
	__s64 move;
};
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#endif

static _Atomic int descriptor = -1;
static int myself = -1; /* a pidfd; none: places are dropped one by one */
static bool sees_kernel, moves;

bool userfaultfd_sees_kernel(void)
{
	return sees_kernel;
}

bool userfaultfd_moves(void)
{
	return moves;
}

static int open_device(void)
{
	int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC), fd;

	if (device < 0)
		return -1;
	fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	close(device);
	return fd;
}

/* *kernel: with accesses by the kernel. Returns a descriptor or -errno. */
static int open_one(bool *kernel)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	*kernel = true;
	if (fd < 0 && errno == ENOSYS)
		return fail(ENOSYS, "this kernel has no userfaultfd (CONFIG_USERFAULTFD)");
	if (fd < 0)
		fd = open_device();
	if (fd < 0) {
		*kernel = false;
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	}
	if (fd < 0)
		return fail(errno, "userfaultfd cannot be used here: %s; it needs root, CAP_SYS_PTRACE, "
			    "vm.unprivileged_userfaultfd=1 or access to /dev/userfaultfd", strerror(errno));
	return fd;
}

/* A descriptor tells its features once, and has to be opened again with those that are wanted. */
static int ask_features(uint64_t *features)
{
	struct uffdio_api api = { .api = UFFD_API };
	bool kernel;
	int fd = open_one(&kernel), err = 0;

	if (fd < 0)
		return fd;
	if (ioctl(fd, UFFDIO_API, &api) < 0)
		err = fail(errno, "userfaultfd cannot be asked what it can do: %s", strerror(errno));
	else if (!(api.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP))
		err = fail(EOPNOTSUPP, "userfaultfd of this kernel cannot protect from stores (Linux 5.7 can)");
	close(fd);
	*features = api.features & (UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_MOVE);
	return err;
}

int userfaultfd_open(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	uint64_t features;
	int fd, err;

	if (descriptor >= 0)
		return 0;
	err = ask_features(&features);
	if (err)
		return err;
	fd = open_one(&sees_kernel);
	if (fd < 0)
		return fd;
	api.features = features;
	if (ioctl(fd, UFFDIO_API, &api) < 0) {
		err = fail(errno, "userfaultfd cannot be set up: %s", strerror(errno));
		close(fd);
		return err;
	}
	moves = features & UFFD_FEATURE_MOVE;
	myself = (int)syscall(SYS_pidfd_open, getpid(), 0);
	descriptor = fd;
	return 0;
}

void userfaultfd_forget(void)
{
	if (descriptor >= 0)
		close(descriptor);
	if (myself >= 0)
		close(myself);
	descriptor = myself = -1;
}

/* Not read(2) and poll(2), at which a thread could be cancelled. */
static bool read_one(struct uffd_msg *msg)
{
	return syscall(SYS_read, descriptor, msg, sizeof(*msg)) == sizeof(*msg) && msg->event == UFFD_EVENT_PAGEFAULT;
}

bool userfaultfd_next(void **addr, bool *write, bool wait)
{
	struct pollfd one = { .fd = descriptor, .events = POLLIN };
	struct uffd_msg msg;

	while (!read_one(&msg)) {
		if (!wait)
			return false;
		syscall(SYS_ppoll, &one, 1, NULL, NULL, 0);
	}
	*addr = (void *)(uintptr_t)msg.arg.pagefault.address;
	*write = msg.arg.pagefault.flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP);
	return true;
}

static struct uffdio_range range_of(const void *p, size_t len)
{
	return (struct uffdio_range){ .start = (uintptr_t)p, .len = len };
}

int userfaultfd_register(void *p, size_t len, bool absent)
{
	struct uffdio_register r = { .range = range_of(p, len), .mode = UFFDIO_REGISTER_MODE_WP };

	if (absent)
		r.mode |= UFFDIO_REGISTER_MODE_MISSING;
	return ioctl(descriptor, UFFDIO_REGISTER, &r) < 0 ? -errno : 0;
}

/* A call that stopped after `got` bytes (or with an error in place of them): whether to go on. */
static bool goes_on(int64_t got, size_t *done)
{
	if (got > 0)
		*done += (size_t)got;
	else if (errno == EAGAIN)
		sched_yield();
	return errno == EAGAIN;
}

int userfaultfd_copy(void *to, const void *from, size_t len, bool protect, size_t *done)
{
	*done = 0;
	for (;;) {
		struct uffdio_copy c = { .dst = (uintptr_t)to + *done, .src = (uintptr_t)from + *done,
					 .len = len - *done, .mode = protect ? UFFDIO_COPY_MODE_WP : 0 };

		if (ioctl(descriptor, UFFDIO_COPY, &c) == 0) {
			*done = len;
			return 0;
		}
		if (!goes_on(c.copy, done))
			return -errno;
	}
}

int userfaultfd_move(void *to, void *from, size_t len, size_t *done)
{
	*done = 0;
	for (;;) {
		struct uffdio_move m = { .dst = (uintptr_t)to + *done, .src = (uintptr_t)from + *done,
					 .len = len - *done };

		if (ioctl(descriptor, UFFDIO_MOVE, &m) == 0) {
			*done = len;
			return 0;
		}
		if (!goes_on(m.move, done))
			return -errno;
	}
}

int userfaultfd_protect(void *p, size_t len, bool protect)
{
	struct uffdio_writeprotect w = { .range = range_of(p, len),
					 .mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0 };

	while (ioctl(descriptor, UFFDIO_WRITEPROTECT, &w) < 0) {
		if (errno != EAGAIN)
			return -errno;
		sched_yield();
	}
	return 0;
}

void userfaultfd_wake(void *p, size_t len)
{
	struct uffdio_range r = range_of(p, len);

	if (descriptor >= 0)
		ioctl(descriptor, UFFDIO_WAKE, &r);
}

void userfaultfd_drop_later(struct userfaultfd_drops *drops, void *p, size_t len)
{
	drops->places[drops->n++] = (struct iovec){ p, len };
	drops->len += len;
	if (drops->n == USERFAULTFD_DROPS || drops->len >= USERFAULTFD_DROP_BYTES)
		userfaultfd_drop_all(drops);
}

/* Linux 6.13 takes this advice of a process for itself, and 6.16 takes it for all places at once. */
void userfaultfd_drop_all(struct userfaultfd_drops *drops)
{
	if (drops->n < 2 ||
	    syscall(SYS_process_madvise, myself, drops->places, drops->n, MADV_DONTNEED, 0) != (long)drops->len) {
		for (unsigned k = 0; k < drops->n; k++)
			sys_drop(drops->places[k].iov_base, drops->places[k].iov_len);
	}
	drops->n = 0;
	drops->len = 0;
}
