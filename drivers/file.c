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
 * because glibc's wrappers for them are points of thread cancellation.
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

#define CALL_MAX ((size_t)1 << 30)    /* bytes of one system call; Linux cuts at 2 GiB less a page */
#define BATCH 64                      /* pieces of one system call; IOV_MAX would be much stack */
#define OPTIMAL_MIN (256u << 10)
#define DIO_ALIGN_UNKNOWN 4096        /* what every device in use takes */

/* Where a transfer stands. */
struct cursor {
	const struct iovec *piece;
	int n;                 /* pieces left, `piece` being the first */
	size_t skip;           /* bytes of it that are done */
	uint64_t off;          /* in the file */
};

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

static long answer(long res)
{
	return res < 0 ? -errno : res;
}

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static int file_length(const struct file *f, uint64_t *size)
{
	struct stat st;

	if (f->block)
		return (int)answer(ioctl(f->fd, BLKGETSIZE64, size));
	if (fstat(f->fd, &st) < 0)
		return -errno;
	*size = (uint64_t)st.st_size;
	return 0;
}

/* Does the page cache hold all that the file has of this range? */
static bool cached(struct file *f, uint64_t off, size_t len)
{
	struct cache_range range = { off, len };
	struct cache_counts counts;
	uint64_t size, first = off / f->page, end = (off + len + f->page - 1) / f->page;

	if (atomic_load_explicit(&f->blind, memory_order_relaxed))
		return false;
	if (syscall(SYS_cachestat, f->fd, &range, &counts, 0) < 0) {
		atomic_store_explicit(&f->blind, true, memory_order_relaxed);
		return false;
	}
	if (counts.cached == 0 || counts.cached == end - first)
		return counts.cached > 0;
	if (file_length(f, &size) < 0 || size <= off || size >= off + len)
		return false;
	return counts.cached == (size + f->page - 1) / f->page - first;
}

/* Goes on by `bytes`, and over empty pieces. */
static void advance(struct cursor *c, size_t bytes)
{
	c->off += bytes;
	c->skip += bytes;
	while (c->n > 0 && c->skip >= c->piece->iov_len) {
		c->skip -= c->piece->iov_len;
		c->piece++;
		c->n--;
	}
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
		advance(c, left);
	}
}

static int transfer(struct file *f, long call, const struct iovec *iov, int n, uint64_t off,
		    bool direct)
{
	struct cursor c = { .piece = iov, .n = n, .off = off };
	struct batch b;

	advance(&c, 0);
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
			return (int)done;
		/* Files end somewhere, and zeros follow. A device that ends earlier than it did has lost bytes. */
		if (done == 0 && (call == SYS_pwritev || c.off < f->had))
			return -EIO;
		if (done == 0)
			zero_rest(&c);
		advance(&c, (size_t)done);
	}
	return 0;
}

static bool may_direct(const struct file *f)
{
	return f->direct_fd >= 0 && !atomic_load_explicit(&f->refused, memory_order_relaxed);
}

enum file_way file_way(struct file *f, const void *buf, size_t len, uint64_t off, bool write)
{
	if (!may_direct(f) || !len || len > CALL_MAX || len % f->grain || lead(f, buf, len, off))
		return FILE_CUT;
	return !write && f->direct == AUTO && cached(f, off, len) ? FILE_CACHED : FILE_DIRECT;
}

int file_read_cached(struct file *f, void *buf, size_t len, uint64_t off)
{
	struct iovec iov = { buf, len };

	return transfer(f, SYS_preadv, &iov, 1, off, false);
}

int file_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct file *f = h;
	bool direct = may_direct(f);
	size_t len = 0;

	if (direct && f->direct == AUTO) {
		for (int i = 0; i < n; i++)
			len += iov[i].iov_len;
		direct = len == 0 || !cached(f, off, len);
	}
	return transfer(f, SYS_preadv, iov, n, off, direct);
}

int file_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	return transfer(h, SYS_pwritev, iov, n, off, may_direct(h));
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
		err = (int)answer(ftruncate(f->fd, (off_t)size));
	} while (err == -EINTR);
	return err;
}

int file_size(void *h, uint64_t *size)
{
	return file_length(h, size);
}

/* Linux gives the descriptor back even where close fails. */
static int close_fd(int fd)
{
	return fd < 0 ? 0 : (int)answer(syscall(SYS_close, fd));
}

int file_close(void *h)
{
	struct file *f = h;
	int err = close_fd(f->fd), direct_err = close_fd(f->direct_fd);

	free(f);
	return err ? err : direct_err;
}

__attribute__((format(printf, 3, 4)))
static int refuse(struct ummap_geom *geom, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(geom->why, sizeof(geom->why), format, args);
	va_end(args);
	return -err;
}

static int parse_keys(const struct ummap_uri *uri, enum when *direct, struct ummap_geom *geom)
{
	static const char *const names[] = { [AUTO] = "auto", [ALWAYS] = "always", [NEVER] = "never" };

	*direct = AUTO;
	for (unsigned i = 0; i < uri->nkeys; i++) {
		unsigned k = 0;

		if (strcmp(uri->keys[i].name, "direct") != 0)
			continue;
		while (k <= NEVER && strcmp(uri->keys[i].value, names[k]) != 0)
			k++;
		if (k > NEVER)
			return refuse(geom, EINVAL, "direct must be auto, always or never, not \"%s\"",
				      uri->keys[i].value);
		*direct = k;
	}
	return 0;
}

static int check_kind(mode_t mode, struct ummap_geom *geom)
{
	if (S_ISREG(mode) || S_ISBLK(mode))
		return 0;
	return refuse(geom, ENODEV, "only regular files and block devices can be mapped");
}

/* A description of our own of the file behind fd: its flags, offset and locks are not shared. */
static int reopen(int fd, int flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return (int)answer(open(path, flags | O_CLOEXEC));
}

#ifdef STATX_DIOALIGN
/* Alignment of offset and memory for direct transfers; 0: the file takes none. */
static void file_dio_align(int fd, uint32_t *off, uint32_t *mem)
{
	struct statx stx;

	*off = *mem = DIO_ALIGN_UNKNOWN;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 && stx.stx_mask & STATX_DIOALIGN) {
		*off = stx.stx_dio_offset_align;
		*mem = stx.stx_dio_mem_align;
	}
}
#else
static void file_dio_align(int fd, uint32_t *off, uint32_t *mem)
{
	(void)fd;
	*off = *mem = DIO_ALIGN_UNKNOWN;
}
#endif

static void open_direct(struct file *f, int access)
{
	uint32_t off, mem;
	int sector;

	f->direct_fd = -1;
	f->page = (size_t)sysconf(_SC_PAGESIZE);
	file_dio_align(f->fd, &off, &mem);
	if (f->block && ioctl(f->fd, BLKSSZGET, &sector) == 0)
		off = mem = (uint32_t)sector;
	if (f->direct == NEVER || off == 0)
		return;
	f->direct_fd = reopen(f->fd, access | O_DIRECT);
	if (f->direct_fd < 0)
		return;
	f->grain = off > f->page ? off : f->page;
	f->mem_align = mem;
	/* What still goes through the page cache are ends of transfers: nothing around them is wanted. */
	posix_fadvise(f->fd, 0, 0, POSIX_FADV_RANDOM);
}

/* Takes over fd, also when it fails. */
static int make_handle(int fd, enum when direct, int oflags, void **h, struct ummap_geom *geom)
{
	struct file *f = calloc(1, sizeof(*f));
	struct stat st;
	int err;

	if (!f || fstat(fd, &st) < 0) {
		err = -errno;
		free(f);
		close_fd(fd);
		return err;
	}
	f->fd = fd;
	f->block = S_ISBLK(st.st_mode);
	f->direct = direct;
	f->slot = -1;
	open_direct(f, oflags & UMMAP_O_WRITE ? O_RDWR : O_RDONLY);
	err = file_length(f, &geom->size);
	if (err) {
		file_close(f);
		return err;
	}
	f->had = f->block ? geom->size : 0;
	geom->align = f->direct_fd >= 0 ? (uint32_t)f->grain : 1;
	/* A device may have several names in the file system: its number is what counts. */
	geom->id[0] = f->block ? (uint64_t)st.st_rdev + 1 : (uint64_t)st.st_ino;
	geom->id[1] = f->block ? UINT64_MAX : (uint64_t)st.st_dev;
	geom->optimal = st.st_blksize > OPTIMAL_MIN ? (uint32_t)st.st_blksize : OPTIMAL_MIN;
	geom->caps = UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE;
	if (f->direct_fd >= 0)
		geom->caps |= UMMAP_CAP_DIRECT;
	if (oflags & UMMAP_O_WRITE)
		geom->caps |= UMMAP_CAP_WRITE | (f->block ? 0 : UMMAP_CAP_GROW);
	*h = f;
	return 0;
}

int file_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	int flags = oflags & UMMAP_O_WRITE ? O_RDWR : O_RDONLY;
	enum when direct;
	struct stat st;
	int fd, err = parse_keys(uri, &direct, geom);

	/* Opening a pipe would wait, and opening some devices does something. */
	if (!err && stat(uri->path, &st) == 0)
		err = check_kind(st.st_mode, geom);
	if (err)
		return err;
	if (oflags & UMMAP_O_CREATE)
		flags |= O_CREAT;
	fd = (int)answer(open(uri->path, flags | O_CLOEXEC, 0666));
	return fd < 0 ? fd : make_handle(fd, direct, oflags, h, geom);
}

static int check_fd(int fd, int oflags, int *flags, struct ummap_geom *geom)
{
	struct stat st;
	int access;

	*flags = fcntl(fd, F_GETFL);
	if (*flags < 0 || *flags & O_PATH)
		return refuse(geom, EBADF, "the descriptor is not open for input and output");
	if (fstat(fd, &st) < 0)
		return -errno;
	if (check_kind(st.st_mode, geom) < 0)
		return -ENODEV;
	access = *flags & O_ACCMODE;
	if (access == O_RDWR || (access == O_RDONLY && !(oflags & UMMAP_O_WRITE)))
		return 0;
	return refuse(geom, EACCES, "the descriptor must be open for reading%s",
		      oflags & UMMAP_O_WRITE ? " and writing" : "");
}

int file_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h,
			 struct ummap_geom *geom)
{
	enum when direct;
	int flags, own, err = parse_keys(uri, &direct, geom);

	if (!err)
		err = check_fd(fd, oflags, &flags, geom);
	if (err)
		return err;
	own = reopen(fd, oflags & UMMAP_O_WRITE ? O_RDWR : O_RDONLY);
	if (own >= 0)
		return make_handle(own, direct, oflags, h, geom);
	/* No /proc, or not our file any more: share the caller's, if its flags do no harm. */
	if (flags & O_DIRECT || (flags & O_APPEND && oflags & UMMAP_O_WRITE))
		return refuse(geom, EINVAL, "the descriptor has %s, and opening it again without failed: %s",
			      flags & O_DIRECT ? "O_DIRECT" : "O_APPEND", strerror(-own));
	own = (int)answer(fcntl(fd, F_DUPFD_CLOEXEC, 0));
	return own < 0 ? own : make_handle(own, NEVER, oflags, h, geom);
}

