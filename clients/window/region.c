/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A region is a mapping of what is in storage, and memory of the kernel's right before or right behind it for what is to
 * be memory. Byte i of the window is byte offset + i of the file, however large the part in memory is: a later run may
 * take another factor. Knows MPI's words for errors, but makes no calls. Lock: around the list.
 */
#include "window/region.h"

#include "common/memory_calls.h"
#include "common/size.h"
#include "transport/engine.h"
#include "window/consistent.h"
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

/* What UMMAP_SEG_SIZE leaves open. */
#define SEGSIZE ((uint64_t)2 << 20)
/* A window that is part memory has so many segments, for the border between the parts falls on one. */
#define COMBINED_SEGMENTS 64
/* With the factor "auto", what does not fit leaves this part of the budget to the segments of the rest. */
#define AUTO_PART 4

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

/* What is memory behind the part in storage. */
static size_t memory_behind(const struct region *region)
{
	return region->size - region->stored_from - region->stored_len;
}

static uint64_t default_segsize(const struct region *region)
{
	const char *env = secure_getenv("UMMAP_SEG_SIZE");
	uint64_t size = SEGSIZE;

	/* A bad one is for the mapping to refuse. */
	if (env && *env && size_parse(env, &size) < 0)
		return 0;
	if (region->hints.factor != 0) {
		while (size > page() && size > region->size / COMBINED_SEGMENTS)
			size /= 2;
	}
	return size;
}

/* What the process may still hold, regions' memory taken off. 0 with an error: not even one mapping can be made. */
static size_t free_budget(struct error *e)
{
	struct umstat st = { .struct_size = sizeof(st) };
	size_t taken = 0;
	void *probe;

	/* The budget is known from the first mapping on. */
	if (ummap_open("null:4096", page(), 0, PROT_READ, NULL, &probe) < 0 || umunmap(probe, 0) < 0 ||
	    umstat(NULL, &st) < 0) {
		error_errno(e, errno, "%s", umerrormsg());
		return 0;
	}
	pthread_mutex_lock(&lock);
	for (const struct region *a = regions; a; a = a->next)
		taken += a->size - a->stored_len;
	pthread_mutex_unlock(&lock);
	return st.budget_bytes > taken ? st.budget_bytes - taken : 0;
}

/* Bytes that are to be memory, in whole segments unless it is all; with "auto", *rest is what the others may hold. */
static size_t memory_size(const struct region *region, size_t *rest, struct error *e)
{
	const struct hints *h = &region->hints;
	size_t memory = (size_t)(h->factor * (double)region->size), budget;

	*rest = 0;
	if (h->type != TYPE_STORAGE)
		return region->size;
	if (h->factor == FACTOR_AUTO) {
		budget = free_budget(e);
		*rest = budget / AUTO_PART;
		memory = budget < region->size ? budget - *rest : region->size;
	}
	if (memory >= region->size || h->segsize == 0)
		return memory >= region->size ? region->size : 0;
	/* The border is one of segments, from where the window begins. */
	if (h->storage_first) {
		size_t stored = (region->size - memory + h->segsize - 1) & ~(h->segsize - 1);

		return stored < region->size ? region->size - stored : 0;
	}
	return memory & ~(h->segsize - 1);
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

/* Of the driver mpiio, if the file is one of this machine's by the same name. Stripes have bytes in common with none of their
 * own kind. */
static void know_file(struct region *region)
{
	const struct hints *h = &region->hints;
	int fd = open(h->filename, O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && !h->stripe)
		extent_file(&region->extent, fd, h->offset, region->size);
	if (fd >= 0 && h->unlink)
		region->path = realpath(h->filename, NULL);
	if (fd >= 0)
		close(fd);
}

static int open_file(struct region *region, struct error *e)
{
	const struct hints *h = &region->hints;
	int flags = h->nameless ? O_TMPFILE : O_CREAT;
	int fd = open(h->filename, flags | O_RDWR | O_CLOEXEC, h->perm);

	if (fd < 0) {
		error_errno(e, errno, "cannot open '%s' for reading and writing: %s", h->filename,
			    strerror(errno));
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

/* "scheme:?keys" and a path make "scheme:path?keys"; what has a meaning in URIs is encoded. */
void region_uri(char *uri, size_t room, const char *driver, const char *path)
{
	const char *keys = strchr(driver, ':');
	size_t schemes = keys ? (size_t)(keys - driver) : strlen(driver);
	int len = snprintf(uri, room, "%.*s:", (int)schemes, driver);

	for (; *path && (size_t)len + 4 < room; path++)
		len += snprintf(uri + len, room - (size_t)len, strchr("%{?", *path) ? "%%%02X" : "%c", *path);
	snprintf(uri + len, room - (size_t)len, "%s", keys ? keys + 1 : "");
}

/* What the driver mpiio is to know beside the path. */
static void add_share(char *uri, size_t room, const struct hints *h)
{
	size_t len = strlen(uri);
	const char *mark = strchr(uri, '?') ? "&" : "?";

	if (h->stripe) {
		len += (size_t)snprintf(uri + len, room - len, "%sstripe=%llu&rank=%d&ranks=%d&offset=%llu", mark,
					(unsigned long long)h->stripe, h->rank, h->ranks, (unsigned long long)h->offset);
		mark = "&";
	}
	if (*h->passed)
		len += (size_t)snprintf(uri + len, room - len, "%shints=", mark);
	for (const char *s = h->passed; *s; s++)
		len += (size_t)snprintf(uri + len, room - len, strchr("%{&", *s) ? "%%%02X" : "%c", *s);
}

static int map_uri(const struct region *region, const char *driver, const char *path, const struct ummap_attr *attr,
		   void **base)
{
	const struct hints *h = &region->hints;
	off_t offset = (off_t)((h->stripe ? 0 : h->offset) + region->stored_from);
	char uri[20 * HINT_TEXT], logged[4 * HINT_TEXT];

	if (h->consistent)
		region_log_driver(logged, sizeof(logged), driver, "");
	region_uri(uri, sizeof(uri), h->consistent ? logged : driver, path);
	if (hints_by_mpiio(h))
		add_share(uri, sizeof(uri), h);
	return ummpi_open(uri, region->stored_len, offset, PROT_READ | PROT_WRITE, attr, base);
}

/* By the driver that was asked for, else as ummap(3) chooses among those of files. */
static int map_path(struct region *region, const char *path, const struct ummap_attr *attr, void **base)
{
	struct hints *h = &region->hints;
	const char *env = secure_getenv("UMMAP_DRIVER");

	if (!*h->driver && env)
		snprintf(h->driver, sizeof(h->driver), "%s", env);
	if (*h->driver)
		return map_uri(region, h->driver, path, attr, base);
	strcpy(h->driver, "uring");
	if (map_uri(region, h->driver, path, attr, base) == 0)
		return 0;
	if (errno != EOPNOTSUPP)
		return -1;
	strcpy(h->driver, "posix");
	return map_uri(region, h->driver, path, attr, base);
}

static bool is_for_others(const struct hints *h)
{
	return h->local && h->ranks > 1;
}

/* So that others can reach what is paged: only with this engine, and not where the store is mapped in place. */
static bool map_shared(struct region *region, const char *path, const struct ummap_attr *attr, void **base)
{
	const struct hints *h = &region->hints;
	struct ummap_attr shared = *attr;

	shared.flags |= UMMAP_SHARED;
	region->shared = is_for_others(h) && h->engine == ENGINE_SEGV && map_path(region, path, &shared, base) == 0;
	return region->shared;
}

static void advise(const struct region *region)
{
	const char *style = region->hints.access_style;
	bool random = strstr(style, "random"), forward = strstr(style, "sequential") && !strstr(style, "reverse_sequential");

	if (random != forward)
		umadvise(region->stored, region->stored_len, random ? UMMAP_ADV_RANDOM : UMMAP_ADV_SEQUENTIAL);
}

/* Sets the error of a file that could not be mapped. */
static void explain(const struct hints *h, struct error *e)
{
	if (errno == EBUSY)
		error_set(e, MPI_ERR_INFO_VALUE,
			  "cannot map '%.60s': it is in use, perhaps by another window. Try "
			  "another storage_alloc_offset or file (%s)",
			  h->filename, umerrormsg());
	else
		error_errno(e, errno, "cannot map '%s': %s", h->filename, umerrormsg());
}

/* With addresses for the part in memory beside it, as many as it takes. */
static void map_storage(struct region *region, size_t budget, struct error *e)
{
	struct hints *h = &region->hints;
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	bool file = is_file_driver(h->driver);
	char path[32];
	void *base;
	int fd = -1;

	if (file && (fd = open_file(region, e)) < 0)
		return;
	/* The very file that was opened, whatever its name leads to by now. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	attr.seg_size = h->segsize;
	attr.flush_interval = h->syncfreq;
	attr.policy = *h->policy ? h->policy : NULL;
	attr.flags = UMMAP_CREATE | (h->writers ? UMMAP_WRITERS : 0);
	attr.budget = budget;
	attr.on_full = h->on_full;
	attr.before = region->stored_from;
	attr.after = whole_pages(memory_behind(region));
	h->engine = engine_choose(h->engine, is_for_others(h), &attr);
	if (!map_shared(region, file ? path : h->filename, &attr, &base) &&
	    map_path(region, file ? path : h->filename, &attr, &base) < 0)
		explain(h, e);
	else
		region->stored = base;
	if (fd < 0 && region->stored && hints_by_mpiio(h))
		know_file(region);
	if (fd >= 0)
		close(fd);
}

/* ---- Areas ---- */

/* That others can map it as well; -1: they cannot. */
static int memory_object(size_t size)
{
	int fd = memfd_create("window", MFD_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, (off_t)size) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* From byte `from` of the region on; at NULL: anywhere. */
static char *put_memory(struct region *region, char *at, size_t from, size_t size, struct error *e)
{
	int fd = region->hints.local ? memory_object(size) : -1, fixed = at ? MAP_FIXED : 0;
	void *p = hooked_mmap(at, size, PROT_READ | PROT_WRITE, fd >= 0 ? MAP_SHARED | fixed : MAP_PRIVATE | MAP_ANONYMOUS | fixed,
		       fd, 0);

	region->object = (struct object){ .fd = fd, .from = from, .len = size };
	if (p != MAP_FAILED)
		return p;
	error_errno(e, errno, "cannot allocate %zu bytes of a window: %s", size, strerror(errno));
	return NULL;
}

/* Its descriptor is kept for the others. */
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

/* As ummap(3) does. */
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
		put_memory(region, region->stored + region->stored_len, region->stored_len, memory_behind(region), e);
	advise(region);
}

/* One file may have several regions of a process, but no byte of it two: each would write its own. Those that say that others
 * write, too, have no extent; the library's locks keep them from the rest. */
static void enter(struct region *region, struct error *e)
{
	if (region->hints.writers)
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

static void leave(struct region *region)
{
	struct region **at = &regions;

	pthread_mutex_lock(&lock);
	while (*at && *at != region)
		at = &(*at)->next;
	if (*at)
		*at = region->next;
	pthread_mutex_unlock(&lock);
}

struct region *region_open(size_t size, const struct hints *hints, struct error *e)
{
	struct region *region = calloc(1, sizeof(*region));

	if (!region) {
		error_errno(e, ENOMEM, "cannot allocate a window: %s", strerror(ENOMEM));
		return NULL;
	}
	region->size = size;
	region->hints = *hints;
	region->object.fd = -1;
	if (size && hints->type == TYPE_STORAGE && hints->engine == ENGINE_KERNEL)
		build_kernel(region, e);
	else if (size)
		build(region, e);
	enter(region, e);
	if (e->class == MPI_SUCCESS)
		return region;
	region_abandon(region);
	return NULL;
}

void region_sync(const struct region *region, const void *addr, size_t len, struct error *e)
{
	const char *from = addr, *to = from + len, *stored_end = region->stored + region->stored_len;

	/* A commit of one rank would be newer than the moment of all ranks. */
	if (region->consistent) {
		error_set(e, MPI_ERR_ARG,
			  "cannot make a part of '%s' durable alone: it has "
			  "storage_alloc_consistent. Try ummpi_sync_all(3)",
			  region->hints.filename);
		return;
	}
	from = from < region->stored ? region->stored : from;
	to = to > stored_end ? stored_end : to;
	if (region->kernel && from < to)
		kernel_sync((char *)(uintptr_t)from, (size_t)(to - from), &region->hints, e);
	else if (region->stored_len && from < to && umsync_range((void *)(uintptr_t)from, (size_t)(to - from), 0) < 0)
		error_errno(e, errno, "cannot sync '%s': %s", region->hints.filename, umerrormsg());
}

void region_close_object(struct region *region)
{
	if (region->object.fd >= 0)
		close(region->object.fd);
	region->object.fd = -1;
}

static _Thread_local int ended_with;

int region_ended_with(void)
{
	return ended_with;
}

/* A cache that could not write back all says so only to who asks for a sync with it: for shares of files (file/part.c) that is so,
 * and what is to be discarded of them is durable before. */
static void unmap_stored(const struct region *region)
{
	bool asks = strstr(region->hints.driver, "filepart:");

	ended_with = asks && umunmap(region->stored, 1) < 0 ? errno : 0;
	if (!asks || (ended_with && ended_with != EUCLEAN))
		umunmap(region->stored, 0);
}

static void unmap(const struct region *region)
{
	if (region->stored_len)
		unmap_stored(region);
	if (region->stored_from)
		hooked_munmap(region->base, region->stored_from);
	if (memory_behind(region))
		hooked_munmap(region->stored + region->stored_len, memory_behind(region));
}

void region_close(struct region *region)
{
	leave(region);
	region_close_object(region);
	if (region->kernel)
		kernel_unmap(region->base, region->size, &region->hints);
	else if (region->base)
		unmap(region);
	if (region->path)
		unlink(region->path);
	free(region->path);
	free(region->consistent);
	free(region);
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
