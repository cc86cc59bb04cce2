/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mapping that grows with an HDF5 file. The file may be longer than HDF5 needs, because HDF5
 * finds the end in the superblock. Therefore the store becomes longer before the commit that needs
 * the length, and shorter after the mapping has ended, when no log has blocks behind the new end.
 */
#include "hdf5/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/minmax.h"

/* Addresses that a mapping reserves at a time, if there are as many. Headers of segments take 16
 * bytes of address space for each 64 KiB, and memory only if they are used. */
#define RESERVE_STEP ((uint64_t)64 << 30)
#define RESERVE_STEP_MIN ((uint64_t)1 << 20)

/* Length of a write that does not use the mapping. */
#define DIRECT_BYTES ((size_t)256 << 10)

static struct hdf5_store *open_stores;
static bool is_exiting;         /* the process exits */

/* ---- Addresses ---- */

/* The size of a mapping that has to contain byte `end` - 1. It at least doubles, because a mapping
 * can grow only a limited number of times. */
static uint64_t size_for(const struct hdf5_store *s, uint64_t end)
{
	uint64_t least = max_u64(max_u64(end, 1), s->reserved ? 2 * s->reserved : 0);

	return s->grows ? (least + s->step - 1) / s->step * s->step : max_u64(end, 1);
}

/* Makes smaller steps if addresses are scarce (RLIMIT_AS). Returns whether to try again. */
static bool can_step_less(struct hdf5_store *s)
{
	if (errno != ENOMEM || !s->grows || s->step <= RESERVE_STEP_MIN)
		return false;
	s->step /= 2;
	return true;
}

/* Maps the bytes before `end`, or makes the mapping that long. geom, attr: of a new mapping. */
static int map_bytes(struct hdf5_store *s, uint64_t end, const struct ummap_geom *geom,
		     const struct ummap_attr *attr)
{
	int prot = s->writable ? PROT_READ | PROT_WRITE : PROT_READ, err;
	void *base = s->base;
	uint64_t size;

	do {
		size = size_for(s, end);
		err = geom ? ummap_open_handle(&s->driver, s->handle, geom, size, 0, prot, attr,
					       &base)
			   : umremap(s->base, size, -1, -1, 0, &base);
	} while (err && can_step_less(s));
	if (err)
		return -1;
	s->base = base;
	s->reserved = size;
	return 0;
}

static int reserve(struct hdf5_store *s, uint64_t end)
{
	return end <= s->reserved ? 0 : map_bytes(s, end, NULL, NULL);
}

/* ---- Opening ---- */

static int refuse(const struct hdf5_store *s)
{
	return umseterror(EBADF, "cannot use '%s': a parent of this process has opened it, and "
			  "its children cannot use it", s->uri);
}

static void begin_exit(void)
{
	is_exiting = true;
}

/* HDF5 has registered its handler before it opens a file, so its handler runs later. */
static void notice_exit(void)
{
	static bool is_registered;

	if (!is_registered)
		is_registered = atexit(begin_exit) == 0;
}

/* The result of a write or a commit of a forked child. */
static int drop_or_refuse(const struct hdf5_store *s)
{
	return is_exiting ? 0 : refuse(s);
}

/* Whether a URI names an open store: its file by any path, or the same text without a file. */
static bool is_named(const struct hdf5_store *s, const char *uri, struct hdf5_file_id file)
{
	return hdf5_is_same_file(s->file, file) &&
	       (file.inode ? hdf5_is_same_way(s->uri, uri) : strcmp(s->uri, uri) == 0);
}

static struct hdf5_store *find_store(const char *uri, bool write)
{
	struct hdf5_file_id file = hdf5_find_file(uri);
	struct hdf5_store *s = open_stores;

	while (s && (!is_named(s, uri, file) || s->writable < write || hdf5_store_is_inherited(s)))
		s = s->next;
	return s;
}

static int open_handle(const char *uri, unsigned how, struct ummap_driver *driver, void **h,
		       struct ummap_geom *geom)
{
	int oflags = how & HDF5_WRITE ? UMMAP_O_WRITE : 0;

	driver->struct_size = sizeof(*driver);
	if (how & HDF5_EXCLUSIVE) {
		if (ummap_driver_open(uri, 0, driver, h, geom) == 0) {
			driver->close(*h);
			return umseterror(EEXIST, "cannot create '%s': it exists", uri);
		}
		if (errno != ENOENT)
			return -1;
	}
	if (how & HDF5_CREATE)
		oflags |= UMMAP_O_CREATE;
	return ummap_driver_open(uri, oflags, driver, h, geom);
}

static int open_store(struct hdf5_store *s, unsigned how, const struct ummap_attr *attr)
{
	uint64_t oldest, newest;
	struct ummap_geom geom;
	int error;

	if (open_handle(s->uri, how, &s->driver, &s->handle, &geom) == -1)
		return -1;
	s->writable = how & HDF5_WRITE;
	s->step = RESERVE_STEP;
	s->grows = s->writable && geom.caps & UMMAP_CAP_GROW;
	s->stored = geom.size;
	if (map_bytes(s, geom.size, &geom, attr) == -1) {
		error = errno;
		s->driver.close(s->handle);
		errno = error;
		return -1;
	}
	/* With commits, a sync flushes the store even if no segment has changed. */
	s->is_direct = s->grows && geom.caps & UMMAP_CAP_PARALLEL && s->driver.writev &&
		       umcommits(s->base, &oldest, &newest) == 0;
	/* HDF5 reads small pieces, and caches them itself. The mapping would load whole segments,
	 * which only helps if each request takes long. */
	s->reads_driver = !s->writable && s->driver.read && geom.caps & UMMAP_CAP_PARALLEL &&
			  !(geom.caps & UMMAP_CAP_REMOTE);
	s->eof = how & HDF5_TRUNCATE ? 0 : s->stored;
	return 0;
}

struct hdf5_store *hdf5_store_open(const char *uri, unsigned how, const struct ummap_attr *attr)
{
	struct hdf5_store *s = find_store(uri, how & HDF5_WRITE);

	if (s && !(how & (HDF5_TRUNCATE | HDF5_EXCLUSIVE))) {
		s->users++;
		return s;
	}
	s = calloc(1, sizeof(*s));
	if (s)
		s->uri = strdup(uri);
	if (!s || !s->uri) {
		free(s);
		umseterror(ENOMEM, "cannot open '%s': no memory", uri);
		return NULL;
	}
	if (open_store(s, how, attr) == -1) {
		free(s->uri);
		free(s);
		return NULL;
	}
	notice_exit();
	s->users = 1;
	s->file = hdf5_find_file(uri);
	s->owner = getpid();
	s->next = open_stores;
	open_stores = s;
	return s;
}

/* ---- Writes that do not use the mapping ---- */

/* Writes bytes that no commit has, without memory for their segments. The segments leave memory
 * before the write, so that no older contents are written later, and after it, because readahead
 * may have loaded them meanwhile. Returns false after a failure: the bytes must go to the mapping,
 * which keeps them until the storage works. */
static bool write_store(struct hdf5_store *s, const struct iovec *iov, int n, uint64_t off,
			uint64_t end)
{
	char *at = s->base + off;
	size_t len = (size_t)(end - off);

	return umadvise(at, len, UMMAP_ADV_DONTNEED) == 0 &&
	       s->driver.writev(s->handle, iov, n, off) == 0 &&
	       umadvise(at, len, UMMAP_ADV_DONTNEED) == 0;
}

/* Writes the bytes of `rest`. */
static int write_rest(struct hdf5_store *s)
{
	struct iovec iov = { s->rest, s->rest_bytes };
	uint64_t end = s->rest_at + s->rest_bytes;

	s->rest_bytes = 0;
	if (iov.iov_len == 0 || write_store(s, &iov, 1, s->rest_at, end) ||
	    umcopy(s->base + s->rest_at, s->rest, iov.iov_len) == 0)
		return 0;
	s->failed = errno;
	return -1;
}

/* The store receives whole blocks, as far as a write continues the one before it: a filter has to
 * log parts of blocks. */
static bool write_directly(struct hdf5_store *s, const void *buf, size_t len, uint64_t off)
{
	bool continues = s->rest_bytes > 0 && off == s->rest_at + s->rest_bytes;
	size_t before = continues ? s->rest_bytes : 0;
	size_t rest = (size_t)((off + len) % HDF5_BLOCK_BYTES);
	struct iovec iov[] = { { s->rest, before }, { (void *)(uintptr_t)buf, len - rest } };

	if (!s->is_direct || len < DIRECT_BYTES || off < s->stored ||
	    (!continues && write_rest(s) == -1) ||
	    !write_store(s, iov + !before, 1 + !!before, off - before, off + len))
		return false;
	s->rest_at = off + len - rest;
	s->rest_bytes = rest;
	memcpy(s->rest, (const char *)buf + len - rest, rest);
	return true;
}

/* ---- Transfers ---- */

/* Extends the file to `end`. The store may have bytes there of a longer file, which was truncated:
 * HDF5 would find the superblock of that file if the new one begins with a user block. */
static int extend_file(struct hdf5_store *s, uint64_t end)
{
	static const char zeros[64 << 10];
	uint64_t garbage_end = min_u64(end, max_u64(s->stored, s->top));

	while (s->eof < garbage_end) {
		size_t n = (size_t)min_u64(garbage_end - s->eof, sizeof(zeros));

		if (umcopy(s->base + s->eof, zeros, n) == -1)
			return -1;
		s->eof += n;
	}
	s->eof = max_u64(s->eof, end);
	return 0;
}

int hdf5_store_read(struct hdf5_store *s, void *buf, size_t len, uint64_t off)
{
	size_t have = off < s->eof ? (size_t)min_u64(len, s->eof - off) : 0;

	if (hdf5_store_is_inherited(s))
		return refuse(s);
	memset((char *)buf + have, 0, len - have);
	if (have == 0)
		return 0;
	if (s->writable && reserve(s, off + have) == -1)
		return -1;
	if (off + have > s->rest_at && write_rest(s) == -1)
		return -1;
	if (s->reads_driver && s->driver.read(s->handle, buf, have, off) == 0)
		return 0;
	return umcopy(buf, s->base + off, have);
}

int hdf5_store_write(struct hdf5_store *s, const void *buf, size_t len, uint64_t off)
{
	if (len == 0)
		return 0;
	if (hdf5_store_is_inherited(s))
		return drop_or_refuse(s);
	if (!s->grows && off + len > s->stored)
		return umseterror(ENOSPC, "cannot write to byte %ju of '%s': the store has %ju "
				  "bytes and cannot grow", (uintmax_t)(off + len), s->uri,
				  (uintmax_t)s->stored);
	if (reserve(s, off + len) == -1)
		return -1;
	if (extend_file(s, off) == -1 ||
	    (!write_directly(s, buf, len, off) &&
	     (write_rest(s) == -1 || umcopy(s->base + off, buf, len) == -1))) {
		s->failed = errno;
		return -1;
	}
	s->top = max_u64(s->top, off + len);
	s->eof = max_u64(s->eof, off + len);
	return 0;
}

/* Without the call of umlengthen, the store would end at the last byte that is not zero. */
static int prepare_commit(struct hdf5_store *s, uint64_t size)
{
	if (s->failed)
		return umseterror(s->failed, "cannot commit changes of '%s': an earlier write has "
				  "failed: %s. The file stays as it was at its last flush. Try to "
				  "close it and to open it again", s->uri, strerror(s->failed));
	if (write_rest(s) == -1 || extend_file(s, size) == -1)
		return -1;
	if (size > s->stored) {
		if (umlengthen(s->base, size) == -1)
			return -1;
		s->stored = size;
	}
	s->eof = size;
	return 0;
}

int hdf5_store_commit(struct hdf5_store *s, uint64_t size)
{
	if (!s->writable)
		return 0;
	if (hdf5_store_is_inherited(s))
		return drop_or_refuse(s);
	return prepare_commit(s, size) == -1 ? -1 : umsync(s->base, 0);
}

/* ---- Closing ---- */

/* Cuts off the bytes behind the end of the file. Some filters cannot make a store shorter, so the
 * result does not matter. The URI may name another file by now. */
static void shorten(const struct hdf5_store *s, uint64_t size)
{
	struct ummap_driver driver = { .struct_size = sizeof(driver) };
	struct ummap_geom geom;
	void *h;

	if (!hdf5_is_same_file(s->file, hdf5_find_file(s->uri)) ||
	    ummap_driver_open(s->uri, UMMAP_O_WRITE, &driver, &h, &geom) == -1)
		return;
	if (driver.resize && geom.size > size)
		driver.resize(h, size);
	driver.close(h);
}

/* Ends the mapping after a failed commit, whose changes are lost. */
static int drop_changes(struct hdf5_store *s)
{
	char message[UMMAP_WHY_BYTES];
	int error = errno;

	/* The mapping has ended, and the log has all changes. */
	if (error == EUCLEAN)
		return -1;
	snprintf(message, sizeof(message), "%s", umerrormsg());
	umunmap(s->base, 0);
	return umseterror(error, "%s", message);
}

static int end_mapping(struct hdf5_store *s, bool commits, uint64_t size)
{
	if (!commits || !s->writable)
		return umunmap(s->base, 0);
	if (prepare_commit(s, size) == 0 && umunmap(s->base, 1) == 0)
		return 0;
	return drop_changes(s);
}

int hdf5_store_close(struct hdf5_store *s, bool commits, uint64_t size)
{
	bool is_longer = commits && s->grows && max_u64(s->stored, s->top) > size;
	struct hdf5_store **at = &open_stores;
	int err;

	if (--s->users > 0)
		return 0;
	err = hdf5_store_is_inherited(s) ? 0 : end_mapping(s, commits, size);
	if (!err && is_longer && !hdf5_store_is_inherited(s))
		shorten(s, size);
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	free(s->uri);
	free(s);
	return err;
}
