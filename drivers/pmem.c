/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver pmem: files on persistent memory (DAX) and device DAX, through libpmem2.
 *
 * libpmem2 says which granularity the store has (PMEM2_FORCE_GRANULARITY overrides it) and how
 * stores are made durable. If the granularity is finer than a page, `map` maps the store's own
 * pages, and `persist` is libpmem2's. All other transfers of a file are those of file.c, which copy
 * the same way on DAX, see a file that grows, and raise no SIGBUS if the file became shorter. A
 * device has no such calls: it is mapped as a whole, and written by libpmem2's memcpy, which leaves
 * the data durable.
 *
 * libpmem2 allocates and takes locks only in open and map, and no object of it is kept: a forked
 * child closes handles, and must not meet a lock that another thread of its parent held.
 */
#include "file.h"

#include "common/memory_calls.h"
#include "common/minmax.h"
#include "keys.h"

#include <libpmem2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A flush of cache lines takes time in proportion to the range, even if only a few bytes changed.
 * The kernel knows the pages that were stored to, so it flushes longer ranges (msync). */
#define MAX_LINE_FLUSH_BYTES ((size_t)16 << 20)

extern const struct ummap_driver ummap_driver_pmem;

struct pmem {
	struct file *file;     /* the store; it only locks and closes a device DAX */
	enum pmem2_granularity granularity; /* granularity of the store */
	pmem2_persist_fn persist; /* flush; NULL: unknown, because the file was empty */
	pmem2_memcpy_fn copy;  /* copy to a device, durable when it returns */
	size_t alignment;      /* alignment of a mapping: a page, or the device's */
	char *device;          /* mapping of a whole device DAX; NULL: the store is a file */
	uint64_t device_size;  /* size of the device in bytes */
	const char *mapped;    /* address of the mapping in place */
	uint64_t mapped_off;   /* offset in the store of the mapping in place */
	bool synced;           /* whether flushed lines are durable, by the kernel's MAP_SYNC */
};

static int pmem_size(void *h, uint64_t *size)
{
	const struct pmem *m = h;

	if (!m->device)
		return file_size(m->file, size);
	*size = m->device_size;
	return 0;
}

/* ---- Transfers ---- */

static int pmem_read(void *h, void *buf, size_t len, uint64_t off)
{
	const struct pmem *m = h;
	uint64_t inside;

	if (!m->device)
		return file_read(m->file, buf, len, off);
	inside = off < m->device_size ? min_u64(m->device_size - off, len) : 0;
	if (inside)
		memcpy(buf, m->device + off, inside);
	memset((char *)buf + inside, 0, len - inside);
	return 0;
}

static int pmem_write(void *h, const void *buf, size_t len, uint64_t off)
{
	const struct pmem *m = h;

	if (!m->device)
		return file_write(m->file, buf, len, off);
	if (off > m->device_size || len > m->device_size - off)
		return -ENOSPC;
	m->copy(m->device + off, buf, len, 0);
	return 0;
}

static int pmem_flush(void *h, uint64_t off, uint64_t len)
{
	const struct pmem *m = h;

	return m->device ? 0 : file_flush(m->file, off, len);
}

static int pmem_lock(void *h, uint64_t off, uint64_t len, int how, char why[160])
{
	const struct pmem *m = h;

	return file_lock(m->file, off, len, how, why);
}

static int pmem_hand_over(void *h, struct ummap_handover *to)
{
	const struct pmem *m = h;

	return file_hand_over(m->file, to);
}

static int pmem_resize(void *h, uint64_t size)
{
	const struct pmem *m = h;

	return m->device ? -EOPNOTSUPP : file_resize(m->file, size);
}

/* ---- Properties of a store, from libpmem2 ---- */

/* Converts an error of libpmem2, which has numbers of its own below those of the system. */
static int refuse_store(struct ummap_geom *geom, int err)
{
	int known = err == PMEM2_E_GRANULARITY_NOT_SUPPORTED ? EOPNOTSUPP :
		    err == PMEM2_E_INVALID_FILE_TYPE ? ENODEV :
		    err == PMEM2_E_NO_ACCESS ? EACCES : err > PMEM2_E_UNKNOWN ? -err : EIO;

	return keys_refuse(geom, known, "cannot use the store by libpmem2: %s", pmem2_errormsg());
}

/* Maps a part of the store for a moment, because only a mapping has a granularity. */
static int find_granularity(struct pmem *m, const struct pmem2_source *source,
			    struct pmem2_config *config, struct ummap_geom *geom)
{
	struct pmem2_map *map;
	int err = pmem2_map_new(&map, config, source);

	if (err)
		return refuse_store(geom, err);
	m->granularity = pmem2_map_get_store_granularity(map);
	m->persist = pmem2_get_persist_fn(map);
	m->copy = pmem2_get_memcpy_fn(map);
	err = pmem2_map_delete(&map);
	return err ? refuse_store(geom, err) : 0;
}

static int probe_source(struct pmem *m, const struct pmem2_source *source,
			enum pmem2_granularity coarsest, bool writable, struct ummap_geom *geom)
{
	struct pmem2_config *config;
	size_t size;
	int err = pmem2_source_size(source, &size);

	if (!err)
		err = pmem2_source_alignment(source, &m->alignment);
	if (err)
		return refuse_store(geom, err);
	geom->size = size;
	m->granularity = PMEM2_GRANULARITY_PAGE;
	if (size == 0 && coarsest != PMEM2_GRANULARITY_PAGE)
		return keys_refuse(geom, EOPNOTSUPP, "cannot find the granularity of an empty "
				   "file. Try to set its length first");
	if (size == 0)
		return 0;
	err = pmem2_config_new(&config);
	if (err)
		return refuse_store(geom, err);
	pmem2_config_set_required_store_granularity(config, coarsest);
	pmem2_config_set_protection(config, PMEM2_PROT_READ | (writable ? PMEM2_PROT_WRITE : 0));
	if (size > m->alignment)
		pmem2_config_set_length(config, m->alignment);
	err = find_granularity(m, source, config, geom);
	pmem2_config_delete(&config);
	return err;
}

static int probe_store(struct pmem *m, enum pmem2_granularity coarsest, bool writable,
		       struct ummap_geom *geom)
{
	struct pmem2_source *source;
	int err = pmem2_source_from_fd(&source, m->file->fd);

	if (err)
		return refuse_store(geom, err);
	err = probe_source(m, source, coarsest, writable, geom);
	pmem2_source_delete(&source);
	return err;
}

/* ---- In place ---- */

static int pmem_map(void *h, void *addr, size_t len, uint64_t off, int prot)
{
	struct pmem *m = h;
	int flags = MAP_FIXED | MAP_SHARED_VALIDATE | MAP_SYNC;
	struct ummap_geom unused;
	void *mapped;

	if (!m->persist &&
	    probe_store(m, PMEM2_GRANULARITY_PAGE, prot & PROT_WRITE, &unused) < 0)
		return -ENOTSUP;
	if (m->granularity == PMEM2_GRANULARITY_PAGE ||
	    ((uintptr_t)addr | len | off) & (m->alignment - 1))
		return -ENOTSUP;
	mapped = hooked_mmap(addr, len, prot, flags, m->file->fd, (off_t)off);
	m->synced = mapped != MAP_FAILED;
	/* The file is not DAX: PMEM2_FORCE_GRANULARITY set the granularity. */
	if (mapped == MAP_FAILED && errno == EOPNOTSUPP && !m->device)
		mapped = hooked_mmap(addr, len, prot, MAP_FIXED | MAP_SHARED, m->file->fd,
				     (off_t)off);
	if (mapped == MAP_FAILED)
		return -errno;
	m->mapped = addr;
	m->mapped_off = off;
	return 0;
}

static int pmem_persist(void *h, void *addr, size_t len)
{
	const struct pmem *m = h;
	bool by_lines = m->device || m->granularity == PMEM2_GRANULARITY_BYTE ||
			len <= MAX_LINE_FLUSH_BYTES;
	size_t lead = (uintptr_t)addr & (m->alignment - 1);
	uint64_t size;
	int err = pmem_size(h, &size);

	if (err)
		return err;
	/* The file became shorter. The data behind its end are lost, and a flush would raise
	 * SIGBUS. */
	if (m->mapped_off + (uint64_t)((char *)addr - m->mapped) + len > size)
		return -EIO;
	if (by_lines)
		m->persist(addr, len);
	if (by_lines && m->synced)
		return 0;
	return (int)answer(msync((char *)addr - lead, len + lead, MS_SYNC));
}

/* ---- Opening ---- */

static int parse_keys(const struct ummap_uri *uri, enum pmem2_granularity *coarsest,
		      struct ummap_geom *geom)
{
	static const struct key_type types[] = { PMEM_KEYS(KEY_TYPE) KEY_TYPES_END };
	static const char *const names[] = { "auto", "page", "cacheline", "byte", NULL };
	static const enum pmem2_granularity values[] = {
		PMEM2_GRANULARITY_PAGE, PMEM2_GRANULARITY_PAGE, PMEM2_GRANULARITY_CACHE_LINE,
		PMEM2_GRANULARITY_BYTE
	};

	*coarsest = PMEM2_GRANULARITY_PAGE;
	for (unsigned i = 0; i < uri->nkeys; i++) {
		int k = keys_word(uri->keys[i].value, names);

		if (k < 0)
			return keys_refuse_value(geom, "", &uri->keys[i], types);
		*coarsest = values[k];
	}
	return 0;
}

static int map_device(struct pmem *m, uint64_t size, bool writable)
{
	void *mapped = mmap(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_READ,
			 MAP_SHARED_VALIDATE | MAP_SYNC, m->file->fd, 0);

	if (mapped == MAP_FAILED)
		return -errno;
	m->device = mapped;
	m->device_size = size;
	return 0;
}

static int pmem_close(void *h)
{
	struct pmem *m = h;
	int err = m->file ? file_close(m->file) : 0;

	if (m->device)
		raw_munmap(m->device, m->device_size);
	free(m);
	return err;
}

static int open_store(struct pmem *m, const struct ummap_uri *uri, int fd, int oflags,
		      struct ummap_geom *geom)
{
	const struct ummap_key never_direct = { "direct", "never" };
	const struct ummap_uri file = { .path = uri->path, .keys = &never_direct, .nkeys = 1 };
	bool writable = oflags & UMMAP_O_WRITE;
	enum pmem2_granularity coarsest;
	struct stat st;
	int err = parse_keys(uri, &coarsest, geom);

	if (!err)
		err = fd < 0 ? file_open(&file, oflags, S_IFCHR, NULL, &m->file, geom) :
			       file_open_fd(&file, fd, oflags, S_IFCHR, &m->file, geom);
	if (!err)
		err = probe_store(m, coarsest, writable, geom);
	if (!err)
		err = (int)answer(fstat(m->file->fd, &st));
	if (err || !S_ISCHR(st.st_mode))
		return err;
	geom->id[0] = (uint64_t)st.st_rdev + 1;
	geom->id[1] = UINT64_MAX - 1;
	geom->caps &= ~UMMAP_CAP_GROW;
	return map_device(m, geom->size, writable);
}

static int open_handle(const struct ummap_uri *uri, int fd, int oflags, void **h,
		       struct ummap_geom *geom)
{
	struct pmem *m = calloc(1, sizeof(*m));
	int err = m ? open_store(m, uri, fd, oflags, geom) : -ENOMEM;

	if (!err)
		*h = m;
	else if (m)
		pmem_close(m);
	return err;
}

static int pmem_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	return open_handle(uri, -1, oflags, h, geom);
}

static int pmem_open_fd(const struct ummap_uri *uri, int fd, int oflags, void **h,
			struct ummap_geom *geom)
{
	return open_handle(uri, fd, oflags, h, geom);
}

const struct ummap_driver ummap_driver_pmem = {
	.struct_size = sizeof(struct ummap_driver),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "pmem",
	.keys = PMEM_KEYS(KEY_NAME),
	.help = "persistent memory, mapped in place if possible "
		"(granularity=auto|page|cacheline|byte)",
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
