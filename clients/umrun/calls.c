/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The C library's calls that move bytes between memory and descriptors. Where the kernel's own accesses to a region are not
 * served, the region is pinned around the call, a part at a time. Where a call reads or writes a file that has a region, it finds
 * what was stored, and the region shows what was written. What the C library does inside itself does not come this way, but for
 * streams that are given much at once, which copy.
 */
#include "umrun/calls.h"

#include "umrun/heap.h"
#include "umrun/next.h"
#include "umrun/region.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <ummap.h>

/* Where these are macros, too. */
#undef fread_unlocked
#undef fwrite_unlocked

/* Pinned at a time: little beside any budget. */
#define PART ((size_t)256 << 10)
#define COPIED 16384
/* The kernel moves no more in one call. */
#define MOST ((size_t)0x7ffff000)

/* ---- A file that has regions. ---- */

/* Reason for handing a region back. */
static const char writes_by_call[] = "the program writes the file by a system call";

/* umsync_range for what of the regions of the file lies in [off, off + len). */
static void sync_locked(const struct stat *st, off_t off, size_t len, bool writable_only, int flags)
{
	for (struct region *r = region_of_file(NULL, st); r; r = region_of_file(r, st)) {
		off_t from = off > r->off ? off : r->off, end = r->off + (off_t)r->ours;

		end = off + (off_t)len < end ? off + (off_t)len : end;
		if (from < end && (r->writable || !writable_only))
			umsync_range(r->addr + (from - r->off), (size_t)(end - from), flags);
	}
}

/* Before a call that reads or writes the file: it finds what was stored. */
static void write_stored(const struct stat *st, off_t off, size_t len)
{
	int error = errno;

	region_lock_look();
	sync_locked(st, off, len, true, UMMAP_NOFLUSH);
	region_unlock();
	errno = error;
}

/*
 * Before a file is written by a call. Of what is dirty, whole segments are written: a store of another thread to one that the call
 * writes, too, would undo the call, so what can be stored to is the kernel's from now on.
 */
static void hand_back_stored(const struct stat *st)
{
	const struct region *r;
	int error = errno;

	region_lock_change();
	r = region_of_file(NULL, st);
	if (r && r->writable)
		region_hand_back_file(st, 0, writes_by_call);
	region_unlock();
	errno = error;
}

/*
 * After a call has written to the file: its regions show it. What is pinned, for a call of another thread or by mlock(2), stays in
 * memory as it was, and is the kernel's from now on. Nothing is pinned while the list is locked to be changed.
 */
static void show_written(const struct stat *st, off_t off, size_t len)
{
	int error = errno;
	bool pinned = false;

	region_lock_change();
	for (const struct region *r = region_of_file(NULL, st); r && !pinned; r = region_of_file(r, st)) {
		struct umstat now = { .struct_size = sizeof(now) };

		pinned = umstat(r->addr, &now) == 0 && now.pinned_bytes;
	}
	if (!pinned || region_hand_back_file(st, 0, writes_by_call) < 0)
		sync_locked(st, off, len, false, UMMAP_NOFLUSH | UMMAP_EVICT);
	region_unlock();
	errno = error;
}

static bool has_regions(int fd, struct stat *st)
{
	int error = errno;
	bool has = false;

	/* A heap is copied for a child while the list is locked. */
	if (region_files && !region_is_locked() && fstat(fd, st) == 0 && S_ISREG(st->st_mode))
		has = region_has_file(st);
	errno = error;
	return has;
}

/* ---- Memory that is in a region. ---- */

static bool is_ours(const void *buf, size_t len)
{
	if (!region_count || !len || region_is_locked())
		return false;
	return heap_left(buf) || region_has_range(buf, len);
}

bool is_held(const void *buf, size_t len)
{
	return !region_kernel && is_ours(buf, len);
}

static void pin_part(struct pins *pins, char *at, size_t len, int prot)
{
	if (pins->count == PINS)
		return;
	if (umpin(at, len, prot) == 0)
		pins->part[pins->count++] = (struct iovec){ at, len };
	else
		pins->over |= errno == ENOMEM || errno == EAGAIN;
}

/* What of the range is in regions; what lies between and behind them is the kernel's. */
static void pin_regions(struct pins *pins, char *from, size_t len, int prot)
{
	char *end = from + len;

	region_lock_look();
	for (const struct region *r = region_next(NULL, from, len); r; r = region_next(r, from, len)) {
		char *first = from > r->addr ? from : r->addr, *last = end < r->addr + r->ours ? end : r->addr + r->ours;

		if (first < last)
			pin_part(pins, first, (size_t)(last - first), prot);
	}
	region_unlock();
}

static void pin_ours(struct pins *pins, const void *buf, size_t len, int prot)
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
		pin_ours(pins, buf, len, prot);
}

void unpin(const struct pins *pins)
{
	int error = errno;

	for (size_t i = 0; i < pins->count; i++)
		umunpin(pins->part[i].iov_base, pins->part[i].iov_len);
	errno = error;
}

static bool is_whole(const char *from, size_t len, int prot)
{
	const struct region *r;
	bool whole;

	if (heap_left(from))
		return heap_left(from) >= len;
	region_lock_look();
	r = region_at(from, len);
	whole = r && from >= r->addr && len <= (size_t)(r->addr + r->ours - from) && (r->writable || !(prot & PROT_WRITE));
	region_unlock();
	return whole;
}

void *stand_in(const void *buf, size_t len, int prot)
{
	int error = errno;
	void *copy = is_whole(buf, len, prot) ? kernel_mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) :
						MAP_FAILED;

	errno = error;
	if (copy == MAP_FAILED)
		return NULL;
	if (!(prot & PROT_WRITE))
		memcpy(copy, buf, len);
	return copy;
}

void stand_in_end(void *copy, size_t len)
{
	int error = errno;

	kernel_munmap(copy, len);
	errno = error;
}

/* ---- Transfers. ---- */

struct transfer {
	int fd;
	off_t off;               /* -1: where the descriptor is */
	int flags;               /* of send and recv */
	bool loads;              /* bytes go into memory */
	void *call;              /* what makes a step */
	ssize_t (*step)(const struct transfer *t, char *buf, size_t len);
};

/* And on to what follows. */
static ssize_t step(struct transfer *t, char *buf, size_t len)
{
	ssize_t n = t->step(t, buf, len);

	t->off += t->off >= 0 && n > 0 ? n : 0;
	return n;
}

/* Where other threads have pinned all that may be, of which some may wait for long, it goes by a copy. */
static ssize_t step_pinned(struct transfer *t, char *buf, size_t len)
{
	int prot = t->loads ? PROT_READ | PROT_WRITE : PROT_READ;
	struct pins pins;
	char *copy;
	ssize_t n;

	pin_ours(&pins, buf, len, prot);
	copy = pins.over ? stand_in(buf, len, prot) : NULL;
	n = step(t, copy ? copy : buf, len);
	if (copy) {
		if (t->loads && n > 0)
			memcpy(buf, copy, (size_t)n < len ? (size_t)n : len);
		stand_in_end(copy, len);
	}
	unpin(&pins);
	return n;
}

/* By pinned parts, and like one call: what follows a short one is left. Only a file has more to give without waiting. */
static ssize_t move(struct transfer *t, char *buf, size_t len, bool is_file)
{
	size_t done = 0;

	do {
		size_t part = len - done < PART ? len - done : PART;
		ssize_t n = step_pinned(t, buf + done, part);

		if (n < 0)
			return done ? (ssize_t)done : -1;
		done += (size_t)n;
		if ((size_t)n < part)
			break;
	} while (done < len && (is_file || !t->loads));
	return (ssize_t)done;
}

/* A file that has regions is locked by the kernel while it waits for memory, which the library may need the file for. */
static ssize_t transfer_of_file(struct transfer *t, const struct stat *st, char *buf, size_t len)
{
	off_t off = t->off >= 0 ? t->off : lseek(t->fd, 0, SEEK_CUR);
	ssize_t n;

	if (!t->loads)
		hand_back_stored(st);
	write_stored(st, off, len);
	n = is_ours(buf, len) ? move(t, buf, len, true) : step(t, buf, len);
	if (n > 0 && !t->loads)
		show_written(st, off, (size_t)n);
	return n;
}

static ssize_t transfer(struct transfer *t, void *buf, size_t len)
{
	struct stat st;

	if (has_regions(t->fd, &st))
		return transfer_of_file(t, &st, buf, len);
	return is_held(buf, len) ? move(t, buf, len, lseek(t->fd, 0, SEEK_CUR) >= 0) : step(t, buf, len);
}

/* One after the other, where something has to be done for one of them. */
static ssize_t transfer_all(struct transfer *t, const struct iovec *iov, int count)
{
	ssize_t done = 0;

	for (int i = 0; i < count; i++) {
		ssize_t n = transfer(t, iov[i].iov_base, iov[i].iov_len);

		if (n < 0)
			return done ? done : -1;
		done += n;
		if ((size_t)n < iov[i].iov_len)
			break;
	}
	return done;
}

/* Counts that cannot be are the kernel's to refuse. */
static bool needs_care(int fd, const struct iovec *iov, int count)
{
	struct stat st;

	if (!region_count || count <= 0 || count > IOV_MAX)
		return false;
	for (int i = 0; i < count; i++) {
		if (is_held(iov[i].iov_base, iov[i].iov_len))
			return true;
	}
	return has_regions(fd, &st);
}

static ssize_t step_read(const struct transfer *t, char *buf, size_t len)
{
	return ((ssize_t (*)(int, void *, size_t))t->call)(t->fd, buf, len);
}

static ssize_t step_pread(const struct transfer *t, char *buf, size_t len)
{
	return ((ssize_t (*)(int, void *, size_t, off_t))t->call)(t->fd, buf, len, t->off);
}

static ssize_t step_recv(const struct transfer *t, char *buf, size_t len)
{
	return ((ssize_t (*)(int, void *, size_t, int))t->call)(t->fd, buf, len, t->flags);
}

/* The same for those that only load from memory. */
#define step_write step_read
#define step_pwrite step_pread
#define step_send step_recv

static ssize_t run(const void *caller, struct transfer t, const void *buf, size_t len)
{
	char *bytes = (char *)(uintptr_t)buf;

	return next_is_library(caller) ? t.step(&t, bytes, len) : transfer(&t, bytes, len);
}

PUBLIC ssize_t read(int fd, void *buf, size_t len)
{
	return run(CALLER, (struct transfer){ fd, -1, 0, true, NEXT("read"), step_read }, buf, len);
}

PUBLIC ssize_t write(int fd, const void *buf, size_t len)
{
	return run(CALLER, (struct transfer){ fd, -1, 0, false, NEXT("write"), step_write }, buf, len);
}

PUBLIC ssize_t pread(int fd, void *buf, size_t len, off_t off)
{
	return run(CALLER, (struct transfer){ fd, off, 0, true, NEXT("pread"), step_pread }, buf, len);
}

PUBLIC ssize_t pread64(int fd, void *buf, size_t len, off_t off)
{
	return run(CALLER, (struct transfer){ fd, off, 0, true, NEXT("pread"), step_pread }, buf, len);
}

PUBLIC ssize_t pwrite(int fd, const void *buf, size_t len, off_t off)
{
	return run(CALLER, (struct transfer){ fd, off, 0, false, NEXT("pwrite"), step_pwrite }, buf, len);
}

PUBLIC ssize_t pwrite64(int fd, const void *buf, size_t len, off_t off)
{
	return run(CALLER, (struct transfer){ fd, off, 0, false, NEXT("pwrite"), step_pwrite }, buf, len);
}

PUBLIC ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	return run(CALLER, (struct transfer){ fd, -1, flags, false, NEXT("send"), step_send }, buf, len);
}

PUBLIC ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	return run(CALLER, (struct transfer){ fd, -1, flags, true, NEXT("recv"), step_recv }, buf, len);
}

/* ---- The same, from programs that were built to be checked (_FORTIFY_SOURCE). ---- */

void check_room(size_t len, size_t room)
{
	if (len > room)
		((void (*)(void))NEXT("__chk_fail"))();
}

PUBLIC ssize_t __read_chk(int fd, void *buf, size_t len, size_t room);
PUBLIC ssize_t __read_chk(int fd, void *buf, size_t len, size_t room)
{
	check_room(len, room);
	return run(CALLER, (struct transfer){ fd, -1, 0, true, NEXT("read"), step_read }, buf, len);
}

PUBLIC ssize_t __pread_chk(int fd, void *buf, size_t len, off_t off, size_t room);
PUBLIC ssize_t __pread_chk(int fd, void *buf, size_t len, off_t off, size_t room)
{
	check_room(len, room);
	return run(CALLER, (struct transfer){ fd, off, 0, true, NEXT("pread"), step_pread }, buf, len);
}

PUBLIC ssize_t __pread64_chk(int fd, void *buf, size_t len, off_t off, size_t room);
PUBLIC ssize_t __pread64_chk(int fd, void *buf, size_t len, off_t off, size_t room)
{
	check_room(len, room);
	return run(CALLER, (struct transfer){ fd, off, 0, true, NEXT("pread"), step_pread }, buf, len);
}

PUBLIC ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags);
PUBLIC ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags)
{
	check_room(len, room);
	return run(CALLER, (struct transfer){ fd, -1, flags, true, NEXT("recv"), step_recv }, buf, len);
}

PUBLIC ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags, struct sockaddr *from, socklen_t *from_len);
PUBLIC ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags, struct sockaddr *from, socklen_t *from_len)
{
	check_room(len, room);
	return recvfrom(fd, buf, len, flags, from, from_len);
}

PUBLIC size_t __fread_chk(void *to, size_t room, size_t size, size_t count, FILE *file);
PUBLIC size_t __fread_chk(void *to, size_t room, size_t size, size_t count, FILE *file)
{
	check_room(size * count, room);
	return fread(to, size, count, file);
}

PUBLIC size_t __fread_unlocked_chk(void *to, size_t room, size_t size, size_t count, FILE *file);
PUBLIC size_t __fread_unlocked_chk(void *to, size_t room, size_t size, size_t count, FILE *file)
{
	check_room(size * count, room);
	return fread_unlocked(to, size, count, file);
}

/* Of what is no file, all parts are one message, or what there is without waiting. */
static ssize_t vector_here(const void *caller, struct transfer t, const struct iovec *iov, int count, void *whole)
{
	ssize_t (*next)(int, const struct iovec *, int) = (ssize_t (*)(int, const struct iovec *, int))whole;

	if (next_is_library(caller) || !needs_care(t.fd, iov, count))
		return next(t.fd, iov, count);
	if (lseek(t.fd, 0, SEEK_CUR) < 0)
		return pinned_vector(next, t.fd, iov, count, t.loads ? PROT_READ | PROT_WRITE : PROT_READ);
	return transfer_all(&t, iov, count);
}

PUBLIC ssize_t readv(int fd, const struct iovec *iov, int count)
{
	return vector_here(CALLER, (struct transfer){ fd, -1, 0, true, NEXT("read"), step_read }, iov, count, NEXT("readv"));
}

PUBLIC ssize_t writev(int fd, const struct iovec *iov, int count)
{
	return vector_here(CALLER, (struct transfer){ fd, -1, 0, false, NEXT("write"), step_write }, iov, count, NEXT("writev"));
}

static ssize_t vector(const void *caller, struct transfer t, const struct iovec *iov, int count, void *whole)
{
	if (next_is_library(caller) || !needs_care(t.fd, iov, count))
		return ((ssize_t (*)(int, const struct iovec *, int, off_t))whole)(t.fd, iov, count, t.off);
	return transfer_all(&t, iov, count);
}

PUBLIC ssize_t preadv(int fd, const struct iovec *iov, int count, off_t off)
{
	return vector(CALLER, (struct transfer){ fd, off, 0, true, NEXT("pread"), step_pread }, iov, count, NEXT("preadv"));
}

PUBLIC ssize_t preadv64(int fd, const struct iovec *iov, int count, off_t off)
{
	return vector(CALLER, (struct transfer){ fd, off, 0, true, NEXT("pread"), step_pread }, iov, count, NEXT("preadv"));
}

PUBLIC ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t off)
{
	return vector(CALLER, (struct transfer){ fd, off, 0, false, NEXT("pwrite"), step_pwrite }, iov, count, NEXT("pwritev"));
}

PUBLIC ssize_t pwritev64(int fd, const struct iovec *iov, int count, off_t off)
{
	return vector(CALLER, (struct transfer){ fd, off, 0, false, NEXT("pwrite"), step_pwrite }, iov, count, NEXT("pwritev"));
}

/* Flags that ask for more than to wait are the kernel's to judge. */
PUBLIC ssize_t preadv2(int fd, const struct iovec *iov, int count, off_t off, int flags)
{
	if (FROM_LIBRARY() || !needs_care(fd, iov, count))
		return ((ssize_t (*)(int, const struct iovec *, int, off_t, int))NEXT("preadv2"))(fd, iov, count, off, flags);
	return off == -1 ? readv(fd, iov, count) : preadv(fd, iov, count, off);
}

PUBLIC ssize_t preadv64v2(int fd, const struct iovec *iov, int count, off_t off, int flags)
{
	return preadv2(fd, iov, count, off, flags);
}

PUBLIC ssize_t pwritev2(int fd, const struct iovec *iov, int count, off_t off, int flags)
{
	if (FROM_LIBRARY() || flags & RWF_APPEND || !needs_care(fd, iov, count))
		return ((ssize_t (*)(int, const struct iovec *, int, off_t, int))NEXT("pwritev2"))(fd, iov, count, off, flags);
	return off == -1 ? writev(fd, iov, count) : pwritev(fd, iov, count, off);
}

PUBLIC ssize_t pwritev64v2(int fd, const struct iovec *iov, int count, off_t off, int flags)
{
	return pwritev2(fd, iov, count, off, flags);
}

/* ---- Streams: their large parts go from and to memory inside the C library. ---- */

static size_t put(const void *caller, void *call, const void *from, size_t size, size_t count, FILE *file)
{
	size_t (*next)(const void *, size_t, size_t, FILE *) = (size_t (*)(const void *, size_t, size_t, FILE *))call;
	size_t all = size * count, done = 0;
	char copy[COPIED];

	if (next_is_library(caller) || !is_held(from, all))
		return next(from, size, count, file);
	while (done < all) {
		size_t part = all - done < COPIED ? all - done : COPIED, n;

		memcpy(copy, (const char *)from + done, part);
		n = next(copy, 1, part, file);
		done += n;
		if (n < part)
			break;
	}
	return done / size;
}

static size_t get(const void *caller, void *call, void *to, size_t size, size_t count, FILE *file)
{
	size_t (*next)(void *, size_t, size_t, FILE *) = (size_t (*)(void *, size_t, size_t, FILE *))call;
	size_t all = size * count, done = 0;
	char copy[COPIED];

	if (next_is_library(caller) || !is_held(to, all))
		return next(to, size, count, file);
	while (done < all) {
		size_t part = all - done < COPIED ? all - done : COPIED, n = next(copy, 1, part, file);

		memcpy((char *)to + done, copy, n);
		done += n;
		if (n < part)
			break;
	}
	return done / size;
}

PUBLIC size_t fwrite(const void *from, size_t size, size_t count, FILE *file)
{
	return put(CALLER, NEXT("fwrite"), from, size, count, file);
}

PUBLIC size_t fwrite_unlocked(const void *from, size_t size, size_t count, FILE *file)
{
	return put(CALLER, NEXT("fwrite_unlocked"), from, size, count, file);
}

PUBLIC size_t fread(void *to, size_t size, size_t count, FILE *file)
{
	return get(CALLER, NEXT("fread"), to, size, count, file);
}

PUBLIC size_t fread_unlocked(void *to, size_t size, size_t count, FILE *file)
{
	return get(CALLER, NEXT("fread_unlocked"), to, size, count, file);
}

PUBLIC int fputs(const char *text, FILE *file)
{
	size_t len = !FROM_LIBRARY() && is_held(text, 1) ? strlen(text) : 0;

	if (!len)
		return ((int (*)(const char *, FILE *))NEXT("fputs"))(text, file);
	return fwrite(text, 1, len, file) == len ? 1 : EOF;
}

PUBLIC int fputs_unlocked(const char *text, FILE *file)
{
	size_t len = !FROM_LIBRARY() && is_held(text, 1) ? strlen(text) : 0;

	if (!len)
		return ((int (*)(const char *, FILE *))NEXT("fputs_unlocked"))(text, file);
	return fwrite_unlocked(text, 1, len, file) == len ? 1 : EOF;
}

PUBLIC int puts(const char *text)
{
	if (FROM_LIBRARY() || !is_held(text, 1))
		return ((int (*)(const char *))NEXT("puts"))(text);
	return fputs(text, stdout) == EOF ? EOF : putchar('\n');
}

/* ---- Files that become shorter: what lies behind the end raises SIGBUS in a mapping of the kernel's. ---- */

int shorten_file(const struct stat *st, off_t len)
{
	int result;

	region_lock_change();
	result = region_hand_back_file(st, len, "the program shortens the file");
	region_unlock();
	return result;
}

static int shorten(int fd, off_t len)
{
	struct stat st;

	return has_regions(fd, &st) && len < st.st_size ? shorten_file(&st, len) : 0;
}

PUBLIC int ftruncate(int fd, off_t len)
{
	int (*next)(int, off_t) = NEXT("ftruncate");

	return !FROM_LIBRARY() && shorten(fd, len) < 0 ? -1 : next(fd, len);
}

PUBLIC int ftruncate64(int fd, off_t len)
{
	int (*next)(int, off_t) = NEXT("ftruncate");

	return !FROM_LIBRARY() && shorten(fd, len) < 0 ? -1 : next(fd, len);
}

/* ---- Calls that move bytes from one descriptor to another, or change what a file holds. ---- */

/* What a call reads or changes of a file, which has regions or not. */
struct span {
	struct stat st;
	off_t off;
	bool has;
};

/* Before the call, which finds what was stored; at: where, NULL: where the descriptor is. */
static struct span span_begin(int fd, const off_t *at, size_t len, bool writes)
{
	struct span s = { .has = has_regions(fd, &s.st) };

	if (s.has) {
		if (writes)
			hand_back_stored(&s.st);
		s.off = at ? *at : lseek(fd, 0, SEEK_CUR);
		write_stored(&s.st, s.off, len);
	}
	return s;
}

/* After it, where it changed the file: the regions show it. */
static void span_changed(const struct span *s, ssize_t len)
{
	if (s->has && len > 0)
		show_written(&s->st, s->off, (size_t)len);
}

/* copy_file_range and splice. */
static ssize_t between(const void *caller, void *call, int in, off_t *in_at, int out, off_t *out_at, size_t len, unsigned flags)
{
	ssize_t (*next)(int, off_t *, int, off_t *, size_t, unsigned) = (ssize_t (*)(int, off_t *, int, off_t *, size_t, unsigned))call;
	struct span to;
	ssize_t n;

	if (next_is_library(caller) || !region_count)
		return next(in, in_at, out, out_at, len, flags);
	len = len < MOST ? len : MOST;
	span_begin(in, in_at, len, false);
	to = span_begin(out, out_at, len, true);
	n = next(in, in_at, out, out_at, len, flags);
	span_changed(&to, n);
	return n;
}

PUBLIC ssize_t copy_file_range(int in, off_t *in_at, int out, off_t *out_at, size_t len, unsigned flags)
{
	return between(CALLER, NEXT("copy_file_range"), in, in_at, out, out_at, len, flags);
}

PUBLIC ssize_t splice(int in, off_t *in_at, int out, off_t *out_at, size_t len, unsigned flags)
{
	return between(CALLER, NEXT("splice"), in, in_at, out, out_at, len, flags);
}

static ssize_t send_file(const void *caller, void *call, int out, int in, off_t *at, size_t len)
{
	ssize_t (*next)(int, int, off_t *, size_t) = (ssize_t (*)(int, int, off_t *, size_t))call;
	struct span to;
	ssize_t n;

	if (next_is_library(caller) || !region_count)
		return next(out, in, at, len);
	len = len < MOST ? len : MOST;
	span_begin(in, at, len, false);
	to = span_begin(out, NULL, len, true);
	n = next(out, in, at, len);
	span_changed(&to, n);
	return n;
}

PUBLIC ssize_t sendfile(int out, int in, off_t *at, size_t len)
{
	return send_file(CALLER, NEXT("sendfile"), out, in, at, len);
}

PUBLIC ssize_t sendfile64(int out, int in, off_t *at, size_t len)
{
	return send_file(CALLER, NEXT("sendfile"), out, in, at, len);
}

/* Those that move what follows make every page another one: the kernel shows that. */
static int allocate(const void *caller, int fd, int mode, off_t off, off_t len)
{
	int (*next)(int, int, off_t, off_t) = NEXT("fallocate");
	struct span s;
	int result;

	if (next_is_library(caller) || !region_count || !(mode & ~FALLOC_FL_KEEP_SIZE) || off < 0 || len <= 0)
		return next(fd, mode, off, len);
	if (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE) && shorten(fd, off) < 0)
		return -1;
	s = span_begin(fd, &off, (size_t)len, true);
	result = next(fd, mode, off, len);
	span_changed(&s, result == 0 ? len : 0);
	return result;
}

PUBLIC int fallocate(int fd, int mode, off_t off, off_t len)
{
	return allocate(CALLER, fd, mode, off, len);
}

PUBLIC int fallocate64(int fd, int mode, off_t off, off_t len)
{
	return allocate(CALLER, fd, mode, off, len);
}

/* ---- Holes: the file system knows of stores only when they are written. ---- */

static off_t seek(const void *caller, int fd, off_t off, int whence)
{
	off_t (*next)(int, off_t, int) = NEXT("lseek");
	struct stat st;

	if ((whence == SEEK_DATA || whence == SEEK_HOLE) && !next_is_library(caller) && has_regions(fd, &st))
		write_stored(&st, 0, SIZE_MAX >> 1);
	return next(fd, off, whence);
}

PUBLIC off_t lseek(int fd, off_t off, int whence)
{
	return seek(CALLER, fd, off, whence);
}

PUBLIC off64_t lseek64(int fd, off64_t off, int whence)
{
	return seek(CALLER, fd, off, whence);
}

/* ---- Calls that make a file durable: with what was stored by mappings, as the kernel does. ---- */

static int sync_file(const void *caller, int fd, int (*next)(int))
{
	struct stat st;
	int result = 0;

	if (next_is_library(caller) || !has_regions(fd, &st))
		return next(fd);
	region_lock_look();
	for (struct region *r = region_of_file(NULL, &st); r && result == 0; r = region_of_file(r, &st)) {
		if (r->writable)
			result = umsync_range(r->addr, r->ours, 0);
	}
	region_unlock();
	return result < 0 ? result : next(fd);
}

PUBLIC int fsync(int fd)
{
	return sync_file(CALLER, fd, (int (*)(int))NEXT("fsync"));
}

PUBLIC int fdatasync(int fd)
{
	return sync_file(CALLER, fd, (int (*)(int))NEXT("fdatasync"));
}

/* ---- Ends that no destructor sees. ---- */

PUBLIC void _exit(int status)
{
	((void (*)(int))NEXT("_exit"))(region_exit_status(status));
	__builtin_unreachable();
}

PUBLIC void _Exit(int status)
{
	((void (*)(int))NEXT("_exit"))(region_exit_status(status));
	__builtin_unreachable();
}

PUBLIC void abort(void)
{
	region_write_all();
	((void (*)(void))NEXT("abort"))();
	__builtin_unreachable();
}

PUBLIC void quick_exit(int status)
{
	((void (*)(int))NEXT("quick_exit"))(region_exit_status(status));
	__builtin_unreachable();
}

PUBLIC int fexecve(int fd, char *const argv[], char *const env[])
{
	region_before_exec();
	return ((int (*)(int, char *const *, char *const *))NEXT("fexecve"))(fd, argv, env);
}

PUBLIC int execvpe(const char *file, char *const argv[], char *const env[])
{
	region_before_exec();
	return ((int (*)(const char *, char *const *, char *const *))NEXT("execvpe"))(file, argv, env);
}

PUBLIC int execve(const char *path, char *const argv[], char *const env[])
{
	region_before_exec();
	return ((int (*)(const char *, char *const *, char *const *))NEXT("execve"))(path, argv, env);
}

PUBLIC int execv(const char *path, char *const argv[])
{
	region_before_exec();
	return ((int (*)(const char *, char *const *))NEXT("execv"))(path, argv);
}

PUBLIC int execvp(const char *file, char *const argv[])
{
	region_before_exec();
	return ((int (*)(const char *, char *const *))NEXT("execvp"))(file, argv);
}

/* Those that take the arguments as a list. */
static int exec_list(const char *file, const char *first, va_list *rest, bool search)
{
	size_t count = 1, room = 64;
	char **argv = malloc(room * sizeof(*argv));
	int result;

	while (argv && first) {
		argv[count - 1] = (char *)(uintptr_t)first;
		first = va_arg(*rest, const char *);
		if (++count == room)
			argv = reallocarray(argv, room *= 2, sizeof(*argv));
	}
	if (!argv) {
		errno = ENOMEM;
		return -1;
	}
	argv[count - 1] = NULL;
	result = search ? execvp(file, argv) : execv(file, argv);
	free(argv);
	return result;
}

PUBLIC int execl(const char *path, const char *first, ...)
{
	va_list rest;
	int result;

	va_start(rest, first);
	result = exec_list(path, first, &rest, false);
	va_end(rest);
	return result;
}

PUBLIC int execlp(const char *file, const char *first, ...)
{
	va_list rest;
	int result;

	va_start(rest, first);
	result = exec_list(file, first, &rest, true);
	va_end(rest);
	return result;
}
