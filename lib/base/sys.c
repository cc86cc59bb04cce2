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

/* glibc's signal for setuid(2) and similar calls, which wait until every thread has handled it. */
#define SIGSETXID 33

#define RESERVED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

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

uint64_t sys_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void sys_unlock(void *p, size_t len)
{
	/* Sanitizers replace munlock(2) by a function that does nothing. */
	syscall(SYS_munlock, p, len);
}

/*
 * Maps a range that is larger than RLIMIT_MEMLOCK while the process locks all future memory: maps
 * one page, unlocks it, and extends it, which leaves it unlocked. MAP_FIXED: moves it to `at` then.
 */
static void *map_by_growth(void *at, size_t len, int flags, int fd, int64_t off)
{
	bool stays = flags & MAP_FIXED_NOREPLACE;
	void *first = stays ? at : NULL, *p, *grown, *moved;

	p = raw_mmap(first, sys_page(), PROT_NONE, flags & ~MAP_FIXED, fd, off);
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

void *sys_map_inaccessible(void *at, size_t len, int flags, int fd, int64_t off)
{
	/* A race detector would take a call of mmap(3) for a write to the data at this address. */
	void *p = raw_mmap(at, len, PROT_NONE, flags, fd, off);

	if (p != MAP_FAILED)
		sys_unlock(p, len);
	else if (errno == EAGAIN)
		p = map_by_growth(at, round_up(len, sys_page()), flags, fd, off);
	return p;
}

void *sys_map(size_t len, int prot, int flags, int fd, int64_t off)
{
	void *p = sys_map_inaccessible(NULL, len, flags, fd, off);

	if (p != MAP_FAILED && mprotect(p, len, prot) < 0) {
		int err = errno;

		raw_munmap(p, len);
		errno = err;
		return MAP_FAILED;
	}
	return p;
}

_Atomic bool sys_memory_is_locked;

/* The kernel refuses this advice for locked memory. */
static bool is_locked(void *page)
{
	return raw_madvise(page, sys_page(), MADV_DONTNEED) < 0 && errno == EINVAL;
}

static _Atomic uint32_t checking; /* lock */

void sys_forget(void)
{
	checking = 0;
}

/*
 * Checks a page that was unlocked after the last check: if it is locked, the process has locked its
 * existing memory since then. Then maps a new page at the same address: if that page is locked, the
 * process locks its future memory.
 */
bool sys_check_memory_locks(void)
{
	static void *page;
	bool locked_existing, locked_new, before = sys_memory_is_locked;
	void *p;

	if (!futex_trylock(&checking))
		return false;
	locked_existing = page && is_locked(page);
	if (!page)
		page = sys_reserve(sys_page(), 0);
	p = page ? raw_mmap(page, sys_page(), PROT_NONE, RESERVED | MAP_FIXED, -1, 0) : page;
	locked_new = p == MAP_FAILED ? errno == EAGAIN : p && is_locked(page);
	if (page)
		sys_unlock(page, sys_page());
	/* The failed call may have unmapped the page, and another thread may get its address. */
	if (p == MAP_FAILED)
		page = NULL;
	sys_memory_is_locked = locked_new;
	futex_unlock(&checking);
	return locked_existing || (locked_new && !before);
}

static _Thread_local const char *failed_call __attribute__((tls_model("initial-exec")));
static _Thread_local int failed_error __attribute__((tls_model("initial-exec")));

int sys_note_failure(const char *call)
{
	int err = -errno;

	if (!failed_call) {
		failed_call = call;
		failed_error = err;
	}
	return err;
}

const char *sys_first_failure(int *err)
{
	if (failed_call)
		*err = failed_error;
	return failed_call;
}

void sys_forget_failure(void)
{
	failed_call = NULL;
}

int sys_discard_pages(void *p, size_t len)
{
	if (raw_madvise(p, len, MADV_DONTNEED) == 0 ||
	    (errno == EINVAL && raw_madvise(p, len, MADV_DONTNEED_LOCKED) == 0))
		return 0;
	return sys_note_failure("madvise(2) with MADV_DONTNEED");
}

void *sys_reserve(size_t len, size_t align)
{
	size_t extra = align > sys_page() ? align : 0;
	char *p, *start;

	if (len + extra < len)
		return NULL;
	p = sys_map_inaccessible(NULL, len + extra, RESERVED, -1, 0);
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

/*
 * Addresses between those that memory allocators request and those where programs are loaded. The
 * kernel chooses addresses from the top down or, in the legacy layout, from a third of all
 * addresses up, and both are far from this area.
 */
#define APART ((uintptr_t)32 << 40)
#define APART_END ((uintptr_t)40 << 40)
#define MAX_APART_TRIES 64

/* The memory and thread sanitizers support only certain addresses. */
extern void __msan_init(void) __attribute__((weak));

static void *reserve_at(uintptr_t at, size_t len)
{
	void *p = sys_map_inaccessible((void *)at, len, RESERVED | MAP_FIXED_NOREPLACE, -1, 0);

	/* A kernel that does not know the flag may choose another address. */
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
	size_t step = 2 * round_up(len, align);  /* a range may double its size in place */

	if (__tsan_init || __msan_init || len > APART_END - APART || step < len)
		return NULL;
	for (int i = 0; i < MAX_APART_TRIES; i++) {
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

void *sys_map_anonymous(size_t len)
{
	void *p = sys_map(len, PROT_READ | PROT_WRITE, RESERVED, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	raw_madvise(p, len, MADV_NOHUGEPAGE);
	return p;
}

int sys_create_memfd(const char *name, uint64_t size)
{
	struct rlimit limit;
	int fd, err = 0;

	/* ftruncate(2) beyond this limit would raise SIGXFSZ. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	    limit.rlim_cur < size)
		return -EFBIG;
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	/* The seals assure other processes that the file keeps its size. */
	if (ftruncate(fd, (off_t)size) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		err = -errno;
	if (err)
		close(fd);
	return err ? err : fd;
}

bool sys_can_move_shared(int fd)
{
	void *from = raw_mmap(NULL, sys_page(), PROT_NONE, MAP_SHARED, fd, 0), *to;

	if (from == MAP_FAILED)
		return false;
	to = raw_mremap(from, sys_page(), sys_page(), MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	if (to != MAP_FAILED)
		raw_munmap(to, sys_page());
	raw_munmap(from, sys_page());
	return to != MAP_FAILED;
}

#define MIN_MOVED_FD 700

int sys_move_fd(int fd)
{
	int error = errno, moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, MIN_MOVED_FD);

	errno = error;
	/* RLIMIT_NOFILE may be below MIN_MOVED_FD. */
	if (moved < 0)
		return fd;
	close(fd);
	return moved;
}

/* Signals that end or stop the process, in the kernel's format. */
static _Atomic uint64_t deadly;

#define SIGNAL_BIT(sig) (1ull << ((sig) - 1))
/* All signals except those that a thread's own instructions raise, in the kernel's format. */
#define EXTERNAL_SIGNALS (~(SIGNAL_BIT(SIGSEGV) | SIGNAL_BIT(SIGBUS) | SIGNAL_BIT(SIGFPE) | \
			    SIGNAL_BIT(SIGILL) | SIGNAL_BIT(SIGTRAP) | SIGNAL_BIT(SIGABRT) | \
			    SIGNAL_BIT(SIGSYS) | SIGNAL_BIT(SIGSETXID)))

uint64_t guard_mask(void)
{
	return EXTERNAL_SIGNALS & ~deadly;
}

bool guard_note_action(int sig, bool ends)
{
	uint64_t bit = SIGNAL_BIT(sig);
	uint64_t before = ends ? atomic_fetch_or(&deadly, bit) : atomic_fetch_and(&deadly, ~bit);

	return !(before & bit) == ends;
}

static void block_signals(struct guard *g, uint64_t mask)
{
	g->err = errno;
	/* sigprocmask(3) of glibc would leave glibc's own signals open. */
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &mask, &g->mask, sizeof(mask));
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &g->cancel);
}

void guard_enter(struct guard *g)
{
	block_signals(g, guard_mask());
}

void guard_leave(struct guard *g)
{
	cancel_restore(g->cancel);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &g->mask, NULL, sizeof(g->mask));
	errno = g->err;
}

int sys_start_thread(void *(*run)(void *arg), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	struct guard g;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	/* A new thread inherits the mask. Signals that end or stop the process are blocked, too. */
	block_signals(&g, EXTERNAL_SIGNALS);
	err = pthread_create(&thread, &attr, run, arg);
	guard_leave(&g);
	pthread_attr_destroy(&attr);
	return -err;
}
