/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of userfaultfd(2), and definitions that older headers lack. The features of the kernel
 * are read when the descriptor is opened, not when the library is built. Lock: `starting` of a
 * descriptor, with signals blocked.
 */
#include "engine/userfaultfd.h"

#include "base/log.h"
#include "base/sys.h"
#include "engine/discard.h"

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

struct userfaultfd userfaultfd_messages = { .by_signal = false, .fd = -1 };
struct userfaultfd userfaultfd_signals = { .by_signal = true, .fd = -1 };

static int open_device(void)
{
	int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC), fd;

	if (device < 0)
		return -1;
	fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	close(device);
	return fd;
}

static int open_for_threads(void)
{
	return (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
}

/* Opens a descriptor without rights, which Linux 5.11 and later need the flag for. */
static int open_for_signals(void)
{
	int fd = open_for_threads();

	if (fd < 0 && errno == EINVAL)
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	return fd < 0 ? fail(errno, "cannot use userfaultfd(2): %s", strerror(errno)) : fd;
}

/* Returns a descriptor or -errno. *kernel: whether accesses by the kernel are reported. */
static int open_for_messages(bool *kernel)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	*kernel = true;
	if (fd < 0 && errno == ENOSYS)
		return fail(ENOSYS, "cannot use userfaultfd(2): this kernel does not offer it "
			    "(CONFIG_USERFAULTFD). Try another engine");
	if (fd < 0)
		fd = open_device();
	if (fd < 0) {
		*kernel = false;
		fd = open_for_threads();
	}
	if (fd < 0)
		return fail(errno, "cannot use userfaultfd(2): %s. Try root, CAP_SYS_PTRACE, "
			    "vm.unprivileged_userfaultfd=1 or access to /dev/userfaultfd",
			    strerror(errno));
	return fd;
}

static int open_one(const struct userfaultfd *u, bool *kernel)
{
	*kernel = false;
	return u->by_signal ? open_for_signals() : open_for_messages(kernel);
}

/*
 * Checks the features without which the engine would lose data. Accesses by the kernel need
 * UFFDIO_MOVE: the kernel may hold a page (direct I/O, process_vm_writev(2), registered buffers)
 * and store to it regardless of any protection. UFFDIO_MOVE refuses to move such a page. A copy
 * would succeed, and later stores of the kernel would be lost; no other call tells whether the
 * kernel holds a page.
 */
static int check_features(const struct userfaultfd *u, uint64_t has, uint64_t *needed)
{
	*needed = UFFD_FEATURE_PAGEFAULT_FLAG_WP |
		  (u->by_signal ? UFFD_FEATURE_SIGBUS : UFFD_FEATURE_MOVE);
	if ((has & *needed) == *needed)
		return 0;
	if (u->by_signal || !(has & UFFD_FEATURE_PAGEFAULT_FLAG_WP))
		return fail(EOPNOTSUPP, "cannot use userfaultfd(2): on this kernel it cannot "
			    "protect pages from stores. Try Linux 5.7 or later, or the engine "
			    "segv");
	return fail(EOPNOTSUPP, "cannot use the engine uffd, which UMMAP_KERNEL needs: this kernel "
		    "has no UFFDIO_MOVE, without which data that the kernel stores would be lost. "
		    "Try Linux 6.8 or later, or another engine and umpin(3)");
}

/* Reads the features of the kernel by a descriptor of its own, because a descriptor answers this
 * request once. */
static int read_features(const struct userfaultfd *u, uint64_t *features)
{
	struct uffdio_api api = { .api = UFFD_API };
	uint64_t needed = 0;
	bool kernel;
	int fd = open_one(u, &kernel), err;

	if (fd < 0)
		return fd;
	if (ioctl(fd, UFFDIO_API, &api) < 0)
		err = fail(errno, "cannot read the features of userfaultfd(2) (UFFDIO_API): %s",
			   strerror(errno));
	else
		err = check_features(u, api.features, &needed);
	close(fd);
	*features = needed | (api.features & UFFD_FEATURE_MOVE);
	return err;
}

static int open_descriptor(struct userfaultfd *u)
{
	struct uffdio_api api = { .api = UFFD_API };
	uint64_t features;
	int fd, err;

	if (u->fd >= 0)
		return 0;
	err = read_features(u, &features);
	if (err)
		return err;
	fd = sys_move_fd(open_one(u, &u->sees_kernel));
	if (fd < 0)
		return fd;
	api.features = features;
	if (ioctl(fd, UFFDIO_API, &api) < 0) {
		err = fail(errno, "cannot set up userfaultfd(2) (UFFDIO_API): %s", strerror(errno));
		close(fd);
		return err;
	}
	u->moves = features & UFFD_FEATURE_MOVE;
	discard_start();
	u->fd = fd;
	return 0;
}

int userfaultfd_open(struct userfaultfd *u, int (*then)(void))
{
	struct guard g;
	int err = 0;

	if (u->started)
		return 0;
	guard_enter(&g);
	futex_lock(&u->starting);
	if (!u->started) {
		err = open_descriptor(u);
		if (!err)
			err = then();
		u->started = !err;
	}
	futex_unlock(&u->starting);
	guard_leave(&g);
	return err;
}

void userfaultfd_forget(struct userfaultfd *u)
{
	discard_forget();
	if (u->fd >= 0)
		close(u->fd);
	u->fd = -1;
	u->started = false;
	u->starting = 0;
}

/* read(2) and poll(2) are cancellation points, so the system calls are made directly. */
static bool read_message(struct uffd_msg *msg)
{
	return syscall(SYS_read, userfaultfd_messages.fd, msg, sizeof(*msg)) == sizeof(*msg) &&
	       msg->event == UFFD_EVENT_PAGEFAULT;
}

bool userfaultfd_next(void **addr, bool *write, bool wait)
{
	struct pollfd one = { .fd = userfaultfd_messages.fd, .events = POLLIN };
	struct uffd_msg msg;

	while (!read_message(&msg)) {
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

static int register_range(const struct userfaultfd *u, void *p, size_t len, uint64_t mode)
{
	struct uffdio_register r = { .range = range_of(p, len), .mode = mode };

	return ioctl(u->fd, UFFDIO_REGISTER, &r) < 0 ?
		       sys_note_failure("ioctl(2) with UFFDIO_REGISTER") : 0;
}

int userfaultfd_register(const struct userfaultfd *u, void *p, size_t len, bool absent)
{
	return register_range(u, p, len, UFFDIO_REGISTER_MODE_WP |
			      (absent ? UFFDIO_REGISTER_MODE_MISSING : 0));
}

int userfaultfd_register_object(const struct userfaultfd *u, void *p, size_t len)
{
	return register_range(u, p, len, UFFDIO_REGISTER_MODE_MISSING);
}

/* Counts the bytes of a call that has stopped early; a negative number is an error. Returns whether
 * to call again. */
static bool can_continue(int64_t got, size_t *done)
{
	if (got > 0)
		*done += (size_t)got;
	else if (errno == EAGAIN)
		sched_yield();
	return errno == EAGAIN;
}

int userfaultfd_copy(const struct userfaultfd *u, void *to, const void *from, size_t len,
		     bool protect, size_t *done)
{
	*done = 0;
	for (;;) {
		struct uffdio_copy c = { .dst = (uintptr_t)to + *done,
					 .src = (uintptr_t)from + *done, .len = len - *done,
					 .mode = protect ? UFFDIO_COPY_MODE_WP : 0 };

		if (ioctl(u->fd, UFFDIO_COPY, &c) == 0) {
			*done = len;
			return 0;
		}
		if (!can_continue(c.copy, done))
			return sys_note_failure("ioctl(2) with UFFDIO_COPY");
	}
}

/* Linux 6.18 sometimes moves the first page, and then finds it at its new place and reports EEXIST.
 * Seen with pages of a huge page that it had to split. */
static bool has_moved(char *from)
{
	unsigned char there;

	return mincore(from, sys_page(), &there) == 0 && !there;
}

int userfaultfd_move(const struct userfaultfd *u, void *to, void *from, size_t len, size_t *done)
{
	*done = 0;
	for (;;) {
		struct uffdio_move m = { .dst = (uintptr_t)to + *done,
					 .src = (uintptr_t)from + *done, .len = len - *done };

		if (ioctl(u->fd, UFFDIO_MOVE, &m) == 0) {
			*done = len;
			return 0;
		}
		if (errno == EEXIST && has_moved((char *)from + *done)) {
			*done += sys_page();
			if (*done == len)
				return 0;
			continue;
		}
		if (!can_continue(m.move, done))
			return sys_note_failure("ioctl(2) with UFFDIO_MOVE");
	}
}

int userfaultfd_protect(const struct userfaultfd *u, void *p, size_t len, bool protect)
{
	struct uffdio_writeprotect w = { .range = range_of(p, len),
					 .mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0 };

	while (ioctl(u->fd, UFFDIO_WRITEPROTECT, &w) < 0) {
		if (errno != EAGAIN)
			return sys_note_failure("ioctl(2) with UFFDIO_WRITEPROTECT");
		sched_yield();
	}
	return 0;
}

void userfaultfd_wake(const struct userfaultfd *u, void *p, size_t len)
{
	struct uffdio_range r = range_of(p, len);

	if (u->fd >= 0)
		ioctl(u->fd, UFFDIO_WAKE, &r);
}
