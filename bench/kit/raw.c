/* SPDX-License-Identifier: BSD-3-Clause */
#include "kit/raw.h"

#ifndef UFFDIO_MOVE /* Linux 6.8 */
#define UFFD_FEATURE_MOVE (1 << 16)
struct uffdio_move {
	__u64 dst, src, len, mode;
	__s64 move;
};
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#endif

const char *const part_names[PARTS] = {
	"raw-segv", "raw-populate", "raw-zero", "raw-copy", "raw-publish-read", "raw-publish-write",
	"raw-upgrade", "raw-retract",
};

enum { PAUSE_NS = 5000 };

struct raw {
	size_t seg, n;
	uint32_t *order;          /* segment of the mapping to which frame i is moved */
	char *pool, *view;
	int fd;
	int uffd;                 /* descriptor; -1: faults are reported by SIGSEGV */
	uint64_t *samples[PARTS]; /* n samples of each part */
};

void must(bool done, const char *what)
{
	if (!done)
		die("%s: %s", what, strerror(errno));
}

void load_word(void *p)
{
#if defined(__x86_64__)
	__asm__ volatile("movq (%%rax), %%rax" : "+a"(p) : : "memory"); /* 48 8b 00 */
#elif defined(__aarch64__)
	__asm__ volatile("ldr %0, [%0]" : "+r"(p) : : "memory");
#else
#error "load_word and step_over are missing for this architecture"
#endif
}

void step_over(int sig, siginfo_t *info, void *context)
{
	ucontext_t *u = context;

	(void)sig;
	(void)info;
#if defined(__x86_64__)
	u->uc_mcontext.gregs[REG_RIP] += 3;
#elif defined(__aarch64__)
	u->uc_mcontext.pc += 4;
#endif
}

void *reserve(void *at, size_t len)
{
	void *p = mmap(at, len, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1, 0);

	must(p != MAP_FAILED, "mmap");
	return p;
}

static void raw_copy(struct raw *r, char *to, char *from)
{
	struct uffdio_copy c = { .dst = (uintptr_t)to, .src = (uintptr_t)from, .len = r->seg,
				 .mode = UFFDIO_COPY_MODE_WP };

	must(!ioctl(r->uffd, UFFDIO_COPY, &c), "UFFDIO_COPY");
}

static void raw_move(struct raw *r, char *to, char *from)
{
	struct uffdio_move m = { .dst = (uintptr_t)to, .src = (uintptr_t)from, .len = r->seg };

	must(!ioctl(r->uffd, UFFDIO_MOVE, &m), "UFFDIO_MOVE (Linux 6.8 has it)");
}

static void raw_unprotect(struct raw *r, char *at, size_t len)
{
	struct uffdio_writeprotect w = { .range = { (uintptr_t)at, len } };

	must(!ioctl(r->uffd, UFFDIO_WRITEPROTECT, &w), "UFFDIO_WRITEPROTECT");
}

static void raw_register(struct raw *r, char *at, size_t len, uint64_t mode)
{
	struct uffdio_register g = { .range = { (uintptr_t)at, len }, .mode = mode };

	must(!madvise(at, len, MADV_NOHUGEPAGE) && !mprotect(at, len, PROT_READ | PROT_WRITE),
	     "mprotect");
	must(!ioctl(r->uffd, UFFDIO_REGISTER, &g), "UFFDIO_REGISTER");
}

static void raw_open(struct raw *r)
{
	struct uffdio_api api = { .api = UFFD_API,
				  .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_MOVE };

	r->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	must(r->uffd >= 0 && !ioctl(r->uffd, UFFDIO_API, &api), "userfaultfd");
	raw_register(r, r->view, r->n * r->seg,
		     UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP);
	raw_register(r, r->pool, r->n * r->seg, UFFDIO_REGISTER_MODE_WP);
	memset(r->pool, 0x5a, r->n * r->seg);
}

/* Ends each access with one cheap call. */
static void *raw_serve(void *arg)
{
	struct raw *r = arg;
	struct uffd_msg msg;

	while (read(r->uffd, &msg, sizeof(msg)) == sizeof(msg))
		raw_unprotect(r, (char *)(uintptr_t)(msg.arg.pagefault.address & ~(4 * KIB - 1)),
			      4 * KIB);
	return NULL;
}

static void raw_event(struct raw *r)
{
	pthread_t thread;
	uint64_t start;
	size_t i;

	for (i = 0; i < r->n; i++)
		raw_copy(r, r->view + r->order[i] * r->seg, r->pool + i * r->seg);
	must(!pthread_create(&thread, NULL, raw_serve, r), "pthread_create");
	for (i = 0; i < r->n; i++) {
		/* The thread sleeps, as it does between the faults of a program. */
		for (start = now_ns(); now_ns() - start < PAUSE_NS;)
			;
		start = now_ns();
		*(volatile char *)(r->view + r->order[i] * r->seg) = 1;
		r->samples[SEGV][i] = now_ns() - start;
	}
	pthread_cancel(thread);
	pthread_join(thread, NULL);
	must(!madvise(r->view, r->n * r->seg, MADV_DONTNEED), "madvise");
}

static void raw_segv(struct raw *r)
{
	struct sigaction action = { .sa_sigaction = step_over, .sa_flags = SA_SIGINFO }, before;
	uint64_t start;
	size_t i;

	sigaction(SIGSEGV, &action, &before);
	for (i = 0; i < r->n; i++) {
		start = now_ns();
		load_word(r->view + r->order[i] * r->seg);
		r->samples[SEGV][i] = now_ns() - start;
	}
	sigaction(SIGSEGV, &before, NULL);
}

static void raw_populate(struct raw *r)
{
	uint64_t start;
	size_t i;

	must(!madvise(r->pool, r->n * r->seg, MADV_DONTNEED), "madvise");
	for (i = 0; i < r->n; i++) {
		start = now_ns();
		must(!madvise(r->pool + i * r->seg, r->seg, MADV_POPULATE_WRITE), "madvise");
		r->samples[POPULATE][i] = now_ns() - start;
	}
}

static void raw_fill(struct raw *r)
{
	uint64_t start;
	size_t i;

	for (i = 0; i < r->n; i++) {
		char *home = r->pool + i * r->seg;

		start = now_ns();
		memset(home, 0, r->seg);
		/* Otherwise the compiler would remove the fill. */
		__asm__ volatile("" : : "r"(home) : "memory");
		r->samples[ZERO][i] = now_ns() - start;
	}
	for (i = 0; i < r->n; i++) {
		char *home = r->pool + i * r->seg;

		start = now_ns();
		read_whole(r->fd, home, r->seg, r->order[i] * r->seg);
		r->samples[COPY][i] = now_ns() - start;
	}
}

void move(char *from, char *to, size_t len)
{
	must(mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) !=
		     MAP_FAILED,
	     "mremap");
}

static void raw_publish(struct raw *r, enum part part)
{
	uint64_t start;
	size_t i;

	for (i = 0; i < r->n; i++) {
		char *home = r->pool + i * r->seg, *place = r->view + r->order[i] * r->seg;

		start = now_ns();
		if (r->uffd >= 0) {
			part == PUBLISH_READ ? raw_copy(r, place, home) : raw_move(r, place, home);
		} else {
			if (part == PUBLISH_READ)
				must(!mprotect(home, r->seg, PROT_READ), "mprotect");
			move(home, place, r->seg);
		}
		r->samples[part][i] = now_ns() - start;
		load_word(place);
	}
	/* The copied data are still in the frame, too. */
	if (r->uffd >= 0 && part == PUBLISH_READ)
		must(!madvise(r->pool, r->n * r->seg, MADV_DONTNEED), "madvise");
}

static void raw_upgrade(struct raw *r)
{
	uint64_t start;
	size_t i;

	for (i = 0; i < r->n; i++) {
		char *place = r->view + r->order[i] * r->seg;

		start = now_ns();
		if (r->uffd >= 0)
			raw_unprotect(r, place, r->seg);
		else
			must(!mprotect(place, r->seg, PROT_READ | PROT_WRITE), "mprotect");
		r->samples[UPGRADE][i] = now_ns() - start;
		*(volatile char *)place = 1;
	}
}

void raw_take_back(char *place, char *home, size_t len)
{
	must(mremap(place, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, home) != MAP_FAILED, "mremap");
	reserve(place, len);
}

static void raw_retract(struct raw *r)
{
	uint64_t start;
	size_t i;

	for (i = 0; i < r->n; i++) {
		char *home = r->pool + i * r->seg, *place = r->view + r->order[i] * r->seg;

		start = now_ns();
		if (r->uffd >= 0)
			raw_move(r, home, place);
		else
			raw_take_back(place, home, r->seg);
		r->samples[RETRACT][i] = now_ns() - start;
	}
}

void raw_measure(struct figure parts[PARTS], size_t seg, size_t n, int fd, uint64_t seed, bool uffd)
{
	struct raw r = { .seg = seg, .n = n, .fd = fd, .uffd = -1 };
	bool populates = seg >= HUGE_PAGE && !uffd;
	size_t i;

	r.pool = huge_memory(n * seg);
	r.view = reserve(NULL, n * seg + HUGE_PAGE);
	/* If the view begins at a huge page, page-table entries of 2 MiB can be moved. */
	r.view = (char *)(((uintptr_t)r.view + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
	r.order = calloc(n, sizeof(*r.order));
	for (i = 0; i < n; i++)
		r.order[i] = (uint32_t)i;
	shuffle(r.order, n, seed);
	for (i = 0; i < PARTS; i++)
		r.samples[i] = calloc(n, sizeof(uint64_t));
	if (uffd) {
		raw_open(&r);
		raw_event(&r);
	} else {
		raw_segv(&r);
	}
	if (populates)
		raw_populate(&r);
	raw_fill(&r);
	raw_publish(&r, PUBLISH_READ);
	raw_upgrade(&r);
	raw_retract(&r);
	raw_publish(&r, PUBLISH_WRITE);
	raw_retract(&r);
	for (i = 0; i < PARTS; i++) {
		parts[i] =
			summarize(r.samples[i], i != POPULATE || populates ? n : 0, clock_cost());
		free(r.samples[i]);
	}
	free(r.order);
	if (uffd)
		close(r.uffd);
	munmap(r.pool, n * seg);
	munmap(r.view, n * seg);
}
