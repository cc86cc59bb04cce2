/* SPDX-License-Identifier: BSD-3-Clause */
/* Files beside a store. The functions take no lock, and allocate only in opening. */
#include "side.h"

#include "common/memory_calls.h"
#include "common/minmax.h"
#include "common/try_lock.h"
#include "file.h"
#include "keys.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

extern const struct ummap_driver ummap_driver_pmem;

static const struct ummap_driver file_calls = { .close = file_close, FILE_CALLS };
const struct ummap_driver *side_driver = &file_calls;

static int open_folder(const char *path, int how)
{
	char copy[PATH_MAX];

	snprintf(copy, sizeof(copy), "%s", path);
	return (int)answer(open(dirname(copy), how | O_DIRECTORY | O_CLOEXEC));
}

/* A flush of its folder makes a name durable. */
static int flush_folder(int fd)
{
	int err = fd < 0 ? fd : (int)answer(fsync(fd));

	if (fd >= 0)
		close(fd);
	/* Some file systems have nothing to flush there. */
	return err == -EINVAL ? 0 : err;
}

/* Makes the file with these permissions, which open of a driver cannot set. */
static int make_file(const struct side *s, mode_t mode)
{
	int fd = (int)answer(open(s->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));

	if (fd < 0)
		return fd == -EEXIST ? 0 : fd;
	/* All users that may write the store need the file, whatever umask(2) says. */
	fchmod(fd, mode);
	close(fd);
	return flush_folder(open_folder(s->path, O_RDONLY));
}

static int open_handle(struct side *s, int oflags, struct ummap_geom *own)
{
	const struct ummap_key direct = { "direct", oflags & SIDE_READS_DIRECT ? "auto" : "never" };
	const struct ummap_uri uri = { .path = s->path, .keys = &direct, .nkeys = 1 };
	int err;

	oflags &= ~SIDE_READS_DIRECT;
	if (side_driver != &file_calls)
		return side_driver->open(&uri, oflags, &s->h, own);
	err = file_open(&uri, oflags, S_IFBLK, NULL, &s->file, own);
	s->h = s->file;
	if (err)
		return err;
	s->file->caches_writes = true;
	/* Only the library reads the file, and it reads through the page cache only bytes that are
	 * there. So the kernel never reads ahead, and all cached bytes can be copied. */
	s->file->readahead = 0;
	return 0;
}

static int open_file(struct side *s, int oflags, mode_t mode, struct ummap_geom *geom)
{
	struct ummap_geom own = { .size = 0 };
	int err = open_handle(s, oflags & ~UMMAP_O_CREATE, &own);

	s->made = err == -ENOENT && oflags & UMMAP_O_CREATE;
	if (s->made)
		err = side_driver == &file_calls ? make_file(s, mode) : 0;
	if (s->made && !err)
		err = open_handle(s, oflags, &own);
	if (err)
		keys_refuse(geom, -err, "cannot open '%.140s': %s", s->path,
			    *own.why ? own.why : strerror(-err));
	memcpy(s->id, own.id, sizeof(s->id));
	return err;
}

/* An empty store would look like a new file of the filter, and need not be locked. */
static int check_other(const struct side *s, struct ummap_geom *geom)
{
	if (!s->id[0] || s->id[0] != geom->id[0] || s->id[1] != geom->id[1])
		return 0;
	return keys_refuse(geom, EINVAL, "cannot use '%.140s': it is the store itself. Try another "
			   "file", s->path);
}

static int find_folder(struct side *s, struct ummap_geom *geom)
{
	if (!s->file)
		return 0;
	if (s->folder >= 0)
		close(s->folder);
	s->device = s->file->block;
	s->folder = open_folder(s->path, O_PATH);
	return s->folder < 0 ? keys_refuse(geom, -s->folder, "cannot open the folder of '%.140s': "
					   "%s", s->path, strerror(-s->folder)) : 0;
}

static const char *name_of(const struct side *s)
{
	const char *slash = strrchr(s->path, '/');

	return slash ? slash + 1 : s->path;
}

/* The previous owner of the lock may have removed the file. Other processes cannot find it then. */
static bool has_name(const struct side *s)
{
	return !s->file || file_has_name(s->file->fd, s->folder, name_of(s));
}

/* A file system without locks is no error. */
static int lock_file(struct side *s, int how, struct ummap_geom *geom)
{
	char who[160] = "";

	if (side_driver->lock && side_driver->lock(s->h, 0, INT64_MAX, how, who) == -EBUSY)
		return keys_refuse(geom, EBUSY, "cannot lock '%.140s': it is in use by %.140s",
				   s->path, *who ? who : "another process");
	return has_name(s) ? 0 : -ESTALE;
}

static void release(struct side *s)
{
	if (s->folder >= 0)
		close(s->folder);
	free(s->path);
	memset(s, 0, sizeof(*s));
}

/* Replaces a path through a descriptor of this process, which means nothing in a message. */
static void name_folder(struct side *s)
{
	char folder[PATH_MAX], real[PATH_MAX], *named;
	const char *slash = strrchr(s->path, '/');

	if (strncmp(s->path, "/proc/self/fd/", strlen("/proc/self/fd/")) != 0 ||
	    (size_t)(slash - s->path) >= sizeof(folder))
		return;
	memcpy(folder, s->path, (size_t)(slash - s->path));
	folder[slash - s->path] = '\0';
	if (!realpath(folder, real) || asprintf(&named, "%s%s", real, slash) < 0)
		return;
	free(s->path);
	s->path = named;
}

int side_open(struct side *s, const char *path, int oflags, mode_t mode, int how,
	      struct ummap_geom *geom)
{
	int err;

	memset(s, 0, sizeof(*s));
	s->folder = -1;
	s->path = strdup(path);
	if (!s->path)
		return -ENOMEM;
	do {
		err = open_file(s, oflags, mode, geom);
		if (err)
			break;
		err = check_other(s, geom);
		if (!err)
			err = find_folder(s, geom);
		if (!err)
			err = lock_file(s, how, geom);
		if (err)
			side_driver->close(s->h);
	} while (err == -ESTALE);
	if (err)
		release(s);
	else
		name_folder(s);
	return err;
}

static void unmap(struct side *s)
{
	if (s->memory)
		raw_munmap(s->memory, s->mapped);
	if (s->pmem)
		ummap_driver_pmem.close(s->pmem);
	s->memory = NULL;
	s->pmem = NULL;
}

bool side_is(const struct side *s, const char *path)
{
	struct stat st;
	bool block;

	if (!s->h || stat(path, &st) < 0)
		return false;
	block = S_ISBLK(st.st_mode);
	return s->id[0] == (block ? (uint64_t)st.st_rdev + 1 : (uint64_t)st.st_ino) &&
	       s->id[1] == (block ? UINT64_MAX : (uint64_t)st.st_dev);
}

void side_hand_over(struct side *s, struct ummap_handover *to)
{
	if (s->h && side_driver->hand_over)
		side_driver->hand_over(s->h, to);
}

int side_close(struct side *s)
{
	int err = s->h ? side_driver->close(s->h) : 0;

	unmap(s);
	if (s->path)
		release(s);
	return err;
}

/* Whether it is on persistent memory, which the driver finds out, and may have been told. */
static bool put_in_place(struct side *s)
{
	const struct ummap_uri uri = { .path = "" };
	struct ummap_geom own = { .size = 0 };

	if (ummap_driver_pmem.open_fd(&uri, s->file->fd, UMMAP_O_WRITE, &s->pmem, &own) < 0) {
		s->pmem = NULL;
		return false;
	}
	s->memory = mmap(NULL, s->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			 -1, 0);
	if (s->memory == MAP_FAILED)
		s->memory = NULL;
	return s->memory && ummap_driver_pmem.map(s->pmem, s->memory, s->mapped, 0,
						  PROT_READ | PROT_WRITE) == 0;
}

int side_map(struct side *s)
{
	uint64_t size;
	int err;

	if (!s->file || s->device || !ummap_driver_pmem.map)
		return 0;
	/* side_flush does nothing for a mapped file, so earlier writes must be durable. */
	err = side_flush(s);
	if (!err)
		err = side_size(s, &size);
	if (err)
		return err;
	s->mapped = size & ~(uint64_t)(sysconf(_SC_PAGESIZE) - 1);
	if (!s->mapped || !put_in_place(s))
		unmap(s);
	return 0;
}

int side_must_be_file(const struct side *s, struct ummap_geom *geom)
{
	return s->device ? keys_refuse(geom, EINVAL, "cannot use '%.140s': it is a block device. "
				       "Try a regular file", s->path) : 0;
}

/* Whether these bytes stand in memory; -EIO: they did, and the file was cut since. */
static int in_memory(struct side *s, size_t len, uint64_t off)
{
	uint64_t size;
	int err;

	if (!s->memory || off + len > s->mapped)
		return 0;
	err = side_size(s, &size);
	return err ? err : off + len > size ? -EIO : 1;
}

int side_read(struct side *s, void *buf, size_t len, uint64_t off)
{
	int there = in_memory(s, len, off);

	if (there <= 0)
		return there ? there : side_driver->read(s->h, buf, len, off);
	memcpy(buf, s->memory + off, len);
	return 0;
}

int side_readv(struct side *s, const struct iovec *iov, int n, uint64_t off)
{
	int err = 0;

	if (!s->memory && side_driver->readv)
		return side_driver->readv(s->h, iov, n, off);
	for (int i = 0; i < n && !err; off += iov[i++].iov_len)
		err = side_read(s, iov[i].iov_base, iov[i].iov_len, off);
	return err;
}

int side_write(struct side *s, const void *buf, size_t len, uint64_t off)
{
	int there = in_memory(s, len, off);

	if (there <= 0)
		return there ? there : side_driver->write(s->h, buf, len, off);
	memcpy(s->memory + off, buf, len);
	return ummap_driver_pmem.persist(s->pmem, s->memory + off, len);
}

int side_writev(struct side *s, const struct iovec *iov, int n, uint64_t off)
{
	int err = 0;

	if (!s->memory)
		return side_driver->writev(s->h, iov, n, off);
	for (int i = 0; i < n && !err; off += iov[i++].iov_len)
		err = side_write(s, iov[i].iov_base, iov[i].iov_len, off);
	return err;
}

/* Bytes behind the last whole page are not in the mapping. */
int side_flush(struct side *s)
{
	uint64_t size;

	if (s->memory && side_size(s, &size) == 0 && size <= s->mapped)
		return 0;
	return side_driver->flush(s->h, 0, UINT64_MAX);
}

void side_start(struct side *s, uint64_t off, uint64_t len)
{
	if (s->file && !s->memory)
		syscall(SYS_sync_file_range, s->file->fd, off, len, SYNC_FILE_RANGE_WRITE);
}

int side_resize(struct side *s, uint64_t size)
{
	return side_driver->resize(s->h, size);
}

int side_size(struct side *s, uint64_t *size)
{
	return side_driver->size(s->h, size);
}

uint64_t side_collect(struct side *s, struct blockmap *places, uint64_t first, uint64_t most,
		      size_t block, char *buf, int *err)
{
	uint64_t n = 0, place;

	while (n < most && !*err) {
		uint64_t run = blockmap_run(places, first + n, most - n, block, &place);

		if (!place)
			break;
		*err = side_read(s, buf + n * block, run * block, place);
		n += run;
	}
	return n;
}

/* Whether the file system lacks the space. fallocate(2) would use up all free space before it
 * fails, and other programs would find none meanwhile. */
static bool is_too_much(int fd, uint64_t size)
{
	struct statvfs all;
	struct stat st;
	uint64_t has;

	if (fstatvfs(fd, &all) < 0 || fstat(fd, &st) < 0 || !all.f_blocks)
		return false;
	has = (uint64_t)st.st_blocks * 512;
	return size > has && (size - has) / all.f_frsize > all.f_bfree;
}

int side_reserve(struct side *s, uint64_t size)
{
	int err = s->file && is_too_much(s->file->fd, size) ? -ENOSPC : side_resize(s, size);

	if (!err && s->file)
		err = (int)answer(fallocate(s->file->fd, 0, 0, (off_t)size));
	return err == -EOPNOTSUPP ? 0 : err;
}

/* ---- The header ---- */

static int read_for_header(void *s, void *buf, size_t len, uint64_t off)
{
	return side_read(s, buf, len, off);
}

static int write_for_header(void *s, const void *buf, size_t len, uint64_t off)
{
	return side_write(s, buf, len, off);
}

static int flush_for_header(void *s)
{
	return side_flush(s);
}

static int size_for_header(void *s, uint64_t *size)
{
	return side_size(s, size);
}

const struct header_calls side_header_calls = {
	.read = read_for_header,
	.write = write_for_header,
	.flush = flush_for_header,
	.size = size_for_header,
};

/* ---- Its end ---- */

static int write_zeros(struct side *s, uint64_t from, uint64_t to)
{
	static const char zeros[HEADER_BYTES];
	int err = 0;

	for (uint64_t at = from; at < to && !err; at += sizeof(zeros))
		err = side_write(s, zeros, min_size(to - at, sizeof(zeros)), at);
	return err ? err : side_flush(s);
}

/* The header is overwritten last, so that an interrupted call can be repeated. */
static int wipe(struct side *s)
{
	struct header any = side_header(0);
	uint64_t length;
	int err = header_read(&any, s, &length, 0);

	if (err == 1 || err == -ENODATA)
		return -EPERM;
	if (!err)
		err = side_size(s, &length);
	if (!err)
		err = write_zeros(s, HEADER_BYTES, min_u64(length, SIDE_BLANK));
	return err ? err : write_zeros(s, 0, HEADER_BYTES);
}

int side_remove(struct side *s)
{
	int err, folder;

	/* A test's driver has no folders. */
	if (!s->file)
		return side_resize(s, 0);
	if (s->device)
		return wipe(s);
	if (!has_name(s))
		return -ENOENT;
	err = (int)answer(unlinkat(s->folder, name_of(s), 0));
	if (err)
		return err;
	/* The file must not return after a power cut, because the store is written without it. */
	folder = (int)answer(openat(s->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	return flush_folder(folder);
}
