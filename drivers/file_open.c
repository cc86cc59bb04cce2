/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens and closes struct file, and allocates for it. The transfers are in file.c. */
#include "file.h"

#include "common/fork.h"
#include "common/futex.h"
#include "common/minmax.h"
#include "keys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FIRST_OWN_FD 700          /* lowest number for the library's descriptors */
#define MIN_OPTIMAL_BYTES (256u << 10)
#define DEFAULT_DIO_ALIGN 4096    /* alignment that all devices in use accept */
#define DEFAULT_READAHEAD_KIB 128 /* the kernel's default */
/* A check of more bytes of the page cache takes longer than a read. */
#define MAX_READAHEAD_KIB (16u << 10)

/* Linux frees the descriptor even if close fails. */
static int close_fd(int fd)
{
	return fd < 0 ? 0 : (int)answer(syscall(SYS_close, fd));
}

int file_away(int fd)
{
	int away = -1;

	if (fd >= 0 && !file_is_locked_here(fd))
		away = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_OWN_FD);
	/* fd stays if the program's own locks would end with it, or if the limit of descriptors is
	 * too low. */
	if (away < 0)
		return fd;
	close_fd(fd);
	return away;
}

/* ---- Descriptors that cannot be closed yet ---- */

static struct {
	_Atomic uint32_t lock; /* lock of the fields below; a leaf */
	int *fd;               /* descriptors */
	size_t count, room;    /* number of descriptors, and of elements of `fd` */
} kept;

__attribute__((constructor))
static void register_fork_handler(void)
{
	fork_register(FORK_DESCRIPTORS, &kept.lock, NULL, NULL);
}

/* If memory is short, the descriptor stays open until the process ends. */
static void keep_fd(int fd)
{
	futex_lock(&kept.lock);
	if (kept.count == kept.room) {
		int *more = realloc(kept.fd, (2 * kept.room + 8) * sizeof(int));

		kept.fd = more ? more : kept.fd;
		kept.room = more ? 2 * kept.room + 8 : kept.room;
	}
	if (kept.count < kept.room)
		kept.fd[kept.count++] = fd;
	futex_unlock(&kept.lock);
}

static void close_kept_fds(void)
{
	size_t left = 0;

	futex_lock(&kept.lock);
	for (size_t i = 0; i < kept.count; i++) {
		if (file_is_locked_here(kept.fd[i]))
			kept.fd[left++] = kept.fd[i];
		else
			close_fd(kept.fd[i]);
	}
	kept.count = left;
	futex_unlock(&kept.lock);
}

int file_close_fd(int fd)
{
	char unused[160];

	if (fd < 0 || !file_is_locked_here(fd))
		return close_fd(fd);
	/* The locks of a handle end with it, although its description stays open. */
	file_lock_fd(fd, 0, INT64_MAX, UMMAP_LOCK_NONE, unused);
	keep_fd(fd);
	return 0;
}

/* The program may have locked a description that it has given, so the locks stay. */
static int close_given_fd(int fd)
{
	if (!file_is_locked_here(fd))
		return close_fd(fd);
	keep_fd(fd);
	return 0;
}

/*
 * The descriptor whose description has the locks. Requests of io_uring may outlive a process that
 * was killed. They refer to the description for direct transfers, whose locks remain until the
 * requests end, so that no other process writes the same bytes before.
 */
static int lock_fd(const struct file *f)
{
	return f->direct_fd >= 0 ? f->direct_fd : f->fd;
}

int file_close(void *h)
{
	struct file *f = h;
	bool kept_by_group = f->locks && lock_group_leave(f->locks, f, lock_fd(f));
	bool kept_direct = kept_by_group && f->direct_fd >= 0;
	int direct_err = kept_direct ? 0 : file_close_fd(f->direct_fd), err = 0;

	if (!kept_by_group || kept_direct)
		err = f->given ? close_given_fd(f->fd) : file_close_fd(f->fd);
	close_kept_fds();
	free(f);
	return err ? err : direct_err;
}

/* The values of the keys. */
struct keys {
	enum when direct;
	enum when cached;      /* whether to use page-cache mappings */
	uint64_t stripe;       /* bytes of a stripe; 0: what the file system reports */
	int fd;                /* descriptor of the description to use; negative: open the path */
};

/* A program that only loads needs no copies of the data. If a program stores to most segments, each
 * of them would be mapped twice. */
static bool should_map_pagecache(const struct keys *keys, int oflags)
{
	return keys->cached == ALWAYS || (keys->cached == AUTO && !(oflags & UMMAP_O_WRITE));
}

static bool parse_fd(const char *text, int *fd)
{
	uint64_t n;

	if (!keys_number(text, 0, INT_MAX, &n))
		return false;
	*fd = (int)n;
	return true;
}

static bool parse_when(const char *text, const char *const *words, enum when *when)
{
	int word = keys_word(text, words);

	*when = (enum when)word;
	return word >= 0;
}

static const struct key_type types[] = { FILE_KEYS(KEY_TYPE) KEY_TYPES_END };

static int parse_keys(const struct ummap_uri *uri, int oflags, struct keys *keys,
		      struct ummap_geom *geom)
{
	/* In the order of enum when. */
	static const char *const direct[] = { "auto", "always", "never", NULL };
	static const char *const cached[] = { "auto", "map", "copy", NULL };

	*keys = (struct keys){ .direct = AUTO, .cached = NEVER, .fd = -1 };
	for (unsigned i = 0; i < uri->nkeys; i++) {
		const struct ummap_key *key = &uri->keys[i];
		bool ok = true;

		if (strcmp(key->name, "direct") == 0)
			ok = parse_when(key->value, direct, &keys->direct);
		else if (strcmp(key->name, "cached") == 0)
			ok = parse_when(key->value, cached, &keys->cached);
		else if (strcmp(key->name, "stripe") == 0)
			ok = keys_size(key->value, &keys->stripe) && keys->stripe <= UINT32_MAX;
		else if (strcmp(key->name, "fd") == 0)
			ok = parse_fd(key->value, &keys->fd);
		if (!ok)
			return keys_refuse_value(geom, "", key, types);
	}
	if (!(oflags & UMMAP_O_WRITERS))
		return 0;
	if (keys->direct == ALWAYS)
		return keys_refuse(geom, EINVAL, "direct is \"always\": it must be auto or never "
				   "with UMMAP_WRITERS, because direct transfers overwrite whole "
				   "blocks");
	/* The page cache combines the writes of several processes to one page. */
	keys->direct = NEVER;
	return 0;
}

static int check_kind(mode_t mode, mode_t device, struct ummap_geom *geom)
{
	if (S_ISREG(mode) || (mode & S_IFMT) == device)
		return 0;
	return keys_refuse(geom, ENODEV, "cannot open the store: it is neither a regular file nor "
			   "%s", device == S_IFBLK ? "a block device" : "device DAX");
}

/* Opens the file again, so that its flags, offset and locks are not shared. */
static int reopen(int fd, int flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return file_away((int)answer(open(path, flags | O_CLOEXEC)));
}

#ifdef STATX_DIOALIGN
/* Alignment of offset and memory for direct transfers; 0: the file supports none. */
static void file_dio_align(int fd, uint32_t *off, uint32_t *mem)
{
	struct statx stx;

	*off = *mem = DEFAULT_DIO_ALIGN;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
	    stx.stx_mask & STATX_DIOALIGN) {
		*off = stx.stx_dio_offset_align;
		*mem = stx.stx_dio_mem_align;
	}
}
#else
static void file_dio_align(int fd, uint32_t *off, uint32_t *mem)
{
	(void)fd;
	*off = *mem = DEFAULT_DIO_ALIGN;
}
#endif

/* The kernel's readahead on a disk, a partition, or a file system without a device, in bytes. */
static size_t read_kernel_readahead(dev_t dev)
{
	static const char *const names[] = { "/sys/dev/block/%u:%u/queue/read_ahead_kb",
					     "/sys/dev/block/%u:%u/../queue/read_ahead_kb",
					     "/sys/class/bdi/%u:%u/read_ahead_kb" };
	size_t kib = DEFAULT_READAHEAD_KIB;
	char path[80], text[24];
	ssize_t len = 0;

	for (unsigned i = 0; i < sizeof(names) / sizeof(*names) && len <= 0; i++) {
		int fd;

		snprintf(path, sizeof(path), names[i], major(dev), minor(dev));
		fd = open(path, O_RDONLY | O_CLOEXEC);
		len = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
		close_fd(fd);
	}
	if (len > 0) {
		text[len] = '\0';
		kib = strtoul(text, NULL, 10);
	}
	return min_size(kib, MAX_READAHEAD_KIB) << 10;
}

static void open_direct(struct file *f, const struct stat *st, int access)
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
	f->readahead = read_kernel_readahead(f->block ? st->st_rdev : st->st_dev);
	f->grain = max_size(off, f->page);
	f->mem_align = mem;
	/* Only the ends of transfers use the page cache, so the kernel must not read ahead. */
	posix_fadvise(f->fd, 0, 0, POSIX_FADV_RANDOM);
}

/* The kernel may open a read-only device for writing, and refuse each write. */
static int check_writable(int fd, int oflags, mode_t mode, struct ummap_geom *geom)
{
	int readonly = 0;

	if (!(oflags & UMMAP_O_WRITE) || !S_ISBLK(mode) || ioctl(fd, BLKROGET, &readonly) < 0 ||
	    !readonly)
		return 0;
	return keys_refuse(geom, EROFS, "cannot write to the block device: it is read-only. Try a "
			   "read-only mapping, or `blockdev --setrw`");
}

/* Takes ownership of fd, also on failure. */
static int make_handle(int fd, struct keys keys, int oflags, struct file **h,
		       struct ummap_geom *geom)
{
	struct file *f = calloc(1, sizeof(*f));
	struct stat st;
	int err;

	err = f && fstat(fd, &st) == 0 ? check_writable(fd, oflags, st.st_mode, geom) : -errno;
	if (err) {
		free(f);
		close_fd(fd);
		return err;
	}
	f->fd = fd;
	f->block = S_ISBLK(st.st_mode);
	f->direct = keys.direct;
	f->maps_pagecache = should_map_pagecache(&keys, oflags);
	f->slot = -1;
	open_direct(f, &st, oflags & UMMAP_O_WRITE ? O_RDWR : O_RDONLY);
	f->locks = lock_group_join(lock_fd(f), oflags & UMMAP_O_WRITE);
	err = f->locks ? file_size(f, &geom->size) : -ENOMEM;
	if (err) {
		file_close(f);
		return err;
	}
	f->device_size = f->block ? geom->size : 0;
	geom->align = f->direct_fd >= 0 ? (uint32_t)f->grain : 1;
	/* A device may have several names in the file system, so its number identifies it. */
	geom->id[0] = f->block ? (uint64_t)st.st_rdev + 1 : (uint64_t)st.st_ino;
	geom->id[1] = f->block ? UINT64_MAX : (uint64_t)st.st_dev;
	geom->optimal = keys.stripe ? (uint32_t)keys.stripe :
			(uint32_t)max_size((size_t)st.st_blksize, MIN_OPTIMAL_BYTES);
	geom->caps = UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE;
	if (f->direct_fd >= 0)
		geom->caps |= UMMAP_CAP_DIRECT;
	if (f->maps_pagecache)
		geom->caps |= UMMAP_CAP_PAGECACHE;
	if (oflags & UMMAP_O_WRITE)
		geom->caps |= UMMAP_CAP_WRITE | (f->block ? 0 : UMMAP_CAP_GROW);
	*h = f;
	return 0;
}

static int check_fd(int fd, int oflags, mode_t device, int *flags, struct ummap_geom *geom)
{
	struct stat st;
	int access;

	*flags = fcntl(fd, F_GETFL);
	if (*flags < 0 || *flags & O_PATH)
		return keys_refuse(geom, EBADF, "cannot use the descriptor %d: it is not open for "
				   "input and output", fd);
	if (fstat(fd, &st) < 0)
		return -errno;
	if (check_kind(st.st_mode, device, geom) < 0)
		return -ENODEV;
	access = *flags & O_ACCMODE;
	if (access == O_RDWR || (access == O_RDONLY && !(oflags & UMMAP_O_WRITE)))
		return 0;
	return keys_refuse(geom, EACCES, "cannot use the descriptor %d: it must be open for "
			   "reading%s", fd, oflags & UMMAP_O_WRITE ? " and writing" : "");
}

/* Uses the caller's open file description, unless its flags prevent transfers in place. */
static int share_description(int fd, int flags, struct keys keys, int oflags, struct file **h,
			     struct ummap_geom *geom)
{
	int own, err;

	if (flags & O_DIRECT || (flags & O_APPEND && oflags & UMMAP_O_WRITE))
		return keys_refuse(geom, EINVAL, "cannot use the descriptor %d: it has %s, and the "
				   "file is not opened again without that flag", fd,
				   flags & O_DIRECT ? "O_DIRECT" : "O_APPEND");
	own = (int)answer(fcntl(fd, F_DUPFD_CLOEXEC, FIRST_OWN_FD));
	if (own < 0)
		own = (int)answer(fcntl(fd, F_DUPFD_CLOEXEC, 0));
	keys.direct = NEVER;
	err = own < 0 ? own : make_handle(own, keys, oflags, h, geom);
	if (!err)
		(*h)->shared = true;
	return err;
}

/* Uses the description of the key `fd`. Opening another one would end a lease of the file. */
static int open_given(struct keys keys, int oflags, mode_t device, struct file **h,
		      struct ummap_geom *geom)
{
	int flags, err = check_fd(keys.fd, oflags, device, &flags, geom);

	if (!err)
		err = share_description(keys.fd, flags, keys, oflags, h, geom);
	if (!err)
		(*h)->given = true;
	return err;
}

int file_open(const struct ummap_uri *uri, int oflags, mode_t device, file_check *check,
	      struct file **h, struct ummap_geom *geom)
{
	int flags = oflags & UMMAP_O_WRITE ? O_RDWR : O_RDONLY;
	struct keys keys;
	struct stat st;
	int fd, err = parse_keys(uri, oflags, &keys, geom);

	if (!err && keys.fd >= 0)
		return open_given(keys, oflags, device, h, geom);
	/* Opening a pipe would wait, and opening some devices has an effect. */
	if (!err && stat(uri->path, &st) == 0)
		err = check_kind(st.st_mode, device, geom);
	if (!err && check)
		err = check(uri->path, geom);
	if (err)
		return err;
	if (oflags & UMMAP_O_CREATE)
		flags |= O_CREAT;
	fd = file_away((int)answer(open(uri->path, flags | O_CLOEXEC, 0666)));
	return fd < 0 ? fd : make_handle(fd, keys, oflags, h, geom);
}

int file_open_fd(const struct ummap_uri *uri, int fd, int oflags, mode_t device, struct file **h,
		 struct ummap_geom *geom)
{
	struct keys keys;
	int flags, own, err = parse_keys(uri, oflags, &keys, geom);

	if (!err)
		err = check_fd(fd, oflags, device, &flags, geom);
	if (err)
		return err;
	own = reopen(fd, oflags & UMMAP_O_WRITE ? O_RDWR : O_RDONLY);
	if (own >= 0)
		return make_handle(own, keys, oflags, h, geom);
	/* The file cannot be opened again, for example because /proc is not mounted. */
	return share_description(fd, flags, keys, oflags, h, geom);
}

