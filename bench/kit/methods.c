/* SPDX-License-Identifier: BSD-3-Clause */
#include "kit/methods.h"

enum { FLOOR_BUFFERS = 4, LIST = 5000 };

static struct pass *inplace_pass;
static __thread struct worker *inplace_worker;

bool reads(const struct pass *p)
{
	return !p->write || p->modify;
}

static char *view_enter(struct worker *w, size_t off)
{
	return w->pass->view + off;
}

static void sync_file(struct pass *p)
{
	if (fdatasync(p->fd))
		die("%s: %s", p->path, strerror(errno));
}

static void ummap_open_uri(struct pass *p, size_t seg, int prot)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	size_t scheme = strcspn(p->driver, "?");
	char *uri;
	void *addr = NULL;

	attr.seg_size = seg;
	attr.ptype = p->ptype;
	attr.flags = reads(p) ? 0 : UMMAP_BLANK;
	if (asprintf(&uri, "%.*s:%s%s", (int)scheme, p->driver, p->path, p->driver + scheme) < 0)
		die("no memory");
	if (ummap_open(uri, p->size, 0, prot, &attr, &addr))
		die("ummap_open %s: %s", uri, umerrormsg());
	free(uri);
	p->view = addr;
}

/* Returns a sparse file without a name. */
static int sparse_file(const char *beside, size_t size)
{
	char *name;
	int fd;

	if (asprintf(&name, "%s.XXXXXX", beside) < 0)
		die("no memory");
	fd = mkstemp(name);
	if (fd < 0 || unlink(name) || ftruncate(fd, (off_t)size))
		die("%s: %s", name, strerror(errno));
	free(name);
	return fd;
}

static void fill_budget(struct pass *p)
{
	int fd = sparse_file(p->path, p->budget);
	void *addr;
	char *other;

	if (ummap(p->budget, p->seg, PROT_READ, fd, 0, -1, 0, UMMAP_PTYPE_FIFO, &addr))
		die("ummap: %s", umerrormsg());
	other = addr;
	for (size_t i = 0; i < p->budget; i += p->seg)
		*(volatile char *)(other + i);
	close(fd);
}

/* Maps the file in segments of seg bytes. */
static void ummap_file(struct pass *p, size_t seg)
{
	int prot = p->write ? PROT_READ | PROT_WRITE : PROT_READ;
	void *addr = NULL;

	if (p->driver) {
		ummap_open_uri(p, seg, prot);
	} else {
		if (ummap(p->size, seg, prot, p->fd, 0, -1, reads(p), p->ptype, &addr))
			die("ummap: %s", umerrormsg());
		p->view = addr;
	}
}

/* The library is told nothing of the accesses. */
static void auto_begin(struct pass *p)
{
	ummap_file(p, UMMAP_SEG_AUTO);
}

static void fresh_begin(struct pass *p)
{
	ummap_file(p, p->seg);
	if (p->random && umadvise(p->view, p->size, UMMAP_ADV_RANDOM))
		die("umadvise: %s", umerrormsg());
}

static void ummap_begin(struct pass *p)
{
	fill_budget(p);
	fresh_begin(p);
}

static void ummap_finish(struct pass *p)
{
	if (umsync(p->view, 0))
		die("umsync: %s", umerrormsg());
}

/* Prefetches a list of segments, from this turn on. */
static void prefetch_list(struct worker *w, size_t turn)
{
	static __thread struct iovec list[LIST];
	int n = 0;

	for (; n < LIST && turn < w->segments; turn++)
		list[n++] = (struct iovec){ w->pass->view + w->order[turn] * w->pass->seg,
					    w->pass->seg };
	if (umprefetch(list, n))
		die("umprefetch: %s", umerrormsg());
}

/* Always prefetches the next list. */
static char *listed_enter(struct worker *w, size_t off)
{
	if (w->done == 0)
		prefetch_list(w, 0);
	if (w->done % LIST == 0)
		prefetch_list(w, w->done + LIST);
	return view_enter(w, off);
}

static void floor_begin_worker(struct worker *w)
{
	w->buffers = huge_memory(FLOOR_BUFFERS * w->pass->seg);
}

static char *floor_enter(struct worker *w, size_t off)
{
	char *buf = w->buffers + w->done % FLOOR_BUFFERS * w->pass->seg;

	if (reads(w->pass))
		read_whole(w->pass->direct, buf, w->pass->seg, off);
	return buf;
}

static void floor_leave(struct worker *w, size_t off, const char *at)
{
	if (w->pass->write)
		write_whole(w->pass->direct, at, w->pass->seg, off);
}

static void deep_begin_worker(struct worker *w)
{
	w->deep = deep_create(w->pass->direct, w->pass->seg, w->pass->method->depth);
}

static char *deep_enter_segment(struct worker *w, size_t off)
{
	(void)off;
	return deep_enter(w->deep, w->order, w->done, w->segments, reads(w->pass));
}

static void deep_leave_segment(struct worker *w, size_t off, const char *at)
{
	(void)off;
	(void)at;
	deep_leave(w->deep, w->order, w->done, w->pass->write);
}

static void deep_finish_worker(struct worker *w)
{
	deep_finish(w->deep);
}

static void mmap_begin(struct pass *p)
{
	p->view = mmap(NULL, p->size, p->write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
		       p->fd, 0);
	if (p->view == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	if (p->step == 1 && madvise(p->view, p->size, p->random ? MADV_RANDOM : MADV_SEQUENTIAL))
		die("madvise: %s", strerror(errno));
}

static void mmap_begin_worker(struct worker *w)
{
	if (w->pass->random || w->pass->step > 1)
		w->deadline = now_ns() + w->pass->cap_s * 1000000000ull;
}

/* Advice for scattered blocks: each is read with one request. */
static char *willneed_enter(struct worker *w, size_t off)
{
	char *at = view_enter(w, off);

	if (madvise(at, w->pass->seg, MADV_WILLNEED))
		die("madvise: %s", strerror(errno));
	return at;
}

static void mmap_finish(struct pass *p)
{
	if (msync(p->view, p->size, MS_SYNC))
		die("msync: %s", strerror(errno));
	sync_file(p);
}

static void inplace_protect(struct pass *p, size_t off, int prot)
{
	if (mprotect(p->view + off, p->seg, prot))
		die("mprotect: %s", strerror(errno));
}

static void inplace_write_back(struct pass *p, size_t off)
{
	inplace_protect(p, off, PROT_READ);
	write_whole(p->direct, p->view + off, p->seg, off);
}

static void inplace_evict(struct worker *w)
{
	struct pass *p = w->pass;
	size_t off = w->ring[w->oldest];

	if (p->write)
		inplace_write_back(p, off);
	if (madvise(p->view + off, p->seg, MADV_DONTNEED))
		die("madvise: %s", strerror(errno));
	inplace_protect(p, off, PROT_NONE);
	w->oldest = (w->oldest + 1) % w->ring_size;
	w->resident--;
}

static void inplace_fault(int sig, siginfo_t *info, void *context)
{
	struct worker *w = inplace_worker;
	struct pass *p = inplace_pass;
	size_t off = (size_t)((char *)info->si_addr - p->view);

	(void)context;
	if (!w || off >= p->size) {
		signal(sig, SIG_DFL);
		return;
	}
	off -= off % p->seg;
	if (w->resident == w->ring_size)
		inplace_evict(w);
	inplace_protect(p, off, PROT_READ | PROT_WRITE);
	if (reads(p))
		read_whole(p->direct, p->view + off, p->seg, off);
	if (!p->write)
		inplace_protect(p, off, PROT_READ);
	w->ring[(w->oldest + w->resident++) % w->ring_size] = off;
}

static void inplace_begin(struct pass *p)
{
	struct sigaction action = { .sa_sigaction = inplace_fault,
				    .sa_flags = SA_SIGINFO | SA_RESTART };

	p->view =
		mmap(NULL, p->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p->view == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	inplace_pass = p;
	sigaction(SIGSEGV, &action, NULL);
}

/* Each thread has its own list and a part of the budget, so the handler needs no lock. */
static void inplace_begin_worker(struct worker *w)
{
	w->ring_size = w->pass->budget / w->pass->seg / w->pass->threads;
	w->ring = calloc(w->ring_size, sizeof(*w->ring));
}

static char *inplace_enter(struct worker *w, size_t off)
{
	inplace_worker = w;
	return w->pass->view + off;
}

static void inplace_finish_worker(struct worker *w)
{
	size_t i;

	for (i = 0; i < w->resident; i++)
		inplace_write_back(w->pass, w->ring[(w->oldest + i) % w->ring_size]);
}

#define DEEP(n) { "deep" #n, NULL, deep_begin_worker, deep_enter_segment, deep_leave_segment, \
		  deep_finish_worker, sync_file, n, false, false }

const struct method methods[METHODS] = {
	{ "ummap", ummap_begin, NULL, view_enter, NULL, NULL, ummap_finish, 0, true, false },
	{ "fresh", fresh_begin, NULL, view_enter, NULL, NULL, ummap_finish, 0, true, false },
	{ "auto", auto_begin, NULL, view_enter, NULL, NULL, ummap_finish, 0, true, false },
	{ "listed", fresh_begin, NULL, listed_enter, NULL, NULL, ummap_finish, 0, true, false },
	{ "floor", NULL, floor_begin_worker, floor_enter, floor_leave, NULL, sync_file, 0, false,
	  false },
	DEEP(1),
	DEEP(2),
	DEEP(4),
	DEEP(8),
	DEEP(16),
	DEEP(32),
	{ "mmap", mmap_begin, mmap_begin_worker, view_enter, NULL, NULL, mmap_finish, 0, false,
	  true },
	{ "willneed", mmap_begin, mmap_begin_worker, willneed_enter, NULL, NULL, mmap_finish, 0,
	  false, true },
	{ "inplace", inplace_begin, inplace_begin_worker, inplace_enter, NULL,
	  inplace_finish_worker, sync_file, 0, false, false },
};
