/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An area is a mapping of what is in storage, and memory of the kernel's right before or right behind it for what is to
 * be memory. Byte i of the window is byte offset + i of the file, however large the part in memory is: a later run may
 * take another factor. Knows MPI's words for errors, but makes no calls. Lock: around the list.
 */
#include "window/region.h"

#include "transport/engine.h"
#include "window/kernel.h"

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
static struct area *areas;

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
static size_t memory_behind(const struct area *area)
{
	return area->size - area->stored_from - area->stored_len;
}

static uint64_t default_segsize(const struct area *area)
{
	const char *env = secure_getenv("UMMAP_SEG_SIZE");
	uint64_t size = SEGSIZE;

	/* A bad one is for the mapping to refuse. */
	if (env && *env && !hints_bytes(env, &size))
		return 0;
	if (area->hints.factor != 0) {
		while (size > page() && size > area->size / COMBINED_SEGMENTS)
			size /= 2;
	}
	return size;
}

/* What the process may still hold, areas' memory taken off. 0 with trouble: not even one mapping can be made. */
static size_t free_budget(struct trouble *t)
{
	struct umstat st = { .struct_size = sizeof(st) };
	size_t taken = 0;
	void *probe;

	/* The budget is known from the first mapping on. */
	if (ummap_open("null:4096", page(), 0, PROT_READ, NULL, &probe) < 0 || umunmap(probe, 0) < 0 ||
	    umstat(NULL, &st) < 0) {
		trouble_errno(t, errno, "%s", umerrormsg());
		return 0;
	}
	pthread_mutex_lock(&lock);
	for (const struct area *a = areas; a; a = a->next)
		taken += a->size - a->stored_len;
	pthread_mutex_unlock(&lock);
	return st.budget_bytes > taken ? st.budget_bytes - taken : 0;
}

/* Bytes that are to be memory, in whole segments unless it is all; with "auto", *rest is what the others may hold. */
static size_t memory_size(const struct area *area, size_t *rest, struct trouble *t)
{
	const struct hints *h = &area->hints;
	size_t memory = (size_t)(h->factor * (double)area->size), budget;

	*rest = 0;
	if (h->type != TYPE_STORAGE)
		return area->size;
	if (h->factor == FACTOR_AUTO) {
		budget = free_budget(t);
		*rest = budget / AUTO_PART;
		memory = budget < area->size ? budget - *rest : area->size;
	}
	if (memory >= area->size || h->segsize == 0)
		return memory >= area->size ? area->size : 0;
	/* The border is one of segments, from where the window begins. */
	if (h->storage_first) {
		size_t stored = (area->size - memory + h->segsize - 1) & ~(h->segsize - 1);

		return stored < area->size ? area->size - stored : 0;
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
static void know_file(struct area *area)
{
	const struct hints *h = &area->hints;
	int fd = open(h->filename, O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && !h->stripe)
		claim_file(&area->claim, fd, h->offset, area->size);
	if (fd >= 0 && h->unlink)
		area->path = realpath(h->filename, NULL);
	if (fd >= 0)
		close(fd);
}

static int open_file(struct area *area, struct trouble *t)
{
	const struct hints *h = &area->hints;
	int flags = h->nameless ? O_TMPFILE : O_CREAT;
	int fd = open(h->filename, flags | O_RDWR | O_CLOEXEC, h->perm);

	if (fd < 0) {
		trouble_errno(t, errno, "%s cannot be opened for reading and writing: %s", h->filename, strerror(errno));
		return -1;
	}
	claim_file(&area->claim, fd, h->offset, area->size);
	if (h->unlink && !h->nameless && area->claim.ino)
		area->path = realpath(h->filename, NULL);
	return fd;
}

/* "scheme:?keys" and a path make "scheme:path?keys"; what has a meaning in URIs is encoded. */
static void make_uri(char *uri, size_t room, const char *driver, const char *path)
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

static int map_uri(const struct area *area, const char *driver, const char *path, const struct ummap_attr *attr,
		   void **base)
{
	const struct hints *h = &area->hints;
	off_t offset = (off_t)((h->stripe ? 0 : h->offset) + area->stored_from);
	char uri[20 * HINT_TEXT];

	make_uri(uri, sizeof(uri), driver, path);
	if (hints_by_mpiio(h))
		add_share(uri, sizeof(uri), h);
	return ummpi_open(uri, area->stored_len, offset, PROT_READ | PROT_WRITE, attr, base);
}

/* By the driver that was asked for, else as ummap(3) chooses among those of files. */
static int map_path(struct area *area, const char *path, const struct ummap_attr *attr, void **base)
{
	struct hints *h = &area->hints;
	const char *env = secure_getenv("UMMAP_DRIVER");

	if (!*h->driver && env)
		snprintf(h->driver, sizeof(h->driver), "%s", env);
	if (*h->driver)
		return map_uri(area, h->driver, path, attr, base);
	strcpy(h->driver, "uring");
	if (map_uri(area, h->driver, path, attr, base) == 0)
		return 0;
	if (errno != EOPNOTSUPP)
		return -1;
	strcpy(h->driver, "posix");
	return map_uri(area, h->driver, path, attr, base);
}

/* So that others can reach what is paged: only with this engine, and not where the store is mapped in place. */
static bool map_shared(struct area *area, const char *path, const struct ummap_attr *attr, void **base)
{
	const struct hints *h = &area->hints;
	struct ummap_attr shared = *attr;

	shared.flags |= UMMAP_SHARED;
	area->shared = h->local && h->ranks > 1 && h->engine == HINT_SEGV && map_path(area, path, &shared, base) == 0;
	return area->shared;
}

static void advise(const struct area *area)
{
	const char *style = area->hints.access_style;
	bool random = strstr(style, "random"), forward = strstr(style, "sequential") && !strstr(style, "reverse_sequential");

	if (random != forward)
		umadvise(area->stored, area->stored_len, random ? UMMAP_ADV_RANDOM : UMMAP_ADV_SEQUENTIAL);
}

/* Why it could not be mapped. */
static void explain(const struct hints *h, struct trouble *t)
{
	if (errno == EBUSY)
		trouble_set(t, MPI_ERR_INFO_VALUE, "%s: it is another window's already: take another storage_alloc_offset or file (%s)",
			    h->filename, umerrormsg());
	else
		trouble_errno(t, errno, "%s: %s", h->filename, umerrormsg());
}

/* With addresses for the part in memory beside it, as many as it takes. */
static void map_storage(struct area *area, size_t budget, struct trouble *t)
{
	struct hints *h = &area->hints;
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	bool file = is_file_driver(h->driver);
	char path[32];
	void *base;
	int fd = -1;

	if (file && (fd = open_file(area, t)) < 0)
		return;
	/* The very file that was opened, whatever its name leads to by now. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	attr.seg_size = h->segsize;
	attr.flush_interval = h->syncfreq;
	attr.policy = *h->policy ? h->policy : NULL;
	attr.flags = UMMAP_CREATE | (h->writers ? UMMAP_WRITERS : 0);
	attr.budget = budget;
	attr.before = area->stored_from;
	attr.after = whole_pages(memory_behind(area));
	engine_choose(h, &attr);
	if (!map_shared(area, file ? path : h->filename, &attr, &base) &&
	    map_path(area, file ? path : h->filename, &attr, &base) < 0)
		explain(h, t);
	else
		area->stored = base;
	if (fd < 0 && area->stored && hints_by_mpiio(h))
		know_file(area);
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

/* From byte `from` of the area on; at NULL: anywhere. */
static char *put_memory(struct area *area, char *at, size_t from, size_t size, struct trouble *t)
{
	int fd = area->hints.local ? memory_object(size) : -1, fixed = at ? MAP_FIXED : 0;
	void *p = mmap(at, size, PROT_READ | PROT_WRITE, fd >= 0 ? MAP_SHARED | fixed : MAP_PRIVATE | MAP_ANONYMOUS | fixed,
		       fd, 0);

	area->object = (struct object){ .fd = fd, .from = from, .len = size };
	if (p != MAP_FAILED)
		return p;
	trouble_errno(t, errno, "there is no memory for %zu bytes of a window", size);
	return NULL;
}

/* Its descriptor is kept for the others. */
static void build_kernel(struct area *area, struct trouble *t)
{
	const struct hints *h = &area->hints;
	int fd;

	kernel_check(h, t);
	fd = t->class == MPI_SUCCESS ? open_file(area, t) : -1;
	if (fd < 0)
		return;
	kernel_make_room(fd, h->offset + area->size, t);
	if (t->class == MPI_SUCCESS)
		area->base = area->stored = kernel_map(fd, h, area->size, t);
	area->kernel = area->base;
	if (area->kernel)
		transport_check_base(area->base, t);
	area->stored_len = area->size;
	area->object = (struct object){ .fd = fd, .at = h->offset, .len = area->size };
}

/* As ummap(3) does. */
static void fit_segsize(struct hints *h, size_t size)
{
	while (h->segsize / 2 >= size && h->segsize > page())
		h->segsize /= 2;
}

static void build(struct area *area, struct trouble *t)
{
	struct hints *h = &area->hints;
	size_t memory, rest;

	if (!h->segsize)
		h->segsize = default_segsize(area);
	fit_segsize(h, area->size);
	memory = memory_size(area, &rest, t);
	if (t->class != MPI_SUCCESS)
		return;
	area->stored_len = area->size - memory;
	area->stored_from = h->storage_first && area->stored_len ? 0 : memory;
	h->factor = (double)memory / (double)area->size;
	if (!area->stored_len) {
		area->base = put_memory(area, NULL, 0, area->size, t);
		return;
	}
	fit_segsize(h, area->stored_len);
	map_storage(area, memory ? rest : 0, t);
	if (!area->stored)
		return;
	area->base = area->stored - area->stored_from;
	if (area->stored_from)
		put_memory(area, area->base, 0, area->stored_from, t);
	if (memory_behind(area))
		put_memory(area, area->stored + area->stored_len, area->stored_len, memory_behind(area), t);
	advise(area);
}

/* One file may have several areas of a process, but no byte of it two: each would write its own. Those that say that others
 * write, too, have no claim; the library's locks keep them from the rest. */
static void enter(struct area *area, struct trouble *t)
{
	if (area->hints.writers)
		area->claim = (struct claim){ .to = 0 };
	pthread_mutex_lock(&lock);
	for (const struct area *a = areas; a; a = a->next) {
		if (claim_overlaps(&a->claim, &area->claim))
			trouble_set(t, MPI_ERR_INFO_VALUE, "%s: bytes %llu to %llu of it are in another window already: "
				    "take another storage_alloc_offset or file", area->hints.filename,
				    (unsigned long long)area->claim.from, (unsigned long long)area->claim.to - 1);
	}
	area->next = areas;
	areas = area;
	pthread_mutex_unlock(&lock);
}

static void leave(struct area *area)
{
	struct area **at = &areas;

	pthread_mutex_lock(&lock);
	while (*at && *at != area)
		at = &(*at)->next;
	if (*at)
		*at = area->next;
	pthread_mutex_unlock(&lock);
}

struct area *area_open(size_t size, const struct hints *hints, struct trouble *t)
{
	struct area *area = calloc(1, sizeof(*area));

	if (!area) {
		trouble_errno(t, ENOMEM, "there is no memory for a window");
		return NULL;
	}
	area->size = size;
	area->hints = *hints;
	area->object.fd = -1;
	if (size && hints->type == TYPE_STORAGE && hints->engine == HINT_KERNEL)
		build_kernel(area, t);
	else if (size)
		build(area, t);
	enter(area, t);
	if (t->class == MPI_SUCCESS)
		return area;
	area_abandon(area);
	return NULL;
}

void area_sync(const struct area *area, const void *addr, size_t len, struct trouble *t)
{
	const char *from = addr, *to = from + len, *stored_end = area->stored + area->stored_len;

	from = from < area->stored ? area->stored : from;
	to = to > stored_end ? stored_end : to;
	if (area->kernel && from < to)
		kernel_sync((char *)(uintptr_t)from, (size_t)(to - from), &area->hints, t);
	else if (area->stored_len && from < to && umsync_range((void *)(uintptr_t)from, (size_t)(to - from), 0) < 0)
		trouble_errno(t, errno, "%s: %s", area->hints.filename, umerrormsg());
}

void area_close_object(struct area *area)
{
	if (area->object.fd >= 0)
		close(area->object.fd);
	area->object.fd = -1;
}

static void unmap(const struct area *area)
{
	if (area->stored_len)
		umunmap(area->stored, 0);
	if (area->stored_from)
		munmap(area->base, area->stored_from);
	if (memory_behind(area))
		munmap(area->stored + area->stored_len, memory_behind(area));
}

void area_close(struct area *area)
{
	leave(area);
	area_close_object(area);
	if (area->kernel)
		kernel_unmap(area->base, area->size, &area->hints);
	else if (area->base)
		unmap(area);
	if (area->path)
		unlink(area->path);
	free(area->path);
	free(area);
}

void area_abandon(struct area *area)
{
	free(area->path);
	area->path = NULL;
	area_close(area);
}

struct area *area_find(const void *addr)
{
	struct area *found = NULL;

	pthread_mutex_lock(&lock);
	for (struct area *a = areas; a && !found; a = a->next) {
		if ((const char *)addr >= a->base && (const char *)addr < a->base + a->size)
			found = a;
	}
	pthread_mutex_unlock(&lock);
	return found;
}
