/* SPDX-License-Identifier: BSD-3-Clause */
/* System calls that several files need. Takes no lock; safe in a signal handler. */
#include "base/sys.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* glibc's second own signal: setuid and its like wait for every thread to answer it. */
#define SIGSETXID 33

#define NOTHING (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

size_t sys_page(void)
{
	static _Atomic size_t page;
	size_t n = atomic_load_explicit(&page, memory_order_relaxed);

	if (n == 0) {
		n = (size_t)sysconf(_SC_PAGESIZE);
		atomic_store_explicit(&page, n, memory_order_relaxed);
	}
	return n;
}

uint64_t sys_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void sys_unlock(void *p, size_t len)
{
	/* Not munlock(2): sanitizers take it for nothing. */
	syscall(SYS_munlock, p, len);
}

/* More than the process may lock, though it is not to be locked: one page that is not grows, and then goes where it
 * should be. */
static void *grow_bare(void *at, size_t len, int flags, int fd, int64_t off)
{
	bool stays = flags & MAP_FIXED_NOREPLACE;
	void *p = raw_mmap(stays ? at : NULL, sys_page(), PROT_NONE, flags & ~MAP_FIXED, fd, off), *grown, *moved;

	if (p == MAP_FAILED)
		return p;
	sys_unlock(p, sys_page());
	grown = raw_mremap(p, sys_page(), len, stays ? 0 : MREMAP_MAYMOVE, NULL);
	if (grown == MAP_FAILED) {
		raw_munmap(p, sys_page());
		return grown;
	}
	if (!(flags & MAP_FIXED))
		return grown;
	moved = raw_mremap(grown, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at);
	if (moved == MAP_FAILED)
		raw_munmap(grown, len);
	return moved;
}

void *sys_bare(void *at, size_t len, int flags, int fd, int64_t off)
{
	/* Not mmap(3): a race detector that watches it takes this for a write to what the application sees there. */
	void *p = raw_mmap(at, len, PROT_NONE, flags, fd, off);

	if (p != MAP_FAILED)
		sys_unlock(p, len);
	else if (errno == EAGAIN)
		p = grow_bare(at, round_up(len, sys_page()), flags, fd, off);
	return p;
}

void *sys_map(size_t len, int prot, int flags, int fd, int64_t off)
{
	void *p = sys_bare(NULL, len, flags, fd, off);

	if (p != MAP_FAILED && mprotect(p, len, prot) < 0) {
		int err = errno;

		raw_munmap(p, len);
		errno = err;
		return MAP_FAILED;
	}
	return p;
}

_Atomic bool sys_locks;

/* Such memory cannot be given up by this advice. */
static bool is_locked(void *page)
{
	return raw_madvise(page, sys_page(), MADV_DONTNEED) < 0 && errno == EINVAL;
}

static _Atomic uint32_t looking;

void sys_forget(void)
{
	looking = 0;
}

/* One page of ours has the locks of all that there was; a new one in its place, those of all that comes. */
bool sys_look_for_locks(void)
{
	static void *page;
	bool were, are, before = sys_locks;
	void *p;

	if (!futex_trylock(&looking))
		return false;
	were = page && is_locked(page);
	if (!page)
		page = sys_reserve(sys_page(), 0);
	p = page ? raw_mmap(page, sys_page(), PROT_NONE, NOTHING | MAP_FIXED, -1, 0) : page;
	are = p == MAP_FAILED ? errno == EAGAIN : p && is_locked(page);
	if (page)
		sys_unlock(page, sys_page());
	/* Somebody else may get this place. */
	if (p == MAP_FAILED)
		page = NULL;
	sys_locks = are;
	futex_unlock(&looking);
	return were || (are && !before);
}

static _Thread_local const char *failed_call __attribute__((tls_model("initial-exec")));
static _Thread_local int failed_error __attribute__((tls_model("initial-exec")));

int sys_failed(const char *call)
{
	int err = -errno;

	if (!failed_call) {
		failed_call = call;
		failed_error = err;
	}
	return err;
}

const char *sys_failure(int *err)
{
	if (failed_call)
		*err = failed_error;
	return failed_call;
}

void sys_forget_failure(void)
{
	failed_call = NULL;
}

int sys_drop(void *p, size_t len)
{
	if (raw_madvise(p, len, MADV_DONTNEED) == 0 || (errno == EINVAL && raw_madvise(p, len, MADV_DONTNEED_LOCKED) == 0))
		return 0;
	return sys_failed("madvise(2) with MADV_DONTNEED");
}

void *sys_reserve(size_t len, size_t align)
{
	size_t extra = align > sys_page() ? align : 0;
	char *p, *start;

	if (len + extra < len)
		return NULL;
	p = sys_bare(NULL, len + extra, NOTHING, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (!extra)
		return p;
	start = (char *)round_up((size_t)p, align);
	if (start > p)
		raw_munmap(p, (size_t)(start - p));
	if (p + extra > start)
		raw_munmap(start + round_up(len, sys_page()), (size_t)(p + extra - start));
	return start;
}

/* Between what allocators ask for by address and where programs are loaded; both ends are far from what the
 * kernel picks, from the top down or, for programs that want that, from a third of all addresses up. */
#define APART ((uintptr_t)32 << 40)
#define APART_END ((uintptr_t)40 << 40)
#define APART_TRIES 64

/* These sanitizers know only certain addresses. */
extern void __msan_init(void) __attribute__((weak));

static void *reserve_at(uintptr_t at, size_t len)
{
	void *p = sys_bare((void *)at, len, NOTHING | MAP_FIXED_NOREPLACE, -1, 0);

	/* A kernel that does not know the flag takes the address for a wish. */
	if (p != MAP_FAILED && p != (void *)at) {
		raw_munmap(p, len);
		errno = ENOMEM;
		return NULL;
	}
	return p == MAP_FAILED ? NULL : p;
}

void *sys_reserve_apart(size_t len, size_t align)
{
	static _Atomic uintptr_t next = APART;
	size_t step = 2 * round_up(len, align);  /* so that it can grow where it stands */

	if (__tsan_init || __msan_init || len > APART_END - APART || step < len)
		return NULL;
	for (int i = 0; i < APART_TRIES; i++) {
		uintptr_t at = round_up(next, align);
		void *p;

		if (at > APART_END - len)
			at = round_up(APART, align);
		next = at + min_size(step, APART_END - at);
		p = reserve_at(at, len);
		if (p || errno != EEXIST)
			return p;
	}
	return NULL;
}

bool sys_is_apart(const void *p)
{
	return (uintptr_t)p >= APART && (uintptr_t)p < APART_END;
}

void *sys_lazy(size_t len)
{
	void *p = sys_map(len, PROT_READ | PROT_WRITE, NOTHING, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	raw_madvise(p, len, MADV_NOHUGEPAGE);
	return p;
}

int sys_object(const char *name, uint64_t size)
{
	struct rlimit most;
	int fd, err = 0;

	/* To ask for more would be a SIGXFSZ. */
	if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && most.rlim_cur < size)
		return -EFBIG;
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	/* Whoever maps it can trust that it stays. */
	if (ftruncate(fd, (off_t)size) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		err = -errno;
	if (err)
		close(fd);
	return err ? err : fd;
}

#define FD_FIRST 700

int sys_fd_away(int fd)
{
	int error = errno, away = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FD_FIRST);

	errno = error;
	/* Where the process may have so many. */
	if (away < 0)
		return fd;
	close(fd);
	return away;
}

void cancel_restore(int state)
{
	int type, unused;

	/* glibc ends a thread of asynchronous type right in setcancelstate, and forgets PTHREAD_CANCELED
	 * there; in setcanceltype it does not. */
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	pthread_setcancelstate(state, &unused);
	if (type == PTHREAD_CANCEL_ASYNCHRONOUS)
		pthread_setcanceltype(type, &unused);
}

/* As the kernel has it. */
static _Atomic uint64_t deadly;

static uint64_t all_but_own(void)
{
	static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGSETXID };
	uint64_t mask = ~0ull;

	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		mask &= ~(1ull << (own[i] - 1));
	return mask;
}

uint64_t guard_mask(void)
{
	return all_but_own() & ~deadly;
}

bool guard_let(int sig, bool ends)
{
	uint64_t bit = 1ull << (sig - 1);
	uint64_t before = ends ? atomic_fetch_or(&deadly, bit) : atomic_fetch_and(&deadly, ~bit);

	return !(before & bit) == ends;
}

static void enter(struct guard *g, uint64_t mask)
{
	g->err = errno;
	/* The library call would leave glibc's own signals open. */
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &mask, &g->mask, sizeof(mask));
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &g->cancel);
}

void guard_enter(struct guard *g)
{
	enter(g, guard_mask());
}

void guard_leave(struct guard *g)
{
	cancel_restore(g->cancel);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &g->mask, NULL, sizeof(g->mask));
	errno = g->err;
}

int sys_thread(void *(*run)(void *arg), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	struct guard g;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	/* A thread has the mask of its maker, who may have let through signals that end or stop the process. */
	enter(&g, all_but_own());
	err = pthread_create(&thread, &attr, run, arg);
	guard_leave(&g);
	pthread_attr_destroy(&attr);
	return -err;
}
