/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regular files and block devices through preadv(2) and pwritev(2): what the drivers of files share.
 *
 * A file has two descriptors: one through the page cache, and one with O_DIRECT where the file
 * takes it. A transfer is cut at page boundaries: whole pages go direct, the pieces of pages at
 * its two ends go through the page cache. So no page is ever on both ways at once, even when two
 * transfers share the page where they meet; between one way and the other the kernel keeps the
 * page cache true (it writes back before a direct transfer, and drops the pages that a direct
 * write has replaced).
 *
 * The calls run on faulting threads. They take no lock, and go to the kernel by syscall(2)
 * because glibc's wrappers for them are points of thread cancellation. Opening and closing: file_open.c.
 */
#include "file.h"

#include "common/memory_calls.h"
#include "common/cursor.h"

#include <linux/fs.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

#define CALL_MAX ((size_t)1 << 30)    /* bytes of one system call; Linux cuts at 2 GiB less a page */
#define BLOCK_COUNTED 512             /* bytes of a block in st_blocks */
#define BATCH 64                      /* pieces of one system call; IOV_MAX would be much stack */

/* What one system call moves. */
struct batch {
	struct iovec iov[BATCH];
	int n;
	size_t bytes;
	bool direct;
};

/* As the kernel has them; headers older than it do not. */
struct cache_range {
	uint64_t off, len;
};

struct cache_counts {
	uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

int file_size(void *h, uint64_t *size)
{
	const struct file *f = h;
	struct stat st;

	if (f->block)
		return (int)answer(ioctl(f->fd, BLKGETSIZE64, size));
	if (fstat(f->fd, &st) < 0)
		return -errno;
	*size = (uint64_t)st.st_size;
	return 0;
}

/*
 * The bytes of a file of which this thread has found none in the page cache when it tried to map
 * them from there. The thread reads them next, and need not ask the kernel again. A direct read
 * returns the right bytes in any case, so the range is only a hint.
 */
static _Thread_local struct {
	const struct file *file;
	uint64_t begin, end;
} uncached __attribute__((tls_model("initial-exec")));

/* Uses the hint once for each byte, because the page cache may get the bytes later. */
static bool is_known_uncached(const struct file *f, uint64_t off, size_t len)
{
	if (uncached.file != f || off < uncached.begin || off + len > uncached.end)
		return false;
	uncached.begin = off + len;
	return true;
}

/* Counts the pages of this range that the page cache holds; all 0 where the kernel does not
 * tell. */
static struct cache_counts count_pages(struct file *f, uint64_t off, size_t len)
{
	struct cache_range range = { off, len };
	struct cache_counts counts;

	if (atomic_load_explicit(&f->blind, memory_order_relaxed))
		return (struct cache_counts){ 0 };
	if (syscall(SYS_cachestat, f->fd, &range, &counts, 0) == 0)
		return counts;
	atomic_store_explicit(&f->blind, true, memory_order_relaxed);
	return (struct cache_counts){ 0 };
}

/* Whether `count` pages are all that the file has of this range, of which it has at least some
 * bytes. */
static bool is_all_of(const struct file *f, uint64_t off, size_t len, uint64_t count)
{
	uint64_t size, first = off / f->page, end = (off + len + f->page - 1) / f->page;

	if (count == 0 || count == end - first)
		return count > 0;
	if (file_size((void *)(uintptr_t)f, &size) < 0 || size <= off || size >= off + len)
		return false;
	return count == (size + f->page - 1) / f->page - first;
}

/* Whether the page cache holds all that the file has of this range. */
static bool is_cached(struct file *f, uint64_t off, size_t len)
{
	return is_all_of(f, off, len, count_pages(f, off, len).cached);
}

/*
 * Whether to copy this range out of the page cache, which must hold all of it. The kernel marks a
 * page of what it reads ahead for a program, and a read of this page by any other program makes it
 * read ahead again, also where it was told not to (POSIX_FADV_RANDOM), unless it has all that it
 * would read. The library would find those pages in the page cache, copy these, too, and so on to
 * the end of the file. So the range is copied only if the kernel has nothing to read behind it, or
 * if a direct read had to write it back first.
 */
static bool should_copy(struct file *f, uint64_t off, size_t len)
{
	size_t ahead = max_size(f->readahead, len);
	struct cache_counts counts;
	uint64_t size;

	if (is_known_uncached(f, off, len))
		return false;
	counts = count_pages(f, off, len);
	if (!is_all_of(f, off, len, counts.cached))
		return false;
	if (counts.dirty || counts.writeback || f->readahead == 0 || is_cached(f, off + len, ahead))
		return true;
	return file_size(f, &size) < 0 || size <= off + len;
}

/* Every one of the pages: one behind the end of the file could not be touched. */
int file_map_pagecache(void *h, void *addr, size_t len, uint64_t off)
{
	struct file *f = h;
	uint64_t count;

	if (off % f->page || len % f->page || len == 0)
		return 0;
	count = count_pages(f, off, len).cached;
	uncached.file = f;
	uncached.begin = off;
	uncached.end = count ? off : off + len;
	if (count != len / f->page)
		return 0;
	if (addr && raw_mmap(addr, len, PROT_READ, MAP_SHARED | MAP_FIXED, f->fd, off) == MAP_FAILED)
		return -errno;
	return 1;
}

/* A file with as many blocks as bytes has no holes, and need not be walked through: one that is all reserved can be a long
 * list of extents, none of which was written. */
int file_data(void *h, uint64_t off, uint64_t *begin, uint64_t *end)
{
	const struct file *f = h;
	struct stat st;
	off_t at;

	if (f->block || f->shared)
		return -EOPNOTSUPP;
	if (off > INT64_MAX)
		return -EINVAL;
	if (fstat(f->fd, &st) < 0)
		return -errno;
	if (off < (uint64_t)st.st_size && (uint64_t)st.st_blocks * BLOCK_COUNTED >= (uint64_t)st.st_size) {
		*begin = off;
		*end = (uint64_t)st.st_size;
		return 0;
	}
	at = lseek(f->fd, (off_t)off, SEEK_DATA);
	if (at < 0 && errno != ENXIO)
		return -errno;
	*begin = at < 0 ? UINT64_MAX : (uint64_t)at;
	/* Where they end is of use only to who is among them. */
	at = *begin == off ? lseek(f->fd, (off_t)off, SEEK_HOLE) : -1;
	*end = at > (off_t)off ? (uint64_t)at : *begin;
	return 0;
}

/* Bytes of this memory that come before a direct transfer can begin; all of them, if none can. */
static size_t lead(const struct file *f, const char *base, size_t len, uint64_t off)
{
	size_t to_grain = (size_t)(-off & (f->grain - 1));

	if (to_grain >= len || len - to_grain < f->grain)
		return len;
	return ((uintptr_t)base + to_grain) & (f->mem_align - 1) ? len : to_grain;
}

/* The next system call: as many pieces as can go the same way. */
static void plan(const struct file *f, const struct cursor *c, bool may_direct, struct batch *b)
{
	size_t skip = c->skip;

	b->n = 0;
	b->bytes = 0;
	b->direct = may_direct &&
		    lead(f, (char *)c->piece->iov_base + skip, c->piece->iov_len - skip, c->off) == 0;
	for (int i = 0; i < c->n && b->n < BATCH && b->bytes < CALL_MAX; i++, skip = 0) {
		char *base = (char *)c->piece[i].iov_base + skip;
		size_t len = c->piece[i].iov_len - skip, take = len;

		if (may_direct)
			take = lead(f, base, len, c->off + b->bytes);
		if (b->direct)
			take = take == 0 ? len & ~(f->grain - 1) : 0;
		take = min_size(take, CALL_MAX - b->bytes);
		if (take > 0)
			b->iov[b->n++] = (struct iovec){ base, take };
		b->bytes += take;
		if (take < len)
			break;
	}
}

static void zero_rest(struct cursor *c)
{
	while (c->n > 0) {
		size_t left = c->piece->iov_len - c->skip;

		memset((char *)c->piece->iov_base + c->skip, 0, left);
		cursor_advance(c, left);
	}
}

/* Beyond RLIMIT_FSIZE there is a signal besides the error, which would end the process as soon as it is let in: the error
 * says enough. The library's callers have it blocked. */
int file_failed(int err)
{
	const struct timespec now = { 0, 0 };
	sigset_t set;

	if (err == -EFBIG) {
		sigemptyset(&set);
		sigaddset(&set, SIGXFSZ);
		while (sigtimedwait(&set, NULL, &now) < 0 && errno == EINTR)
			;
	}
	return err;
}

static int transfer(struct file *f, long call, const struct iovec *iov, int n, uint64_t off,
		    bool direct)
{
	struct cursor c = cursor_begin(iov, n, off);
	struct batch b;

	while (c.n > 0) {
		long done;

		plan(f, &c, direct, &b);
		done = answer(syscall(call, b.direct ? f->direct_fd : f->fd, b.iov, b.n, (long)c.off,
				      (long)(c.off >> 32)));
		if (done == -EINTR)
			continue;
		if (done == -EINVAL && b.direct) {
			atomic_store_explicit(&f->refused, true, memory_order_relaxed);
			direct = false;
			continue;
		}
		if (done < 0)
			return file_failed((int)done);
		/* Files end somewhere, and zeros follow. A device that ends earlier than it did has lost bytes. */
		if (done == 0 && (call == SYS_pwritev || c.off < f->had))
			return -EIO;
		if (done == 0)
			zero_rest(&c);
		cursor_advance(&c, (size_t)done);
	}
	return 0;
}

static bool may_direct(const struct file *f)
{
	return f->direct_fd >= 0 && !atomic_load_explicit(&f->refused, memory_order_relaxed);
}

/* A direct write takes pages out of the page cache, also neighbours of its range: not where they are shown to programs. */
static bool prefers_cache(struct file *f, uint64_t off, size_t len, bool write)
{
	if (f->direct != AUTO)
		return false;
	return write ? f->maps_pagecache && is_cached(f, off, len) : should_copy(f, off, len);
}

enum file_way file_way(struct file *f, const void *buf, size_t len, uint64_t off, bool write)
{
	if (!may_direct(f) || !len || len > CALL_MAX || len % f->grain || lead(f, buf, len, off))
		return FILE_CUT;
	if (!prefers_cache(f, off, len, write))
		return FILE_DIRECT;
	return write ? FILE_CUT : FILE_CACHED;
}

static bool goes_direct(struct file *f, const struct iovec *iov, int n, uint64_t off, bool write)
{
	size_t len = 0;

	if (!may_direct(f))
		return false;
	for (int i = 0; i < n; i++)
		len += iov[i].iov_len;
	return len == 0 || !prefers_cache(f, off, len, write);
}

int file_read_cached(struct file *f, void *buf, size_t len, uint64_t off)
{
	struct iovec iov = { buf, len };

	return transfer(f, SYS_preadv, &iov, 1, off, false);
}

int file_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	return transfer(h, SYS_preadv, iov, n, off, goes_direct(h, iov, n, off, false));
}

int file_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	return transfer(h, SYS_pwritev, iov, n, off, goes_direct(h, iov, n, off, true));
}

int file_read(void *h, void *buf, size_t len, uint64_t off)
{
	struct iovec iov = { buf, len };

	return file_readv(h, &iov, 1, off);
}

int file_write(void *h, const void *buf, size_t len, uint64_t off)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };

	return file_writev(h, &iov, 1, off);
}

int file_flush(void *h, uint64_t off, uint64_t len)
{
	const struct file *f = h;
	int err;

	(void)off;
	(void)len;
	do {
		err = (int)answer(syscall(SYS_fdatasync, f->fd));
	} while (err == -EINTR);
	return err;
}

int file_resize(void *h, uint64_t size)
{
	const struct file *f = h;
	int err;

	do {
		err = file_failed((int)answer(ftruncate(f->fd, (off_t)size)));
	} while (err == -EINTR);
	return err;
}
