/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A filter that breaks one rule of drivers, named by the key `how`, which `ummap conform` has to
 * detect. With how=none it keeps all rules, and a thread executes asynchronous requests. Like other
 * authors' drivers, it includes ummap-driver.h only. tests/conform-broken has the checks that
 * detect each fault.
 */
#include "ummap-driver.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEPTH 8        /* maximum number of requests */
#define BLOCK 4096

enum bug {
	NONE,
	SHORT,
	GARBAGE_END,
	CRASH,
	MALLOC,
	VECTOR,
	ODD,
	RMW,
	GROW_PAGE,
	SIZE,
	CUT,
	FLUSH_PART,
	STALE,
	EMPTIES,
	READ_ONLY,
	LEAK,
	IDS,
	ALIGN,
	ERRNO,
	KEYS,
	FORK,
	FORK_ASYNC,
	LOSE,
	TWICE,
	MIXED,
	BLOCKS,
	FULL,
	LATE,
	PAGECACHE_NEXT,
	PAGECACHE_PART,
	PAGECACHE_COPY,
	LOCK_ALL,
	LOCK_LAX,
	LOCK_KEPT,
	DATA_LATE,
	DATA_KEPT,
	SHIFT,
	BUGS
};

static const char *const names[BUGS] = {
	"none",
	"short",
	"garbage-end",
	"crash",
	"malloc",
	"vector",
	"odd",
	"rmw",
	"grow-page",
	"size",
	"cut",
	"flush-part",
	"stale",
	"empties",
	"read-only",
	"leak",
	"ids",
	"align",
	"errno",
	"keys",
	"fork",
	"fork-async",
	"lose",
	"twice",
	"mixed",
	"blocks",
	"full",
	"late",
	"pagecache-next",
	"pagecache-part",
	"pagecache-copy",
	"lock-all",
	"lock-lax",
	"lock-kept",
	"data-late",
	"data-kept",
	"shift",
};

/* A request, and the thread that has submitted it and will reap it. */
struct entry {
	struct ummap_io *io;
	pthread_t by;
};

struct broken {
	struct ummap_driver next;
	void *h;
	enum bug bug;
	uint64_t size;               /* size when the store was opened */
	bool writable;
	pid_t pid;                   /* process that has the thread */
	char *page;                  /* first block, kept too long */
	uint64_t hole;               /* beginning of data after a first hole, kept too long */
	bool *closed;                /* flag that is shared with forked children */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct entry waiting[DEPTH], done[DEPTH + 1];
	unsigned waiting_n, done_n, running, total;
	bool ending;
};

static uint64_t size_now(struct broken *b)
{
	uint64_t size = b->size;

	b->next.size(b->h, &size);
	return size;
}

/* ---- Reading ---- */

static int read_stale(struct broken *b, void *buf, size_t len, uint64_t off)
{
	if (!b->page) {
		b->page = malloc(BLOCK);
		b->next.read(b->h, b->page, BLOCK, 0);
	}
	memcpy(buf, b->page + off, len);
	return 0;
}

static int broken_read(void *h, void *buf, size_t len, uint64_t off)
{
	struct broken *b = h;
	int err;

	if (b->bug == CRASH && off % 2)
		abort();
	if (b->bug == MALLOC) {
		void *volatile p = malloc(len);

		free(p);
	}
	if (b->bug == STALE && off + len <= BLOCK)
		return read_stale(b, buf, len, off);
	if (b->bug == SHIFT)
		off++;
	err = b->next.read(b->h, buf, b->bug == SHORT && len > 65536 ? len / 2 : len, off);
	if (b->bug == GARBAGE_END && off < size_now(b) && off + len > size_now(b))
		((char *)buf)[len - 1] = 'x';
	return err;
}

static int broken_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct broken *b = h;

	return b->next.readv(b->h, iov, b->bug == VECTOR && n > 16 ? 16 : n, off);
}

/* ---- Writing ---- */

/* Reads, changes and writes blocks: bytes that other threads write meanwhile are lost. */
static int write_blocks(struct broken *b, const void *buf, size_t len, uint64_t off)
{
	uint64_t first = off & ~(uint64_t)(BLOCK - 1),
		 end = (off + len + BLOCK - 1) & ~(uint64_t)(BLOCK - 1);
	char *blocks = malloc(end - first);
	int err = b->next.read(b->h, blocks, end - first, first);

	memcpy(blocks + (off - first), buf, len);
	usleep(20);
	if (!err)
		err = b->next.write(b->h, blocks, end - first, first);
	free(blocks);
	return err;
}

static int broken_write(void *h, const void *buf, size_t len, uint64_t off)
{
	struct broken *b = h;
	int err;

	if (!b->writable)
		return b->bug == READ_ONLY ? 0 : -EBADF;
	if (b->page && off < BLOCK) {
		free(b->page);
		b->page = NULL;
	}
	if (b->bug == ODD && off % 2)
		return 0;
	if (b->bug == RMW && off + len + BLOCK <= size_now(b))
		return write_blocks(b, buf, len, off);
	err = b->next.write(b->h, buf, len, off);
	if (!err && b->bug == GROW_PAGE)
		err = b->next.resize(b->h, (size_now(b) + BLOCK - 1) & ~(uint64_t)(BLOCK - 1));
	return err;
}

static int broken_flush(void *h, uint64_t off, uint64_t len)
{
	struct broken *b = h;

	return b->bug == FLUSH_PART && off > 0 ? -EINVAL : b->next.flush(b->h, off, len);
}

static int broken_resize(void *h, uint64_t size)
{
	struct broken *b = h;

	return b->bug == CUT && size < size_now(b) ? 0 : b->next.resize(b->h, size);
}

static int broken_size(void *h, uint64_t *size)
{
	struct broken *b = h;

	*size = b->bug == SIZE ? b->size : size_now(b);
	return 0;
}

/* ---- Asynchronous requests, which a thread executes in order ---- */

static void finish(struct broken *b, struct entry e)
{
	b->total++;
	b->running--;
	if ((b->bug == LOSE && b->total % 50 == 0) || *b->closed)
		return;
	b->done[b->done_n++] = e;
	if (b->bug == TWICE && b->total % 50 == 0)
		b->done[b->done_n++] = e;
	pthread_cond_broadcast(&b->changed);
}

static void *serve(void *arg)
{
	struct broken *b = arg;

	pthread_mutex_lock(&b->lock);
	while (!b->ending || (b->bug == LATE && b->waiting_n > 0)) {
		struct entry e = b->waiting[0];
		struct ummap_io *io = e.io;

		if (b->waiting_n == 0) {
			pthread_cond_wait(&b->changed, &b->lock);
			continue;
		}
		memmove(b->waiting, b->waiting + 1, --b->waiting_n * sizeof(*b->waiting));
		pthread_mutex_unlock(&b->lock);
		if (b->bug == LATE)
			usleep(1000);
		if (io->op == UMMAP_IO_READ)
			io->res = broken_read(b, io->buf, io->len, io->off);
		else
			io->res = broken_write(b, io->buf, io->len, io->off);
		pthread_mutex_lock(&b->lock);
		finish(b, e);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

static int broken_submit(void *h, struct ummap_io **io, unsigned n)
{
	struct broken *b = h;
	unsigned taken = 0;

	pthread_mutex_lock(&b->lock);
	while (taken < n && b->running + b->done_n < DEPTH) {
		b->waiting[b->waiting_n++] = (struct entry){ io[taken++], pthread_self() };
		b->running++;
	}
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
	return taken == 0 && b->bug == FULL ? -EAGAIN : (int)taken;
}

/* Takes up to max requests that this thread has submitted. */
static unsigned take(struct broken *b, struct ummap_io **done, unsigned max)
{
	unsigned n = 0, left = 0;

	for (unsigned i = 0; i < b->done_n; i++) {
		if (n < max && (b->bug == MIXED || pthread_equal(b->done[i].by, pthread_self())))
			done[n++] = b->done[i].io;
		else
			b->done[left++] = b->done[i];
	}
	b->done_n = left;
	return n;
}

static int broken_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	struct broken *b = h;
	unsigned n;

	if (b->bug == BLOCKS && min == 0)
		min = 1;
	pthread_mutex_lock(&b->lock);
	n = take(b, done, max);
	while (n < min) {
		pthread_cond_wait(&b->changed, &b->lock);
		n += take(b, done + n, max - n);
	}
	pthread_mutex_unlock(&b->lock);
	return (int)n;
}

static int broken_map_pagecache(void *h, void *addr, size_t len, uint64_t off)
{
	struct broken *b = h;
	int got = b->next.map_pagecache(b->h, addr, len,
					b->bug == PAGECACHE_NEXT ? off + BLOCK : off);

	if (addr && b->bug == PAGECACHE_PART && got == 0)
		b->next.read(b->h, addr, len, off);
	if (addr && b->bug == PAGECACHE_COPY && got == 1) {
		mmap(addr, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		     0);
		b->next.read(b->h, addr, len, off);
	}
	return got;
}

static int broken_lock(void *h, uint64_t off, uint64_t len, int how, char why[160])
{
	struct broken *b = h;

	if (b->bug == LOCK_ALL && how != UMMAP_LOCK_NONE)
		off = 0, len = 1 << 20;
	if (b->bug == LOCK_LAX && how == UMMAP_LOCK_EXCLUSIVE && len > 1)
		how = UMMAP_LOCK_SHARED;
	if (b->bug == LOCK_KEPT && how == UMMAP_LOCK_NONE)
		return 0;
	return b->next.lock(b->h, off, len, how, why);
}

static int broken_data(void *h, uint64_t off, uint64_t *begin, uint64_t *end)
{
	struct broken *b = h;
	int err = b->next.data(b->h, off, begin, end);

	if (err)
		return err;
	if (b->bug == DATA_LATE && *begin != UINT64_MAX)
		++*begin;
	if (b->bug == DATA_KEPT && off == 0) {
		b->hole = *begin > b->hole ? *begin : b->hole;
		*begin = b->hole;
		*end = *end > b->hole ? *end : b->hole;
	}
	return 0;
}

/* ---- Opening and closing ---- */

static int parse(struct broken *b, const struct ummap_uri *uri, struct ummap_geom *geom)
{
	const char *level = "low";

	for (unsigned i = 0; i < uri->nkeys; i++) {
		const char *value = uri->keys[i].value;

		if (strcmp(uri->keys[i].name, "level") == 0) {
			level = value;
			continue;
		}
		while (b->bug < BUGS && strcmp(names[b->bug], value) != 0)
			b->bug++;
	}
	if (b->bug == BUGS)
		return snprintf(geom->why, sizeof(geom->why), "there is no such value of how"),
		       -EINVAL;
	if (b->bug != KEYS && strcmp(level, "low") != 0 && strcmp(level, "high") != 0)
		return snprintf(geom->why, sizeof(geom->why), "level must be low or high"), -EINVAL;
	return 0;
}

static void break_geometry(struct broken *b, struct ummap_geom *geom)
{
	/* A signal handler must not use the thread and its lock. */
	if (b->bug == MALLOC)
		geom->caps |= UMMAP_CAP_FAULTSAFE;
	else
		geom->caps = (geom->caps & ~UMMAP_CAP_FAULTSAFE) | UMMAP_CAP_ASYNC;
	if (b->next.map_pagecache)
		geom->caps |= UMMAP_CAP_PAGECACHE;
	if (b->bug == ALIGN)
		geom->align = 3;
	if (b->bug == IDS)
		geom->id[1] = (uintptr_t)b;
}

/* fd -1: opens the store that uri names. */
static int open_either(const struct ummap_uri *uri, int fd, int oflags, void **h,
		       struct ummap_geom *geom)
{
	struct broken *b = calloc(1, sizeof(*b));
	int err = parse(b, uri, geom);

	b->next = *uri->next;
	if (!err)
		err = fd < 0 ? b->next.open(uri->next_uri, oflags, &b->h, geom) :
			       b->next.open_fd(uri->next_uri, fd, oflags, &b->h, geom);
	if (err) {
		if (b->bug == ERRNO && err == -ENOENT)
			err = -EIO;
		free(b);
		return err;
	}
	if (b->bug == EMPTIES && oflags & UMMAP_O_CREATE) {
		b->next.resize(b->h, 0);
		geom->size = 0;
	}
	b->size = geom->size;
	b->writable = oflags & UMMAP_O_WRITE;
	b->pid = getpid();
	b->closed = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	break_geometry(b, geom);
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->changed, NULL);
	pthread_create(&b->thread, NULL, serve, b);
	*h = b;
	return 0;
}

static int broken_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	return open_either(uri, -1, oflags, h, geom);
}

static int broken_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h,
			  struct ummap_geom *geom)
{
	return open_either(uri, fd, oflags, h, geom);
}

static void end_thread(struct broken *b)
{
	pthread_mutex_lock(&b->lock);
	b->ending = true;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
	if (b->bug == LATE)
		pthread_detach(b->thread);
	else
		pthread_join(b->thread, NULL);
}

static int broken_close(void *h)
{
	struct broken *b = h;
	int err;

	if (b->pid == getpid())
		end_thread(b);
	else if (b->bug == FORK)
		b->next.write(b->h, "gone", 4, 0);
	else
		*b->closed = b->bug == FORK_ASYNC;
	if (b->bug == LEAK || b->bug == LATE)
		return 0;
	err = b->next.close(b->h);
	munmap(b->closed, BLOCK);
	free(b->page);
	free(b);
	return err;
}

const struct ummap_driver ummap_driver = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "broken",
	.filter = 1,
	.keys = "how level",
	.help = "a filter for tests of `ummap conform`: breaks the promise that `how` names",
	.open = broken_open,
	.open_fd = broken_open_fd,
	.close = broken_close,
	.read = broken_read,
	.write = broken_write,
	.flush = broken_flush,
	.resize = broken_resize,
	.submit = broken_submit,
	.reap = broken_reap,
	.readv = broken_readv,
	.size = broken_size,
	.map_pagecache = broken_map_pagecache,
	.lock = broken_lock,
	.data = broken_data,
};
