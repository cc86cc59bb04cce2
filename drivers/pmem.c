/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pmem - files on persistent memory (DAX) and device DAX, through libpmem2.
 *
 * libpmem2 says which granularity the store has (PMEM2_FORCE_GRANULARITY overrides it) and how stores are made
 * durable. Finer than a page, the store's pages are put in place by `map`, and `persist` is libpmem2's. What goes
 * through segments is pread(2), pwrite(2) and fdatasync(2) where the store is a file: these copy the same way on
 * DAX, see a file that grows, and do not raise SIGBUS where it was cut. A device has no
 * such calls: it is mapped as a whole, and written with libpmem2's memcpy, which leaves it durable.
 *
 * libpmem2 allocates and takes locks in open and map only, and no object of it is kept: a forked child closes
 * handles, and must not meet a lock that another thread of its parent held.
 */
#include "file.h"

#include "common/memory_calls.h"
#include "keys.h"

#include <fcntl.h>
#include <libpmem2.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALL_MAX ((size_t)1 << 30)  /* bytes of one system call; Linux cuts at 2 GiB less a page */
/* Flushing lines costs the length of the range, changed or not. The kernel knows which pages were stored to,
 * and is asked for more than this. */
#define LINES_MOST ((size_t)16 << 20)

extern const struct ummap_driver ummap_driver_pmem;

struct pmem {
	int fd;
	struct lock_group
		*locks; /* the locks of this handle, and of handles that it is handed over to */
	enum pmem2_granularity granularity;
	pmem2_persist_fn persist;  /* NULL: not known yet, because a file was empty */
	pmem2_memcpy_fn copy;  /* durable when it returns; for a device */
	size_t alignment;      /* of what can be mapped: the page, or the device's */
	char *device;          /* all of a device DAX; NULL: a file */
	uint64_t device_size;
	/* What is in place. */
	const char *view;
	uint64_t view_off;     /* where it begins in the store */
	bool synced;           /* the kernel has promised that what is flushed is durable (MAP_SYNC) */
};

static int pmem_size(void *h, uint64_t *size)
{
	const struct pmem *m = h;
	struct stat st;

	if (!m->device && fstat(m->fd, &st) < 0)
		return -errno;
	*size = m->device ? m->device_size : (uint64_t)st.st_size;
	return 0;
}

/* ---- Through segments. ---- */

static int read_file(const struct pmem *m, char *buf, size_t len, uint64_t off)
{
	while (len > 0) {
		long done = syscall(SYS_pread64, m->fd, buf, len < CALL_MAX ? len : CALL_MAX, (long)off);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		if (done == 0) {
			memset(buf, 0, len);
			return 0;
		}
		buf += done;
		len -= (size_t)done;
		off += (uint64_t)done;
	}
	return 0;
}

static int write_file(const struct pmem *m, const char *buf, size_t len, uint64_t off)
{
	while (len > 0) {
		long done = syscall(SYS_pwrite64, m->fd, buf, len < CALL_MAX ? len : CALL_MAX, (long)off);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done < 0 ? -errno : -EIO;
		buf += done;
		len -= (size_t)done;
		off += (uint64_t)done;
	}
	return 0;
}

static int pmem_read(void *h, void *buf, size_t len, uint64_t off)
{
	const struct pmem *m = h;
	uint64_t there;

	if (!m->device)
		return read_file(m, buf, len, off);
	there = off < m->device_size ? m->device_size - off : 0;
	there = there < len ? there : len;
	if (there)
		memcpy(buf, m->device + off, there);
	memset((char *)buf + there, 0, len - there);
	return 0;
}

static int pmem_write(void *h, const void *buf, size_t len, uint64_t off)
{
	const struct pmem *m = h;

	if (!m->device)
		return write_file(m, buf, len, off);
	if (off > m->device_size || len > m->device_size - off)
		return -ENOSPC;
	m->copy(m->device + off, buf, len, 0);
	return 0;
}

static int pmem_flush(void *h, uint64_t off, uint64_t len)
{
	const struct pmem *m = h;
	int err;

	(void)off;
	(void)len;
	if (m->device)
		return 0;
	do {
		err = (int)answer(syscall(SYS_fdatasync, m->fd));
	} while (err == -EINTR);
	return err;
}

static int pmem_lock(void *h, uint64_t off, uint64_t len, int how, char why[160])
{
	struct pmem *m = h;

	return lock_group_lock(m->locks, m, off, len, how, why);
}

static int pmem_hand_over(void *h, struct ummap_handover *to)
{
	struct pmem *m = h;

	if (to->how != UMMAP_HANDOVER_FINISH)
		lock_group_offer(m->locks, m, to->how != UMMAP_HANDOVER_CANCEL);
	return 0;
}

static int pmem_resize(void *h, uint64_t size)
{
	const struct pmem *m = h;
	int err;

	if (m->device)
		return -EOPNOTSUPP;
	do {
		err = file_failed((int)answer(ftruncate(m->fd, (off_t)size)));
	} while (err == -EINTR);
	return err;
}

/* ---- What libpmem2 knows of a store. ---- */

__attribute__((format(printf, 3, 4)))
static int refuse(struct ummap_geom *geom, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(geom->why, sizeof(geom->why), format, args);
	va_end(args);
	return -err;
}

/* libpmem2 has numbers of its own below those of the system. */
static int explain(struct ummap_geom *geom, int err)
{
	int known = err == PMEM2_E_GRANULARITY_NOT_SUPPORTED ? EOPNOTSUPP :
		    err == PMEM2_E_INVALID_FILE_TYPE ? ENODEV :
		    err == PMEM2_E_NO_ACCESS ? EACCES : err > PMEM2_E_UNKNOWN ? -err : EIO;

	return refuse(geom, known, "cannot use the store by libpmem2: %s", pmem2_errormsg());
}

/* Maps a little of the store, for what libpmem2 finds out by that. */
static int find_granularity(struct pmem *m, const struct pmem2_source *source, struct pmem2_config *config,
			    struct ummap_geom *geom)
{
	struct pmem2_map *map;
	int err = pmem2_map_new(&map, config, source);

	if (err)
		return explain(geom, err);
	m->granularity = pmem2_map_get_store_granularity(map);
	m->persist = pmem2_get_persist_fn(map);
	m->copy = pmem2_get_memcpy_fn(map);
	err = pmem2_map_delete(&map);
	return err ? explain(geom, err) : 0;
}

static int probe_source(struct pmem *m, const struct pmem2_source *source, enum pmem2_granularity least,
			bool writable, struct ummap_geom *geom)
{
	struct pmem2_config *config;
	size_t size;
	int err = pmem2_source_size(source, &size);

	if (!err)
		err = pmem2_source_alignment(source, &m->alignment);
	if (err)
		return explain(geom, err);
	geom->size = size;
	m->granularity = PMEM2_GRANULARITY_PAGE;
	if (size == 0 && least != PMEM2_GRANULARITY_PAGE)
		return refuse(geom, EOPNOTSUPP, "cannot find the granularity of an empty file. Try "
			      "to give it its length first");
	if (size == 0)
		return 0;
	err = pmem2_config_new(&config);
	if (err)
		return explain(geom, err);
	pmem2_config_set_required_store_granularity(config, least);
	pmem2_config_set_protection(config, PMEM2_PROT_READ | (writable ? PMEM2_PROT_WRITE : 0));
	if (size > m->alignment)
		pmem2_config_set_length(config, m->alignment);
	err = find_granularity(m, source, config, geom);
	pmem2_config_delete(&config);
	return err;
}

static int probe(struct pmem *m, enum pmem2_granularity least, bool writable, struct ummap_geom *geom)
{
	struct pmem2_source *source;
	int err = pmem2_source_from_fd(&source, m->fd);

	if (err)
		return explain(geom, err);
	err = probe_source(m, source, least, writable, geom);
	pmem2_source_delete(&source);
	return err;
}

/* ---- In place. ---- */

static int pmem_map(void *h, void *addr, size_t len, uint64_t off, int prot)
{
	struct pmem *m = h;
	int flags = MAP_FIXED | MAP_SHARED_VALIDATE | MAP_SYNC;
	struct ummap_geom unused;
	void *got;

	if (!m->persist && probe(m, PMEM2_GRANULARITY_PAGE, prot & PROT_WRITE, &unused) < 0)
		return -ENOTSUP;
	if (m->granularity == PMEM2_GRANULARITY_PAGE ||
	    ((uintptr_t)addr | len | off) & (m->alignment - 1))
		return -ENOTSUP;
	got = hooked_mmap(addr, len, prot, flags, m->fd, (off_t)off);
	m->synced = got != MAP_FAILED;
	/* Not DAX: the granularity was forced upon it. */
	if (got == MAP_FAILED && errno == EOPNOTSUPP && !m->device)
		got = hooked_mmap(addr, len, prot, MAP_FIXED | MAP_SHARED, m->fd, (off_t)off);
	if (got == MAP_FAILED)
		return -errno;
	m->view = addr;
	m->view_off = off;
	return 0;
}

static int pmem_persist(void *h, void *addr, size_t len)
{
	const struct pmem *m = h;
	bool lines = m->device || m->granularity == PMEM2_GRANULARITY_BYTE || len <= LINES_MOST;
	size_t lead = (uintptr_t)addr & (m->alignment - 1);
	uint64_t size;
	int err = pmem_size(h, &size);

	if (err)
		return err;
	/* Cut: what was stored there is gone, and flushing it would raise SIGBUS. */
	if (m->view_off + (uint64_t)((char *)addr - m->view) + len > size)
		return -EIO;
	if (lines)
		m->persist(addr, len);
	if (lines && m->synced)
		return 0;
	return (int)answer(msync((char *)addr - lead, len + lead, MS_SYNC));
}

/* ---- Opening. ---- */

static int check_kind(mode_t mode, struct ummap_geom *geom)
{
	if (S_ISREG(mode) || S_ISCHR(mode))
		return 0;
	return refuse(geom, ENODEV, "cannot open the store: it is neither a regular file nor "
		      "device DAX");
}

static int parse_keys(const struct ummap_uri *uri, enum pmem2_granularity *least, struct ummap_geom *geom)
{
	static const struct key_type types[] = { PMEM_KEYS(KEY_TYPE) KEY_TYPES_END };
	static const char *const names[] = { "auto", "page", "cacheline", "byte", NULL };
	static const enum pmem2_granularity values[] = { PMEM2_GRANULARITY_PAGE, PMEM2_GRANULARITY_PAGE,
							 PMEM2_GRANULARITY_CACHE_LINE, PMEM2_GRANULARITY_BYTE };

	*least = PMEM2_GRANULARITY_PAGE;
	for (unsigned i = 0; i < uri->nkeys; i++) {
		int k = keys_word(uri->keys[i].value, names);

		if (k < 0)
			return keys_refuse_value(geom, "", &uri->keys[i], types);
		*least = values[k];
	}
	return 0;
}

static int map_device(struct pmem *m, uint64_t size, bool writable)
{
	void *all = mmap(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_READ,
			 MAP_SHARED_VALIDATE | MAP_SYNC, m->fd, 0);

	if (all == MAP_FAILED)
		return -errno;
	m->device = all;
	m->device_size = size;
	return 0;
}

static int pmem_close(void *h)
{
	struct pmem *m = h;
	bool kept_by_group = m->locks && lock_group_leave(m->locks, m, m->fd);
	int err = kept_by_group ? 0 : (int)answer(syscall(SYS_close, m->fd));

	if (m->device)
		raw_munmap(m->device, m->device_size);
	free(m);
	return err;
}

/* Takes over fd, also when it fails. */
static int make_handle(int fd, enum pmem2_granularity least, int oflags, void **h, struct ummap_geom *geom)
{
	bool writable = oflags & UMMAP_O_WRITE;
	struct pmem *m = calloc(1, sizeof(*m));
	struct stat st;
	bool device;
	int err;

	if (!m) {
		syscall(SYS_close, fd);
		return -ENOMEM;
	}
	m->fd = fd;
	m->locks = lock_group_join(fd, writable);
	err = m->locks ? (int)answer(fstat(fd, &st)) : -ENOMEM;
	if (!err)
		err = check_kind(st.st_mode, geom);
	if (!err)
		err = probe(m, least, writable, geom);
	device = !err && S_ISCHR(st.st_mode);
	if (device)
		err = map_device(m, geom->size, writable);
	if (err) {
		pmem_close(m);
		return err;
	}
	geom->align = 1;
	geom->id[0] = device ? (uint64_t)st.st_rdev + 1 : (uint64_t)st.st_ino;
	geom->id[1] = device ? UINT64_MAX - 1 : (uint64_t)st.st_dev;
	geom->caps = UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE;
	if (writable)
		geom->caps |= UMMAP_CAP_WRITE | (device ? 0 : UMMAP_CAP_GROW);
	*h = m;
	return 0;
}

static int pmem_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	int flags = oflags & UMMAP_O_WRITE ? O_RDWR : O_RDONLY;
	enum pmem2_granularity least;
	struct stat st;
	int fd, err = parse_keys(uri, &least, geom);

	/* Opening a pipe would wait. */
	if (!err && stat(uri->path, &st) == 0)
		err = check_kind(st.st_mode, geom);
	if (err)
		return err;
	if (oflags & UMMAP_O_CREATE)
		flags |= O_CREAT;
	fd = (int)answer(open(uri->path, flags | O_CLOEXEC, 0666));
	return fd < 0 ? fd : make_handle(fd, least, oflags, h, geom);
}

/* A description of our own of the file behind fd: O_APPEND and O_DIRECT of the caller's would change what
 * transfers do. */
static int reopen(int fd, int oflags, struct ummap_geom *geom)
{
	int flags = fcntl(fd, F_GETFL), own;
	char path[32];

	if (flags < 0 || flags & O_PATH)
		return refuse(geom, EBADF, "cannot use the descriptor %d: it is not open for input "
			      "and output", fd);
	if ((flags & O_ACCMODE) == O_WRONLY || (oflags & UMMAP_O_WRITE && (flags & O_ACCMODE) != O_RDWR))
		return refuse(geom, EACCES, "cannot use the descriptor %d: it must be open for "
			      "reading%s", fd, oflags & UMMAP_O_WRITE ? " and writing" : "");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = (int)answer(open(path, (oflags & UMMAP_O_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC));
	if (own >= 0 || flags & (O_APPEND | O_DIRECT))
		return own;
	/* No /proc, or not our file any more. */
	return (int)answer(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

static int pmem_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h, struct ummap_geom *geom)
{
	enum pmem2_granularity least;
	struct stat st;
	int own, err = parse_keys(uri, &least, geom);

	if (!err)
		err = (int)answer(fstat(fd, &st));
	if (!err)
		err = check_kind(st.st_mode, geom);
	if (err)
		return err;
	own = reopen(fd, oflags, geom);
	return own < 0 ? own : make_handle(own, least, oflags, h, geom);
}

const struct ummap_driver ummap_driver_pmem = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "pmem",
	.keys = PMEM_KEYS(KEY_NAME),
	.help = "persistent memory, in place where it can (granularity=auto|page|cacheline|byte: at least)",
	.open = pmem_open,
	.open_fd = pmem_open_fd,
	.close = pmem_close,
	.read = pmem_read,
	.write = pmem_write,
	.flush = pmem_flush,
	.resize = pmem_resize,
	.map = pmem_map,
	.persist = pmem_persist,
	.size = pmem_size,
	.lock = pmem_lock,
	.hand_over = pmem_hand_over,
};
