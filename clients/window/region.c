/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Window memory is a mapping of a store, and memory of the kernel directly before or behind it for
 * the part that is not in storage. Byte i of the window is byte offset + i of the file, however
 * large the part in memory is, so that a later run may use another factor. The functions use MPI's
 * error classes but make no MPI calls. Lock: `lock`, around the list of all window memory.
 */
#include "window/region.h"

#include "common/fd_path.h"
#include "common/memory_calls.h"
#include "common/size.h"
#include "common/uri_encode.h"
#include "transport/engine.h"
#include "window/kernel.h"
#include "window/moment.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ummap-mpi.h>
#include <unistd.h>

/* Segment size without the hint and UMMAP_SEG_SIZE. */
#define DEFAULT_SEGMENT_BYTES ((uint64_t)2 << 20)
/* Minimum number of segments of a window that is partly in memory: the boundary between the parts
 * must be one of segments. */
#define MIN_COMBINED_SEGMENTS 64
/* Divisor of the budget: the segments of a window with the factor "auto" get this fraction. */
#define AUTO_SEGMENTS_DIVISOR 4

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region *regions;

/* ---- Sizes ---- */

static size_t page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t whole_pages(size_t len)
{
	return (len + page() - 1) & ~(page() - 1);
}

/* Bytes of memory behind the part in storage. */
static size_t memory_behind(const struct region *region)
{
	return region->size - region->stored_from - region->stored_len;
}

static uint64_t default_segsize(const struct region *region)
{
	const char *env = secure_getenv("UMMAP_SEG_SIZE");
	uint64_t size = DEFAULT_SEGMENT_BYTES;

	/* An invalid value is reported by the mapping. */
	if (env && *env && size_parse(env, &size) < 0)
		return 0;
	while (region->hints.factor != 0 && size > page() &&
	       size > region->size / MIN_COMBINED_SEGMENTS)
		size /= 2;
	return size;
}

/* Bytes of the budget that no window's memory uses. 0 with an error: no mapping is possible. */
static size_t free_budget(struct error *e)
{
	struct umstat st = { .struct_size = sizeof(st) };
	size_t used = 0;

	if (umstart() < 0 || umstat(NULL, &st) < 0) {
		error_errno(e, errno, "%s", umerrormsg());
		return 0;
	}
	pthread_mutex_lock(&lock);
	for (const struct region *a = regions; a; a = a->next)
		used += a->size - a->stored_len;
	pthread_mutex_unlock(&lock);
	return st.budget_bytes > used ? st.budget_bytes - used : 0;
}

/* Bytes that are in memory: whole segments, unless it is all of the window. With the factor "auto",
 * *rest is the budget of the mapping. */
static size_t memory_size(const struct region *region, size_t *rest, struct error *e)
{
	const struct hints *h = &region->hints;
	size_t memory = (size_t)(h->factor * (double)region->size), budget, stored;

	*rest = 0;
	if (h->type != TYPE_STORAGE)
		return region->size;
	if (h->factor == FACTOR_AUTO) {
		budget = free_budget(e);
		*rest = budget / AUTO_SEGMENTS_DIVISOR;
		memory = budget < region->size ? budget - *rest : region->size;
	}
	if (memory >= region->size || h->segsize == 0)
		return memory >= region->size ? region->size : 0;
	if (!h->storage_first)
		return memory & ~(h->segsize - 1);
	stored = (region->size - memory + h->segsize - 1) & ~(h->segsize - 1);
	return stored < region->size ? region->size - stored : 0;
}

/* ---- The file ---- */

static bool is_file_driver(const char *driver)
{
	static const char *const names[] = { "posix", "uring", "pmem" };
	size_t len = strcspn(driver, ":");

	for (size_t i = len; i > 0; i--) {
		if (driver[i - 1] == '+') {
			len -= i;
			driver += i;
			break;
		}
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (strlen(names[i]) == len && strncmp(driver, names[i], len) == 0)
			return true;
	}
	return len == 0;
}

/* Notes the extent of a file that the driver mpiio opens, if this process can open it by the same
 * name. Stripes have no bytes in common with other stripes. */
static void note_mpiio_file(struct region *region)
{
	const struct hints *h = &region->hints;
	int fd = open(h->filename, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (!h->stripe)
		extent_file(&region->extent, fd, h->offset, region->size);
	if (h->unlink)
		region->path = realpath(h->filename, NULL);
	close(fd);
}

static int open_file(struct region *region, struct error *e)
{
	const struct hints *h = &region->hints;
	int flags = h->node_cache ? O_RDONLY : O_RDWR | (h->nameless ? O_TMPFILE : O_CREAT);
	int fd = open(h->filename, flags | O_CLOEXEC, h->perm);

	if (fd < 0) {
		error_errno(e, errno, "cannot open '%s' for reading%s: %m", h->filename,
			    h->node_cache ? "" : " and writing");
		return -1;
	}
	extent_file(&region->extent, fd, h->offset, region->size);
	if (h->unlink && !h->nameless && region->extent.ino)
		region->path = realpath(h->filename, NULL);
	return fd;
}

const char *region_driver(const struct hints *h)
{
	const char *env = secure_getenv("UMMAP_DRIVER");

	return *h->driver ? h->driver : env && *env ? env : "posix";
}

void region_log_driver(char *to, size_t room, const char *driver, const char *key)
{
	size_t scheme = strcspn(driver, ":");
	const char *keys =
		driver[scheme] == ':' && driver[scheme + 1] == '?' ? driver + scheme + 2 : "";

	snprintf(to, room, "wal+%.*s:?wal.keep=%d%s%s%s%s", (int)scheme, driver, MOMENT_KEEP,
		 *key ? "&" : "", key, *keys ? "&" : "", keys);
}

void region_uri(char *uri, size_t room, const char *driver, const char *path)
{
	size_t schemes = strcspn(driver, ":");
	size_t len = (size_t)snprintf(uri, room, "%.*s:", (int)schemes, driver);

	len += uri_encode(uri + len, room - len, path);
	snprintf(uri + len, room - len, "%s", driver[schemes] ? driver + schemes + 1 : "");
}

/* Adds the keys of the driver mpiio: this rank's stripes, and hints for MPI-IO. */
static void add_mpiio_keys(char *uri, size_t room, const struct hints *h)
{
	size_t len = strlen(uri);
	const char *mark = strchr(uri, '?') ? "&" : "?";

	if (h->stripe) {
		len += (size_t)snprintf(uri + len, room - len,
					"%sstripe=%llu&rank=%d&ranks=%d&offset=%llu", mark,
					(unsigned long long)h->stripe, h->rank, h->ranks,
					(unsigned long long)h->offset);
		mark = "&";
	}
	if (!*h->passed)
		return;
	len += (size_t)snprintf(uri + len, room - len, "%shints=", mark);
	uri_encode(uri + len, room - len, h->passed);
}

/* Adds the key for the hint striping_unit to the URI of a file, unless the driver's hint has it. */
static void add_stripe(char *uri, size_t room, const struct hints *h)
{
	size_t len = strlen(uri);

	if (*h->striping_unit && !strstr(h->driver, "stripe=") &&
	    (hints_by(h, "posix") || hints_by(h, "uring")))
		snprintf(uri + len, room - len, "%sstripe=%s", strchr(uri, '?') ? "&" : "?",
			 h->striping_unit);
}

/* ---- The mapping ---- */

/* Store to map: an open one, or the file at `path`. */
struct source {
	const struct region_store *store; /* NULL: the file */
	const char *path;
};

static int map_uri(const struct region *region, const char *driver, const char *path,
		   const struct ummap_attr *attr, void **base)
{
	const struct hints *h = &region->hints;
	off_t offset = (off_t)((h->stripe ? 0 : h->offset) + region->stored_from);
	char uri[20 * HINT_TEXT], logged[4 * HINT_TEXT];

	if (h->consistent)
		region_log_driver(logged, sizeof(logged), driver, "");
	region_uri(uri, sizeof(uri), h->consistent ? logged : driver, path);
	if (hints_by(h, "mpiio"))
		add_mpiio_keys(uri, sizeof(uri), h);
	add_stripe(uri, sizeof(uri), h);
	return ummpi_open(uri, region->stored_len, offset,
			  h->node_cache ? PROT_READ : PROT_READ | PROT_WRITE, attr, base);
}

/* Maps an open store, or the file by the driver of the hint or of the environment, or by the driver
 * that ummap(3) would choose. */
static int map_source(struct region *region, const struct source *from,
		      const struct ummap_attr *attr, void **base)
{
	const struct region_store *store = from->store;
	struct hints *h = &region->hints;
	const char *env = secure_getenv("UMMAP_DRIVER");

	if (store)
		return ummap_open_handle(&store->driver, store->handle, &store->geom,
					 region->stored_len, (off_t)region->stored_from,
					 PROT_READ | PROT_WRITE, attr, base);
	if (!*h->driver && env)
		snprintf(h->driver, sizeof(h->driver), "%s", env);
	if (*h->driver)
		return map_uri(region, h->driver, from->path, attr, base);
	strcpy(h->driver, "uring");
	if (map_uri(region, h->driver, from->path, attr, base) == 0)
		return 0;
	if (errno != EOPNOTSUPP)
		return -1;
	strcpy(h->driver, "posix");
	return map_uri(region, h->driver, from->path, attr, base);
}

static bool is_for_others(const struct hints *h)
{
	return h->local && h->ranks > 1;
}

/* Maps so that other processes can import resident segments. Only the engine segv supports this,
 * and not if the store is mapped in place. */
static bool map_shared(struct region *region, const struct source *from,
		       const struct ummap_attr *attr, void **base)
{
	const struct hints *h = &region->hints;
	struct ummap_attr shared = *attr;

	shared.flags |= UMMAP_SHARED;
	region->shared = is_for_others(h) && h->engine == ENGINE_SEGV &&
			 map_source(region, from, &shared, base) == 0;
	return region->shared;
}

static void advise(const struct region *region)
{
	const char *style = region->hints.access_style;
	bool random = strstr(style, "random");
	bool forward = strstr(style, "sequential") && !strstr(style, "reverse_sequential");

	if (random != forward)
		umadvise(region->stored, region->stored_len,
			 random ? UMMAP_ADV_RANDOM : UMMAP_ADV_SEQUENTIAL);
}

/* Sets the error of a file that could not be mapped. */
static void set_map_error(const struct hints *h, struct error *e)
{
	if (errno == EBUSY)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot map '%.60s': it is in use, perhaps by another window. Try "
			  "another storage_alloc_offset or file (%s)",
			  h->filename, umerrormsg());
	else
		error_errno(e, errno, "cannot map '%s': %s", h->filename, umerrormsg());
}

/* Maps the part in storage, with addresses for the part in memory beside it. */
static void map_storage(struct region *region, size_t budget, struct error *e)
{
	struct hints *h = &region->hints;
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	bool file = !region->store && is_file_driver(h->driver);
	char path[FD_PATH_BYTES];
	struct source from = { region->store, file ? path : h->filename };
	void *base;
	int fd = -1;

	if (file && (fd = open_file(region, e)) < 0)
		return;
	/* The file that was opened, whichever file has the name by now. */
	fd_path(path, fd);
	attr.seg_size = h->segsize;
	attr.flush_interval = h->syncfreq;
	attr.policy = *h->policy ? h->policy : NULL;
	attr.tiers = *h->tiers ? h->tiers : NULL;
	attr.flags = UMMAP_CREATE | (h->writers ? UMMAP_WRITERS : 0);
	attr.budget = budget;
	attr.on_full = h->on_full;
	attr.before = region->stored_from;
	attr.after = whole_pages(memory_behind(region));
	if (h->node_cache) {
		attr.flags = UMMAP_NODE;
		h->engine = ENGINE_SIGBUS;
	}
	h->engine = engine_choose(h->engine, is_for_others(h), &attr);
	if (!map_shared(region, &from, &attr, &base) && map_source(region, &from, &attr, &base) < 0)
		set_map_error(h, e);
	else
		region->stored = base;
	if (fd < 0 && region->stored && hints_by(h, "mpiio"))
		note_mpiio_file(region);
	if (fd >= 0)
		close(fd);
}

/* ---- Memory ---- */

/* A file in memory, which other processes can map; -1: none. */
static int make_object(size_t size)
{
	int fd = memfd_create("window", MFD_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, (off_t)size) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Maps `size` bytes of memory as the bytes of the window from `from` on. at: their address; NULL:
 * any. */
static char *put_memory(struct region *region, char *at, size_t from, size_t size, struct error *e)
{
	int fd = region->hints.local ? make_object(size) : -1, fixed = at ? MAP_FIXED : 0;
	int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	void *p = hooked_mmap(at, size, PROT_READ | PROT_WRITE, flags | fixed, fd, 0);

	region->object = (struct object){ .fd = fd, .from = from, .len = size };
	if (p != MAP_FAILED)
		return p;
	error_errno(e, errno, "cannot allocate %zu bytes of a window: %m", size);
	return NULL;
}

/* Maps the file by mmap(2), and keeps its descriptor for other processes. */
static void build_kernel(struct region *region, struct error *e)
{
	const struct hints *h = &region->hints;
	int fd;

	kernel_check(h, e);
	fd = e->class == MPI_SUCCESS ? open_file(region, e) : -1;
	if (fd < 0)
		return;
	kernel_make_room(fd, h->filename, h->offset + region->size, e);
	if (e->class == MPI_SUCCESS)
		region->base = region->stored = kernel_map(fd, h, region->size, e);
	region->kernel = region->base;
	if (region->kernel)
		transport_check_base(region->base, e);
	region->stored_len = region->size;
	region->object = (struct object){ .fd = fd, .at = h->offset, .len = region->size };
}

/* Lowers the segment size as ummap(3) does. */
static void fit_segsize(struct hints *h, size_t size)
{
	while (h->segsize / 2 >= size && h->segsize > page())
		h->segsize /= 2;
}

static void build(struct region *region, struct error *e)
{
	struct hints *h = &region->hints;
	size_t memory, rest;

	if (!h->segsize)
		h->segsize = default_segsize(region);
	fit_segsize(h, region->size);
	memory = memory_size(region, &rest, e);
	if (e->class != MPI_SUCCESS)
		return;
	region->stored_len = region->size - memory;
	region->stored_from = h->storage_first && region->stored_len ? 0 : memory;
	h->factor = (double)memory / (double)region->size;
	if (!region->stored_len) {
		region->base = put_memory(region, NULL, 0, region->size, e);
		return;
	}
	fit_segsize(h, region->stored_len);
	map_storage(region, memory ? rest : 0, e);
	if (!region->stored)
		return;
	region->base = region->stored - region->stored_from;
	if (region->stored_from)
		put_memory(region, region->base, 0, region->stored_from, e);
	if (memory_behind(region))
		put_memory(region, region->stored + region->stored_len, region->stored_len,
			   memory_behind(region), e);
	advise(region);
}

/* Adds window memory to the list, and checks that no other window of this process has bytes of the
 * file in common with it: each would write its own version of them. With storage_alloc_writers the
 * memory has no extent, and the library's locks keep other mappings from the bytes. Nor has a
 * read-only window. */
static void add_to_list(struct region *region, struct error *e)
{
	if (region->hints.writers || region->hints.node_cache)
		region->extent = (struct extent){ .to = 0 };
	pthread_mutex_lock(&lock);
	for (const struct region *a = regions; a; a = a->next) {
		if (extent_overlaps(&a->extent, &region->extent))
			error_set(e, MPI_ERR_INFO_VALUE,
				  "cannot map bytes %llu to %llu of '%.80s': another window has "
				  "some of them. Try another storage_alloc_offset or file",
				  (unsigned long long)region->extent.from,
				  (unsigned long long)region->extent.to - 1,
				  region->hints.filename);
	}
	region->next = regions;
	regions = region;
	pthread_mutex_unlock(&lock);
}

static void remove_from_list(struct region *region)
{
	struct region **at = &regions;

	pthread_mutex_lock(&lock);
	while (*at && *at != region)
		at = &(*at)->next;
	if (*at)
		*at = region->next;
	pthread_mutex_unlock(&lock);
}

/* ---- Calls ---- */

struct region *region_open(size_t size, const struct hints *hints,
			   const struct region_store *store, struct error *e)
{
	struct region *region = calloc(1, sizeof(*region));

	if (region) {
		region->size = size;
		region->hints = *hints;
		region->store = store;
		region->object.fd = -1;
		if (size && hints->type == TYPE_STORAGE && hints->engine == ENGINE_KERNEL)
			build_kernel(region, e);
		else if (size)
			build(region, e);
		add_to_list(region, e);
		/* From now on the mapping has the handle. */
		region->completes = store && store->completes;
		region->store = NULL;
	} else {
		error_errno(e, ENOMEM, "cannot allocate a window: %m");
	}
	if (store && !(region && region->stored))
		store->driver.close(store->handle);
	if (e->class == MPI_SUCCESS)
		return region;
	if (region)
		region_abandon(region);
	return NULL;
}

void region_wait_sync(struct region *region, struct error *e)
{
	if (region->commit && umsync_wait(&region->commit) < 0)
		error_errno(e, errno, "cannot sync '%s': %s", region->hints.filename, umerrormsg());
}

void region_begin_sync(struct region *region, struct error *e)
{
	if (region->kernel) {
		region_sync(region, region->base, region->size, e);
		return;
	}
	region_wait_sync(region, e);
	if (e->class == MPI_SUCCESS && region->stored_len &&
	    umsync_begin(region->stored, 0, &region->commit) < 0)
		error_errno(e, errno, "cannot sync '%s': %s", region->hints.filename, umerrormsg());
}

void region_sync(struct region *region, const void *addr, size_t len, struct error *e)
{
	const char *from = addr, *to = from + len,
		   *stored_end = region->stored + region->stored_len;
	void *begin;

	/* A commit of one rank would be newer than the moment of all ranks. */
	if (region->consistent) {
		error_set(e, MPI_ERR_ARG,
			  "cannot make a part of '%s' durable alone: it has "
			  "storage_alloc_consistent. Try ummpi_sync_all(3)",
			  region->hints.filename);
		return;
	}
	region_wait_sync(region, e);
	from = from < region->stored ? region->stored : from;
	to = to > stored_end ? stored_end : to;
	begin = (void *)(uintptr_t)from;
	if (region->kernel && from < to)
		kernel_sync(begin, (size_t)(to - from), &region->hints, e);
	else if (region->stored_len && from < to && umsync_range(begin, (size_t)(to - from), 0) < 0)
		error_errno(e, errno, "cannot sync '%s': %s", region->hints.filename, umerrormsg());
}

void region_close_object(struct region *region)
{
	if (region->object.fd >= 0)
		close(region->object.fd);
	region->object.fd = -1;
}

static int unmap_stored(const struct region *region)
{
	int err = region->completes && umunmap(region->stored, 1) < 0 ? errno : 0;

	/* After EUCLEAN the mapping has ended. */
	if (!region->completes || (err && err != EUCLEAN))
		umunmap(region->stored, 0);
	return err;
}

static int unmap(const struct region *region)
{
	int err = region->stored_len ? unmap_stored(region) : 0;

	if (region->stored_from)
		hooked_munmap(region->base, region->stored_from);
	if (memory_behind(region))
		hooked_munmap(region->stored + region->stored_len, memory_behind(region));
	return err;
}

int region_close(struct region *region)
{
	int err = region->commit && umsync_wait(&region->commit) < 0 ? errno : 0, unmapped = 0;

	remove_from_list(region);
	region_close_object(region);
	if (region->kernel)
		kernel_unmap(region->base, region->size, &region->hints);
	else if (region->base)
		unmapped = unmap(region);
	if (region->path)
		unlink(region->path);
	free(region->path);
	free(region->consistent);
	free(region);
	return unmapped ? unmapped : err;
}

void region_abandon(struct region *region)
{
	free(region->path);
	region->path = NULL;
	region_close(region);
}

struct region *region_find(const void *addr)
{
	struct region *found = NULL;

	pthread_mutex_lock(&lock);
	for (struct region *a = regions; a && !found; a = a->next) {
		if ((const char *)addr >= a->base && (const char *)addr < a->base + a->size)
			found = a;
	}
	pthread_mutex_unlock(&lock);
	return found;
}
