/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Heaps come and go. The library is started before jemalloc is: around fork(2) both hold their locks, those of jemalloc first,
 * under which the hooks call the library. `lock` is for the list of heaps, by which a forked child finds them.
 */
#include "umalloc/heap.h"

#include "common/memory_calls.h"
#include "umalloc/error.h"
#include "umalloc/extent.h"
#include "umalloc/store.h"
#include "umalloc/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <umalloc.h>

#define SEG_SIZE ((size_t)256 << 10)

/* For arenas that are made below. Free extents are kept for a second. */
const char *malloc_conf = "dirty_decay_ms:1000,muzzy_decay_ms:0,narenas:1,retain:true";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct umalloc_heap *heaps;
static pthread_once_t watching = PTHREAD_ONCE_INIT;

/* jemalloc asks for $MALLOC_CONF and /etc/malloc.conf, which are for the program's own (rules.mk). */
char *umalloc_je_getenv(const char *name);
char *umalloc_je_getenv(const char *name)
{
	(void)name;
	return NULL;
}

ssize_t umalloc_je_readlink(const char *path, char *to, size_t room);
ssize_t umalloc_je_readlink(const char *path, char *to, size_t room)
{
	(void)path, (void)to, (void)room;
	errno = ENOENT;
	return -1;
}

/* ---- Fork. ---- */

static void in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	thread_forget_all();
	/* Each is linked by one store, so the list is whole. */
	for (struct umalloc_heap *heap = heaps; heap; heap = heap->next) {
		heap->forked = true;
		heap->bindings = NULL;
		pthread_mutex_init(&heap->lock, NULL);
		pthread_mutex_init(&heap->making, NULL);
	}
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

static void list(struct umalloc_heap *heap)
{
	pthread_mutex_lock(&lock);
	heap->next = heaps;
	atomic_signal_fence(memory_order_seq_cst);
	heaps = heap;
	pthread_mutex_unlock(&lock);
}

static void unlist(struct umalloc_heap *heap)
{
	struct umalloc_heap **at = &heaps;

	pthread_mutex_lock(&lock);
	while (*at != heap)
		at = &(*at)->next;
	*at = heap->next;
	pthread_mutex_unlock(&lock);
}

/* ---- Arenas. ---- */

/* As jemalloc has it, whose header does not: its own data are not in extents of the hooks. */
struct arena_config {
	extent_hooks_t *hooks;
	bool metadata_use_hooks;
};

static int make_arena(struct umalloc_heap *heap, unsigned k)
{
	struct arena_config config = { &heap->hooks, false };
	size_t len = sizeof(unsigned);
	unsigned arena;
	int err;

	err = mallctl("experimental.arenas_create_ext", &arena, &len, &config, sizeof(config));
	if (err == EAGAIN)
		return heap_fail(ENOMEM, "cannot create an arena of the heap: no memory, or the "
				 "process has 4,095 arenas already, of which each heap uses up "
				 "to %u. Try fewer heaps", heap->arenas);
	if (err)
		return heap_fail(err, "cannot create an arena of the heap: %s", strerror(err));
	heap->arena[k] = arena;
	return 0;
}

long heap_arena(struct umalloc_heap *heap, unsigned k)
{
	int result = 0;

	if (heap->arena[k] == NO_ARENA) {
		pthread_mutex_lock(&heap->making);
		if (heap->arena[k] == NO_ARENA)
			result = make_arena(heap, k);
		pthread_mutex_unlock(&heap->making);
	}
	return result < 0 ? -1 : (long)heap->arena[k];
}

static void destroy_arenas(struct umalloc_heap *heap)
{
	char name[64];

	for (unsigned k = 0; k < heap->arenas; k++) {
		if (heap->arena[k] == NO_ARENA)
			continue;
		snprintf(name, sizeof(name), "arena.%u.destroy", (unsigned)heap->arena[k]);
		mallctl(name, NULL, NULL, NULL, 0);
	}
}

/* ---- Heaps. ---- */

size_t heap_bitmap_size(const struct umalloc_heap *heap)
{
	return (heap->size / heap->page + 63) / 64 * sizeof(uint64_t);
}

static void *make_bitmap(const struct umalloc_heap *heap)
{
	void *bits = mmap(NULL, heap_bitmap_size(heap), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return bits == MAP_FAILED ? NULL : bits;
}

static void drop_bitmaps(struct umalloc_heap *heap)
{
	if (heap->dead)
		raw_munmap(heap->dead, heap_bitmap_size(heap));
	if (heap->zero)
		raw_munmap(heap->zero, heap_bitmap_size(heap));
	if (heap->large)
		raw_munmap(heap->large, heap_bitmap_size(heap));
}

static int take_attr(struct ummap_attr *mine, const struct ummap_attr *attr)
{
	*mine = (struct ummap_attr)UMMAP_ATTR_INIT;
	if (attr && attr->struct_size > sizeof(*mine))
		return heap_fail(EINVAL, "cannot use attr->struct_size %zu: this library knows %zu "
				 "bytes. Try UMMAP_ATTR_INIT", attr->struct_size, sizeof(*mine));
	if (attr)
		memcpy(mine, attr, attr->struct_size);
	mine->struct_size = sizeof(*mine);
	mine->flags |= UMMAP_CREATE | UMMAP_GROWS | UMMAP_BLANK;
	if (!mine->seg_size)
		mine->seg_size = SEG_SIZE;
	if (mine->seg_size & (mine->seg_size - 1) || mine->seg_size < (size_t)sysconf(_SC_PAGESIZE))
		return heap_fail(EINVAL, "cannot use attr->seg_size %zu: it must be a power of two "
				 "of at least %ld bytes, or 0", mine->seg_size,
				 sysconf(_SC_PAGESIZE));
	return 0;
}

static int map(struct umalloc_heap *heap, const char *uri, const struct ummap_attr *attr)
{
	void *base;

	if (!uri) {
		if (store_map_unnamed(heap->size, attr, &base) < 0)
			return -1;
	} else if (ummap_open(uri, heap->size, 0, PROT_READ | PROT_WRITE, attr, &base) < 0) {
		return heap_fail(errno, "cannot map the store '%.200s' of a heap: %s", uri,
				 umerrormsg());
	}
	heap->base = base;
	return 0;
}

/* With the mapping there, and the library started. */
static int set_up(struct umalloc_heap *heap)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);

	pthread_once(&watching, watch_forks);
	heap->hooks = extent_hooks;
	heap->arenas = processors < 1 ? 1 : processors > ARENAS_MAX ? ARENAS_MAX : (unsigned)processors;
	for (unsigned k = 0; k < heap->arenas; k++)
		heap->arena[k] = NO_ARENA;
	pthread_mutex_init(&heap->lock, NULL);
	pthread_mutex_init(&heap->making, NULL);
	heap->dead = make_bitmap(heap);
	heap->zero = make_bitmap(heap);
	heap->large = make_bitmap(heap);
	if (!heap->dead || !heap->zero || !heap->large)
		return heap_fail(ENOMEM, "cannot create a heap of %zu bytes: no address space for "
				 "its tables", heap->size);
	return heap_arena(heap, 0) < 0 ? -1 : 0;
}

umalloc_heap *umalloc_create(const char *uri, size_t size, const struct ummap_attr *attr)
{
	struct ummap_attr a;
	struct umalloc_heap *heap;

	if (take_attr(&a, attr) < 0)
		return NULL;
	if (size == 0 || size > SIZE_MAX / 2) {
		heap_fail(EINVAL, "cannot create a heap of %zu bytes: the size must be at least 1 "
			  "and at most half of the address space", size);
		return NULL;
	}
	heap = calloc(1, sizeof(*heap));
	if (!heap) {
		heap_fail(ENOMEM, "cannot create a heap of %zu bytes: no memory", size);
		return NULL;
	}
	heap->page = (size_t)sysconf(_SC_PAGESIZE);
	heap->seg_size = a.seg_size;
	heap->size = (size + a.seg_size - 1) & ~(a.seg_size - 1);
	if (map(heap, uri, &a) < 0) {
		free(heap);
		return NULL;
	}
	if (set_up(heap) < 0) {
		int error = errno;
		char why[512];

		snprintf(why, sizeof(why), "%s", umerrormsg());
		umunmap(heap->base, 0);
		drop_bitmaps(heap);
		free(heap);
		heap_fail(error, "%s", why);
		return NULL;
	}
	list(heap);
	return heap;
}

void umalloc_destroy(umalloc_heap *heap)
{
	int error = errno;

	if (!heap)
		return;
	unlist(heap);
	heap->ending = true;
	thread_forget_heap(heap);
	destroy_arenas(heap);
	if (!heap->forked)
		umunmap(heap->base, 0);
	drop_bitmaps(heap);
	pthread_mutex_destroy(&heap->lock);
	pthread_mutex_destroy(&heap->making);
	free(heap);
	errno = error;
}
