/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers of struct file by preadv(2) and pwritev(2). file_open.c opens and closes files.
 *
 * A file has two descriptors: one through the page cache, and one with O_DIRECT if the file
 * supports it. A transfer is cut at page boundaries: whole pages are transferred directly, and the
 * parts of pages at the two ends through the page cache. So no page is transferred in both ways at
 * the same time, even if two transfers meet in a page. The kernel keeps the page cache consistent:
 * it writes dirty pages back before a direct transfer, and drops the pages that a direct write
 * replaced.
 *
 * The calls run on faulting threads. They take no lock. They use syscall(2), because glibc's
 * wrappers of these calls are thread cancellation points.
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

#define MAX_CALL_BYTES ((size_t)1 << 30) /* bytes of a system call, below Linux's limit of 2 GiB */
#define STAT_BLOCK_BYTES 512             /* bytes of a block in st_blocks */
#define MAX_BATCH_PIECES 64              /* pieces of a system call; IOV_MAX needs much stack */

/* The arguments of one system call. */
struct batch {
	struct iovec iov[MAX_BATCH_PIECES]; /* pieces of memory */
	int n;                              /* number of pieces */
	size_t bytes;                       /* bytes of all pieces */
	bool direct;                        /* whether the transfer is direct */
};

/* The structures of cachestat(2), which older headers lack. */
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
 * Bytes that this thread has not found in the page cache when it tried to map them. The thread
 * reads them next, and need not ask the kernel again. A direct read returns the right bytes in any
 * case, so the range is only a hint.
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

/* Counts the pages of this range in the page cache; all counts are 0 if the kernel lacks the
 * call. */
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

/* Whether the file has `count` pages in this range, which begins before the end of the file. */
static bool is_page_count(const struct file *f, uint64_t off, size_t len, uint64_t count)
{
	uint64_t size, first = off / f->page, end = (off + len + f->page - 1) / f->page;

	if (count == 0 || count == end - first)
		return count > 0;
	if (file_size((void *)(uintptr_t)f, &size) < 0 || size <= off || size >= off + len)
		return false;
	return count == (size + f->page - 1) / f->page - first;
}

/* Whether the page cache contains all pages of the file in this range. */
static bool is_cached(struct file *f, uint64_t off, size_t len)
{
	return is_page_count(f, off, len, count_pages(f, off, len).cached);
}

/*
 * Whether to copy this range from the page cache, which must contain all of it. When the kernel
 * reads ahead, it marks a page. A read of the marked page, also by another program and after
 * POSIX_FADV_RANDOM, makes the kernel read ahead again, unless the page cache already contains the
 * next pages. The library would then find these pages in the page cache and copy them, too, and so
 * on up to the end of the file. So the range is copied only if the kernel has nothing to read
 * behind it, or if a direct read had to write the range back first.
 */
static bool should_copy(struct file *f, uint64_t off, size_t len)
{
	size_t ahead = max_size(f->readahead, len);
	struct cache_counts counts;
	uint64_t size;

	if (is_known_uncached(f, off, len))
		return false;
	counts = count_pages(f, off, len);
	if (!is_page_count(f, off, len, counts.cached))
		return false;
	if (counts.dirty || counts.writeback || f->readahead == 0 || is_cached(f, off + len, ahead))
		return true;
	return file_size(f, &size) < 0 || size <= off + len;
}

/* All pages of the range must be in the file, because access to a page behind its end fails. */
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
	if (addr &&
	    raw_mmap(addr, len, PROT_READ, MAP_SHARED | MAP_FIXED, f->fd, off) == MAP_FAILED)
		return -errno;
	return 1;
}

/* If the blocks of a file have as many bytes as the file, it has no holes. The kernel is not asked
 * then, because a reserved file may have a long list of extents that were never written. */
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
	if (off < (uint64_t)st.st_size &&
	    (uint64_t)st.st_blocks * STAT_BLOCK_BYTES >= (uint64_t)st.st_size) {
		*begin = off;
		*end = (uint64_t)st.st_size;
		return 0;
	}
	at = lseek(f->fd, (off_t)off, SEEK_DATA);
	if (at < 0 && errno != ENXIO)
		return -errno;
	*begin = at < 0 ? UINT64_MAX : (uint64_t)at;
	/* The caller uses the end of the data only if they include off. */
	at = *begin == off ? lseek(f->fd, (off_t)off, SEEK_HOLE) : -1;
	*end = at > (off_t)off ? (uint64_t)at : *begin;
	return 0;
}

/* Number of bytes before the first byte that can be transferred directly; len: there is none. */
static size_t bytes_before_direct(const struct file *f, const char *base, size_t len, uint64_t off)
{
	size_t to_grain = (size_t)(-off & (f->grain - 1));

	if (to_grain >= len || len - to_grain < f->grain)
		return len;
	return ((uintptr_t)base + to_grain) & (f->mem_align - 1) ? len : to_grain;
}

/* Plans the next system call: as many pieces as can be transferred in the same way. */
static void plan_batch(const struct file *f, const struct cursor *c, bool may_direct,
		       struct batch *b)
{
	size_t skip = c->skip;

	b->n = 0;
	b->bytes = 0;
	b->direct = may_direct &&
		    bytes_before_direct(f, (char *)c->piece->iov_base + skip,
					c->piece->iov_len - skip, c->off) == 0;
	for (int i = 0; i < c->n && b->n < MAX_BATCH_PIECES && b->bytes < MAX_CALL_BYTES; i++) {
		char *base = (char *)c->piece[i].iov_base + skip;
		size_t len = c->piece[i].iov_len - skip, take = len;

		skip = 0;
		if (may_direct)
			take = bytes_before_direct(f, base, len, c->off + b->bytes);
		if (b->direct)
			take = take == 0 ? len & ~(f->grain - 1) : 0;
		take = min_size(take, MAX_CALL_BYTES - b->bytes);
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

/* Beyond RLIMIT_FSIZE, the kernel also sends SIGXFSZ, which would end the process as soon as it is
 * unblocked. The callers in the library have it blocked. */
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

		plan_batch(f, &c, direct, &b);
		done = answer(syscall(call, b.direct ? f->direct_fd : f->fd, b.iov, b.n,
				      (long)c.off, (long)(c.off >> 32)));
		if (done == -EINTR)
			continue;
		if (done == -EINVAL && b.direct) {
			atomic_store_explicit(&f->refused, true, memory_order_relaxed);
			direct = false;
			continue;
		}
		if (done < 0)
			return file_failed((int)done);
		/* A read behind the end of a file returns zeros. A device that became shorter has
		 * lost bytes. */
		if (done == 0 && (call == SYS_pwritev || c.off < f->device_size))
			return -EIO;
		if (done == 0)
			zero_rest(&c);
		cursor_advance(&c, (size_t)done);
	}
	return 0;
}

static bool can_go_direct(const struct file *f)
{
	return f->direct_fd >= 0 && !atomic_load_explicit(&f->refused, memory_order_relaxed);
}

/* Whether the page cache is better for a transfer. A direct write drops the pages of its range and
 * their neighbors from the page cache, so it is avoided if page-cache mappings use them. */
static bool prefers_cache(struct file *f, uint64_t off, size_t len, bool write)
{
	if (write && f->caches_writes)
		return true;
	if (f->direct != AUTO)
		return false;
	return write ? f->maps_pagecache && is_cached(f, off, len) : should_copy(f, off, len);
}

enum file_way file_way(struct file *f, const void *buf, size_t len, uint64_t off, bool write)
{
	if (!can_go_direct(f) || !len || len > MAX_CALL_BYTES || len % f->grain ||
	    bytes_before_direct(f, buf, len, off))
		return FILE_CUT;
	if (!prefers_cache(f, off, len, write))
		return FILE_DIRECT;
	return write ? FILE_CUT : FILE_CACHED;
}

static bool should_go_direct(struct file *f, const struct iovec *iov, int n, uint64_t off,
			     bool write)
{
	size_t len = 0;

	if (!can_go_direct(f))
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
	return transfer(h, SYS_preadv, iov, n, off, should_go_direct(h, iov, n, off, false));
}

int file_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	return transfer(h, SYS_pwritev, iov, n, off, should_go_direct(h, iov, n, off, true));
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
