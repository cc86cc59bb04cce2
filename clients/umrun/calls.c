/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that move bytes between memory and descriptors. If the kernel's own accesses to regions are
 * not served, the region is pinned around the call, one part at a time. A call that reads or writes
 * a file with regions finds the stores of the regions, and the regions show the bytes that the call
 * wrote. The C library's internal calls are not intercepted; large transfers of streams from and to
 * regions are therefore copied.
 */
#include "umrun/calls.h"

#include "umrun/heap.h"
#include "umrun/next_calls.h"
#include "umrun/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ummap.h>

/* Bytes pinned at a time: few, compared with any budget. */
#define PINNED_PART_BYTES ((size_t)256 << 10)
#define COPY_BYTES 16384
/* Most bytes that the kernel moves in one call. */
#define MAX_KERNEL_BYTES ((size_t)0x7ffff000)

/* ---- Files with regions ---- */

/* Reason for handing a region back. */
static const char writes_by_call[] = "the program writes the file by a system call";

/* Calls umsync_range for the parts of the file's regions in [off, off + len). */
static void sync_file_locked(const struct stat *st, off_t off, size_t len, bool writable_only,
			     int flags)
{
	for (struct region *r = region_find_of_file(NULL, st); r; r = region_find_of_file(r, st)) {
		off_t from = off > r->off ? off : r->off, end = r->off + (off_t)r->library_len;

		end = off + (off_t)len < end ? off + (off_t)len : end;
		if (from < end && (r->writable || !writable_only))
			umsync_range(r->addr + (from - r->off), (size_t)(end - from), flags);
	}
}

/* Called before a call reads or writes the file, so that the call finds all stores. */
static void write_stored(const struct stat *st, off_t off, size_t len)
{
	int error = errno;

	region_lock_read();
	sync_file_locked(st, off, len, true, UMMAP_NOFLUSH);
	region_unlock();
	errno = error;
}

/*
 * Called before a call writes the file. The library writes whole dirty segments: if another thread
 * stored to a segment that the call writes too, write-back would undo the call. Writable regions
 * are therefore handed to the kernel.
 */
static void hand_back_stored(const struct stat *st)
{
	const struct region *r;
	int error = errno;

	region_lock_write();
	r = region_find_of_file(NULL, st);
	if (r && r->writable)
		region_hand_back_file(st, 0, writes_by_call);
	region_unlock();
	errno = error;
}

/*
 * Called after a call has written to the file, so that the file's regions show the new bytes. A
 * pinned segment cannot be read again, so regions with pins, by a call of another thread or by
 * mlock(2), are handed to the kernel. No thread pins memory while the list is locked for change.
 */
static void show_written(const struct stat *st, off_t off, size_t len)
{
	int error = errno;
	bool pinned = false;

	region_lock_write();
	for (const struct region *r = region_find_of_file(NULL, st); r && !pinned;
	     r = region_find_of_file(r, st)) {
		struct umstat now = { .struct_size = sizeof(now) };

		pinned = umstat(r->addr, &now) == 0 && now.pinned_bytes;
	}
	if (!pinned || region_hand_back_file(st, 0, writes_by_call) < 0)
		sync_file_locked(st, off, len, false, UMMAP_NOFLUSH | UMMAP_EVICT);
	region_unlock();
	errno = error;
}

static bool has_regions(int fd, struct stat *st)
{
	int error = errno;
	bool has = false;

	/* The heap is copied for a child while the list is locked. */
	if (region_file_count && !region_holds_lock() && fstat(fd, st) == 0 && S_ISREG(st->st_mode))
		has = region_has_file(st);
	errno = error;
	return has;
}

/* ---- Memory in regions ---- */

static bool is_in_region(const void *buf, size_t len)
{
	if (!region_count || !len || region_holds_lock())
		return false;
	return heap_left(buf) || region_has_range(buf, len);
}

bool is_held(const void *buf, size_t len)
{
	return !region_kernel_can_access && is_in_region(buf, len);
}

static void pin_part(struct pins *pins, char *at, size_t len, int prot)
{
	if (pins->count == MAX_PINS)
		return;
	if (umpin(at, len, prot) == 0)
		pins->part[pins->count++] = (struct iovec){ at, len };
	else
		pins->is_refused |= errno == ENOMEM || errno == EAGAIN;
}

/* Pins the parts of the range that are in regions. */
static void pin_regions(struct pins *pins, char *from, size_t len, int prot)
{
	char *end = from + len;

	region_lock_read();
	for (const struct region *r = region_find(from, len); r;
	     r = region_find_next(r, from, len)) {
		char *first = from > r->addr ? from : r->addr;
		char *last = end < r->addr + r->library_len ? end : r->addr + r->library_len;

		if (first < last)
			pin_part(pins, first, (size_t)(last - first), prot);
	}
	region_unlock();
}

static void pin_memory(struct pins *pins, const void *buf, size_t len, int prot)
{
	int error = errno;
	size_t left = heap_left(buf);

	*pins = (struct pins){ .count = 0 };
	if (left)
		pin_part(pins, (char *)(uintptr_t)buf, len < left ? len : left, prot);
	else if (len)
		pin_regions(pins, (char *)(uintptr_t)buf, len, prot);
	errno = error;
}

void pin(struct pins *pins, const void *buf, size_t len, int prot)
{
	*pins = (struct pins){ .count = 0 };
	if (is_held(buf, len))
		pin_memory(pins, buf, len, prot);
}

void unpin(const struct pins *pins)
{
	int error = errno;

	for (size_t i = 0; i < pins->count; i++)
		umunpin(pins->part[i].iov_base, pins->part[i].iov_len);
	errno = error;
}

/* Whether the whole range is memory of the library with these rights. */
static bool is_whole(const char *from, size_t len, int prot)
{
	const struct region *r;
	bool whole;

	if (heap_left(from))
		return heap_left(from) >= len;
	region_lock_read();
	r = region_find(from, len);
	whole = r && from >= r->addr && len <= (size_t)(r->addr + r->library_len - from) &&
		(r->writable || !(prot & PROT_WRITE));
	region_unlock();
	return whole;
}

void *make_copy(const void *buf, size_t len, int prot)
{
	int error = errno;
	void *copy = MAP_FAILED;

	if (is_whole(buf, len, prot))
		copy = map_private(len);
	errno = error;
	if (copy == MAP_FAILED)
		return NULL;
	if (!(prot & PROT_WRITE))
		memcpy(copy, buf, len);
	return copy;
}

void free_copy(void *copy, size_t len)
{
	int error = errno;

	kernel_munmap(copy, len);
	errno = error;
}

/* ---- Transfers ---- */

struct transfer {
	int fd;
	off_t off;               /* offset in the file; -1: that of the descriptor */
	int flags;               /* flags of send and recv */
	enum transfer_kind kind; /* call that makes a step */
};

static bool fills_memory(const struct transfer *t)
{
	return t->kind <= TRANSFER_RECV;
}

static ssize_t call_next(const struct transfer *t, char *buf, size_t len)
{
	switch (t->kind) {
	case TRANSFER_READ:
		return next_read(t->fd, buf, len);
	case TRANSFER_PREAD:
		return next_pread(t->fd, buf, len, t->off);
	case TRANSFER_RECV:
		return next_recv(t->fd, buf, len, t->flags);
	case TRANSFER_WRITE:
		return next_write(t->fd, buf, len);
	case TRANSFER_PWRITE:
		return next_pwrite(t->fd, buf, len, t->off);
	default:
		return next_send(t->fd, buf, len, t->flags);
	}
}

/* Makes one call, and advances the offset. */
static ssize_t transfer_once(struct transfer *t, char *buf, size_t len)
{
	ssize_t n = call_next(t, buf, len);

	t->off += t->off >= 0 && n > 0 ? n : 0;
	return n;
}

/* If other threads, which may wait for long, have pinned all memory that can be pinned, the bytes
 * go through a copy. */
static ssize_t transfer_pinned(struct transfer *t, char *buf, size_t len)
{
	int prot = fills_memory(t) ? PROT_READ | PROT_WRITE : PROT_READ;
	struct pins pins;
	char *copy;
	ssize_t n;

	pin_memory(&pins, buf, len, prot);
	copy = pins.is_refused ? make_copy(buf, len, prot) : NULL;
	n = transfer_once(t, copy ? copy : buf, len);
	if (copy) {
		if (fills_memory(t) && n > 0)
			memcpy(buf, copy, (size_t)n < len ? (size_t)n : len);
		free_copy(copy, len);
	}
	unpin(&pins);
	return n;
}

/* Transfers by pinned parts, and ends like one call: after a short part, and after the first part
 * that fills memory unless the descriptor is a file, which never makes the caller wait for more. */
static ssize_t transfer_by_parts(struct transfer *t, char *buf, size_t len, bool is_file)
{
	size_t done = 0;

	do {
		size_t left = len - done;
		size_t part = left < PINNED_PART_BYTES ? left : PINNED_PART_BYTES;
		ssize_t n = transfer_pinned(t, buf + done, part);

		if (n < 0)
			return done ? (ssize_t)done : -1;
		done += (size_t)n;
		if ((size_t)n < part)
			break;
	} while (done < len && (is_file || !fills_memory(t)));
	return (ssize_t)done;
}

/* Pins memory even if the kernel's accesses are served: the kernel locks the file while it waits
 * for memory, and the library may need the file to provide it. */
static ssize_t transfer_of_file(struct transfer *t, const struct stat *st, char *buf, size_t len)
{
	off_t off = t->off >= 0 ? t->off : lseek(t->fd, 0, SEEK_CUR);
	ssize_t n;

	if (!fills_memory(t))
		hand_back_stored(st);
	write_stored(st, off, len);
	n = is_in_region(buf, len) ? transfer_by_parts(t, buf, len, true) :
	    transfer_once(t, buf, len);
	if (n > 0 && !fills_memory(t))
		show_written(st, off, (size_t)n);
	return n;
}

static ssize_t transfer(struct transfer *t, void *buf, size_t len)
{
	struct stat st;

	if (has_regions(t->fd, &st))
		return transfer_of_file(t, &st, buf, len);
	if (is_held(buf, len))
		return transfer_by_parts(t, buf, len, lseek(t->fd, 0, SEEK_CUR) >= 0);
	return transfer_once(t, buf, len);
}

ssize_t take_transfer(int fd, off_t off, int flags, enum transfer_kind kind, const void *buf,
		      size_t len)
{
	return transfer(&(struct transfer){ fd, off, flags, kind }, (void *)(uintptr_t)buf, len);
}

ssize_t transfer_parts(int fd, off_t off, enum transfer_kind kind, const struct iovec *iov,
		       int count)
{
	struct transfer t = { fd, off, 0, kind };
	ssize_t done = 0;

	for (int i = 0; i < count; i++) {
		ssize_t n = transfer(&t, iov[i].iov_base, iov[i].iov_len);

		if (n < 0)
			return done ? done : -1;
		done += n;
		if ((size_t)n < iov[i].iov_len)
			break;
	}
	return done;
}

bool needs_care(int fd, const struct iovec *iov, int count)
{
	struct stat st;

	/* The kernel refuses impossible counts. */
	if (count <= 0 || count > IOV_MAX)
		return false;
	for (int i = 0; i < count; i++) {
		if (is_held(iov[i].iov_base, iov[i].iov_len))
			return true;
	}
	return has_regions(fd, &st);
}

/* If the descriptor is not a file, all parts are one message, or the bytes that do not make the
 * caller wait. */
ssize_t take_vector(int fd, const struct iovec *iov, int count, enum transfer_kind kind)
{
	bool reads = kind == TRANSFER_READ;

	if (lseek(fd, 0, SEEK_CUR) < 0)
		return pinned_vector(reads ? next_readv : next_writev, fd, iov, count,
				     reads ? PROT_READ | PROT_WRITE : PROT_READ);
	return transfer_parts(fd, -1, kind, iov, count);
}

/* ---- Streams: the C library transfers large parts of them by internal calls. ---- */

size_t write_stream(write_call next, const void *from, size_t size, size_t count, FILE *file)
{
	size_t all = size * count, done = 0;
	char copy[COPY_BYTES];

	while (done < all) {
		size_t part = all - done < COPY_BYTES ? all - done : COPY_BYTES, n;

		memcpy(copy, (const char *)from + done, part);
		n = next(copy, 1, part, file);
		done += n;
		if (n < part)
			break;
	}
	return done / size;
}

size_t read_stream(read_call next, void *to, size_t size, size_t count, FILE *file)
{
	size_t all = size * count, done = 0;
	char copy[COPY_BYTES];

	while (done < all) {
		size_t part = all - done < COPY_BYTES ? all - done : COPY_BYTES;
		size_t n = next(copy, 1, part, file);

		memcpy((char *)to + done, copy, n);
		done += n;
		if (n < part)
			break;
	}
	return done / size;
}

int write_text(write_call next, const char *text, FILE *file)
{
	size_t len = strlen(text);

	return write_stream(next, text, 1, len, file) == len ? 1 : EOF;
}

/* ---- Files that become shorter: behind the end, a mapping of the kernel raises SIGBUS. ---- */

int shorten_file(const struct stat *st, off_t len)
{
	int result;

	region_lock_write();
	result = region_hand_back_file(st, len, "the program shortens the file");
	region_unlock();
	return result;
}

int shorten(int fd, off_t len)
{
	struct stat st;

	return has_regions(fd, &st) && len < st.st_size ? shorten_file(&st, len) : 0;
}

/* ---- Calls that move bytes between descriptors, or change the contents of a file ---- */

/* A range of a file that a call reads or changes. */
struct span {
	struct stat st;
	off_t off;
	bool has_regions;        /* the other fields are valid */
};

/* Called before the call, which finds all stores. at: the offset, or NULL for that of the
 * descriptor. */
static struct span begin_span(int fd, const off_t *at, size_t len, bool writes)
{
	struct span s = { .has_regions = has_regions(fd, &s.st) };

	if (s.has_regions) {
		if (writes)
			hand_back_stored(&s.st);
		s.off = at ? *at : lseek(fd, 0, SEEK_CUR);
		write_stored(&s.st, s.off, len);
	}
	return s;
}

/* Called after the call has changed len bytes, so that the regions show them. */
static void end_span(const struct span *s, ssize_t len)
{
	if (s->has_regions && len > 0)
		show_written(&s->st, s->off, (size_t)len);
}

ssize_t take_copy(copy_call next, int in, off_t *in_at, int out, off_t *out_at, size_t len,
		  unsigned flags)
{
	struct span to;
	ssize_t n;

	len = len < MAX_KERNEL_BYTES ? len : MAX_KERNEL_BYTES;
	begin_span(in, in_at, len, false);
	to = begin_span(out, out_at, len, true);
	n = next(in, in_at, out, out_at, len, flags);
	end_span(&to, n);
	return n;
}

ssize_t call_sendfile(int in, off_t *at, int out, off_t *unused, size_t len, unsigned flags)
{
	(void)unused, (void)flags;
	return next_sendfile(out, in, at, len);
}

int take_fallocate(int fd, int mode, off_t off, off_t len)
{
	struct span s;
	int result;

	if (!(mode & ~FALLOC_FL_KEEP_SIZE) || off < 0 || len <= 0)
		return next_fallocate(fd, mode, off, len);
	/* These modes move all pages behind the range, which only a mapping of the kernel shows. */
	if (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE) && shorten(fd, off) < 0)
		return -1;
	s = begin_span(fd, &off, (size_t)len, true);
	result = next_fallocate(fd, mode, off, len);
	end_span(&s, result == 0 ? len : 0);
	return result;
}

/* The file system sees stores, and so the ends of holes, only after they are written. */
void write_stored_for_seek(int fd, int whence)
{
	struct stat st;

	if ((whence == SEEK_DATA || whence == SEEK_HOLE) && has_regions(fd, &st))
		write_stored(&st, 0, SIZE_MAX >> 1);
}

/* The kernel's fsync(2) includes the stores of mappings. */
int sync_regions(int fd)
{
	struct region *r;
	struct stat st;
	int result = 0;

	if (!has_regions(fd, &st))
		return 0;
	region_lock_read();
	for (r = region_find_of_file(NULL, &st); r && result == 0;
	     r = region_find_of_file(r, &st)) {
		if (r->writable)
			result = umsync_range(r->addr, r->library_len, 0);
	}
	region_unlock();
	return result;
}

/* ---- Programs that replace this one with arguments as a list ---- */

int exec_list(exec_call exec, const char *file, const char *first, va_list rest)
{
	size_t count = 1, room = 64;
	char **argv = malloc(room * sizeof(*argv));
	int result;

	while (argv && first) {
		argv[count - 1] = (char *)(uintptr_t)first;
		first = va_arg(rest, const char *);
		if (++count == room)
			argv = reallocarray(argv, room *= 2, sizeof(*argv));
	}
	if (!argv) {
		errno = ENOMEM;
		return -1;
	}
	argv[count - 1] = NULL;
	result = exec(file, argv);
	free(argv);
	return result;
}
