/* SPDX-License-Identifier: BSD-3-Clause */
/* The heap of a process. It is created in a file without a name when it is first needed, so that
 * programs without large allocations pay nothing. */
#include "umrun/heap.h"

#include "umrun/config.h"
#include "umrun/descriptors.h"
#include "umrun/list.h"
#include "umrun/next_calls.h"
#include "umrun/open.h"

#include <sys/statvfs.h>

#define MIN_HEAP_BYTES ((size_t)1 << 30)
#define MAX_HEAP_BYTES ((size_t)1 << 43)

struct heap own_heap, *inherited_heaps;
pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;
_Thread_local bool is_inside;
_Atomic bool has_heap;
void (*heap_on_begin)(void);
static _Atomic bool has_failed;
static _Atomic unsigned long allocations;

static bool is_in_heap(const struct heap *h, const void *addr)
{
	return (uintptr_t)addr - (uintptr_t)h->base < h->size;
}

struct heap *heap_find_inherited(const void *memory)
{
	struct heap *h = inherited_heaps;

	while (h && !is_in_heap(h, memory))
		h = h->next;
	return h;
}

bool heap_has(const void *memory)
{
	return is_in_heap(&own_heap, memory) || (inherited_heaps && heap_find_inherited(memory));
}

unsigned long heap_count(void)
{
	return allocations;
}

/* ---- Creation ---- */

int heap_file(void)
{
	int fd = open(config.heap, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), high;
	char path[PATH_MAX];

	if (fd < 0 && snprintf(path, sizeof(path), "%s/umrun-XXXXXX", config.heap) <
	    (int)sizeof(path)) {
		fd = mkostemp(path, O_CLOEXEC);
		if (fd >= 0)
			unlink(path);
	}
	high = fd < 0 ? -1 : descriptors_copy(fd);
	if (high < 0)
		return fd;
	close(fd);
	return high;
}

/* More addresses than can be in use at once, because umalloc's arenas keep addresses. */
static size_t size_for(int fd)
{
	struct statvfs fs;
	unsigned long long size;

	if (fstatvfs(fd, &fs) < 0)
		return MIN_HEAP_BYTES;
	size = 2ull * fs.f_bavail * fs.f_frsize;
	return size < MIN_HEAP_BYTES ? MIN_HEAP_BYTES :
	       size > MAX_HEAP_BYTES ? MAX_HEAP_BYTES : size;
}

static int open_heap(const char *uri, struct ummap_attr *attr, void *size)
{
	own_heap.heap = umalloc_create(uri, *(size_t *)size, attr);
	return own_heap.heap ? 0 : -1;
}

/* Other threads compare addresses with the heap, which contains none until its size is set. */
static const char *create_heap(void)
{
	struct umalloc_stats stats = { .struct_size = sizeof(stats) };
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	int fd = heap_file(), result;
	size_t size;

	if (fd < 0)
		return strerror(errno);
	attr.seg_size = config.segment;
	size = size_for(fd);
	result = open_file(open_heap, fd, false, &attr, &size);
	close(fd);
	if (result < 0)
		return umalloc_errormsg();
	umalloc_stats(own_heap.heap, &stats);
	own_heap.base = (char *)(uintptr_t)stats.base;
	__atomic_store_n(&own_heap.size, stats.size, __ATOMIC_RELEASE);
	return NULL;
}

static void begin_heap(void)
{
	static bool has_begun;
	const char *why = create_heap();

	has_failed = why != NULL;
	if (why) {
		fprintf(stderr, "umrun: cannot create the heap of %s in '%s': %s. The program uses "
			"the C library's heap\n", program_invocation_short_name, config.heap, why);
		return;
	}
	region_count++;
	if (!has_begun)
		heap_on_begin();
	has_begun = true;
	has_heap = true;
}

bool heap_ready(void)
{
	int error = errno;

	if (is_inside || has_failed)
		return false;
	if (has_heap)
		return true;
	is_inside = true;
	pthread_mutex_lock(&heap_lock);
	if (!has_heap && !has_failed)
		begin_heap();
	pthread_mutex_unlock(&heap_lock);
	is_inside = false;
	errno = error;
	return has_heap;
}

/* ---- Allocations ---- */

/* Reports the first failure of the store: the program only learns that there is no memory. */
static void report_failure(int error)
{
	static _Atomic bool has_reported;

	if (error != ENOMEM && !atomic_exchange(&has_reported, true))
		fprintf(stderr, "umrun: cannot allocate memory for %s in the heap in '%s': %s\n",
			program_invocation_short_name, config.heap, umalloc_errormsg());
}

static void *finish_allocation(void *memory)
{
	if (memory) {
		allocations++;
	} else {
		report_failure(errno);
		errno = ENOMEM;
	}
	is_inside = false;
	return memory;
}

void *heap_alloc(size_t size)
{
	is_inside = true;
	return finish_allocation(umalloc(own_heap.heap, size));
}

void *heap_alloc_zeros(size_t count, size_t size)
{
	is_inside = true;
	return finish_allocation(ucalloc(own_heap.heap, count, size));
}

void *heap_alloc_aligned(size_t alignment, size_t size)
{
	is_inside = true;
	return finish_allocation(ualigned_alloc(own_heap.heap, alignment, size));
}

void heap_free(void *memory)
{
	if (!is_in_heap(&own_heap, memory))
		return;
	is_inside = true;
	ufree(own_heap.heap, memory);
	is_inside = false;
}

size_t heap_usable_size(const void *memory)
{
	const struct heap *h = heap_find_inherited(memory);

	return umalloc_usable_size(h ? h->heap : own_heap.heap, memory);
}

void *heap_realloc(void *old, size_t size)
{
	size_t had;
	void *memory;

	if (is_in_heap(&own_heap, old)) {
		is_inside = true;
		return finish_allocation(urealloc(own_heap.heap, old, size));
	}
	had = heap_usable_size(old);
	memory = heap_ready() ? heap_alloc(size) : NULL;
	if (memory)
		memcpy(memory, old, had < size ? had : size);
	return memory;
}
