/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A child of fork(2) has a private kernel mapping of a second file, at the addresses of its
 * parent's heap. The file is a copy that is made before the fork, when the library still works. The
 * child's own large allocations come from another heap.
 */
#include "umrun/config.h"
#include "umrun/heap.h"
#include "umrun/list.h"
#include "umrun/next_calls.h"
#include "umrun/pins.h"
#include "umrun/process.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

/* Bytes copied at a time before a fork: few, compared with any budget. */
#define COPY_PART_BYTES ((size_t)256 << 10)

static int copy_fd = -1;  /* between the handlers of fork */
static size_t copied;
static unsigned long copies;

/* ---- Memory that a child has from its parent ---- */

static bool is_inherited(const struct heap *h, const void *addr, size_t len)
{
	return h && len <= (size_t)(h->base + h->size - (const char *)addr);
}

static bool clear_inherited(void *addr, size_t len)
{
	if ((uintptr_t)addr % page_bytes() || !is_inherited(heap_find_inherited(addr), addr, len))
		return false;
	memset(addr, 0, round_to_pages(len));
	return true;
}

/* Copies the memory: the file behind it ends with the parent's heap. */
static void *grow_inherited(void *old, size_t old_len, size_t len, int flags)
{
	void *memory;

	if (flags != MREMAP_MAYMOVE || len <= old_len ||
	    !is_inherited(heap_find_inherited(old), old, old_len))
		return NULL;
	memory = map_private(len);
	if (memory == MAP_FAILED)
		return memory;
	memcpy(memory, old, old_len);
	kernel_munmap(old, old_len);
	return memory;
}

/* ---- Fork ---- */

static bool is_zero(const char *part, size_t len)
{
	return part[0] == 0 && memcmp(part, part + 1, len - 1) == 0;
}

static int copy_part(int fd, const char *part, size_t len, off_t off)
{
	struct pins pins;
	size_t done = 0;
	ssize_t n = 0;

	pin(&pins, part, len, PROT_READ);
	while (!is_zero(part, len) && done < len &&
	       (n = next_pwrite(fd, part + done, len - done, off + (off_t)done)) > 0)
		done += (size_t)n;
	unpin(&pins);
	return n < 0 ? -1 : 0;
}

/* Copies all addresses that the heap has ever used. Free memory may be copied too. */
static int copy_heap(int fd)
{
	struct umalloc_stats stats = { .struct_size = sizeof(stats) };
	size_t used;

	umalloc_stats(own_heap.heap, &stats);
	used = (stats.used + COPY_PART_BYTES - 1) / COPY_PART_BYTES * COPY_PART_BYTES;
	used = used < own_heap.size ? used : own_heap.size;
	if (ftruncate(fd, (off_t)used) < 0)
		return -1;
	for (size_t at = 0; at < used; at += COPY_PART_BYTES) {
		if (copy_part(fd, own_heap.base + at, used - at < COPY_PART_BYTES ? used - at :
			      COPY_PART_BYTES, (off_t)at) < 0)
			return -1;
	}
	copied = used;
	return 0;
}

static void copy_before_fork(void)
{
	if (!has_heap)
		return;
	is_inside = true;
	copy_fd = heap_file();
	if (copy_fd < 0 || copy_heap(copy_fd) < 0) {
		fprintf(stderr, "umrun: cannot copy the heap of %s for a forked child: %m\n",
			program_invocation_short_name);
		copied = 0;
	}
	copies++;
	is_inside = false;
	pthread_mutex_lock(&heap_lock);
}

static void unlock_in_parent(void)
{
	if (!has_heap)
		return;
	pthread_mutex_unlock(&heap_lock);
	if (copy_fd >= 0)
		close(copy_fd);
	copy_fd = -1;
}

static void inherit_in_child(void)
{
	struct heap *h = has_heap ? malloc(sizeof(*h)) : NULL;

	pthread_mutex_init(&heap_lock, NULL);
	if (!has_heap)
		return;
	if (!h || (copied && kernel_mmap(own_heap.base, copied, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_FIXED, copy_fd, 0) == MAP_FAILED))
		abort();
	close(copy_fd);
	copy_fd = -1;
	own_heap.next = inherited_heaps;
	*h = own_heap;
	inherited_heaps = h;
	own_heap = (struct heap){ 0 };
	has_heap = false;
	region_count--;
}

/* Registered behind jemalloc's handlers, because the copy needs jemalloc. */
static void register_fork_handlers(void)
{
	pthread_atfork(copy_before_fork, unlock_in_parent, inherit_in_child);
}

/* ---- Threads of the library, whose allocations never come from the heap ---- */

struct thread {
	void *(*run)(void *arg);
	void *arg;
};

static void *run_thread_inside(void *arg)
{
	struct thread thread = *(struct thread *)arg;

	is_inside = true;
	free(arg);
	return thread.run(thread.arg);
}

int take_pthread_create(const void *caller, pthread_t *id, const pthread_attr_t *attr,
			void *(*run)(void *), void *arg)
{
	struct thread *thread;
	int result;

	if (!next_is_library(caller))
		return next_pthread_create(id, attr, run, arg);
	thread = malloc(sizeof(*thread));
	if (!thread)
		return EAGAIN;
	*thread = (struct thread){ run, arg };
	result = next_pthread_create(id, attr, run_thread_inside, thread);
	if (result)
		free(thread);
	return result;
}

/* ---- The start and the end of the program ---- */

/* The path of the library that has the program's malloc; NULL: it is the C library. The program's
 * malloc is the first one, or the next one behind this library's. */
static const char *find_own_malloc(void)
{
	void *first = dlsym(RTLD_DEFAULT, "malloc");
	Dl_info has, c;

	if (first == (void *)malloc)
		first = dlsym(RTLD_NEXT, "malloc");
	if (!dladdr(first, &has) || !dladdr((void *)gnu_get_libc_version, &c) ||
	    has.dli_fbase == c.dli_fbase)
		return NULL;
	return has.dli_fname;
}

__attribute__((constructor))
static void start_heap(void)
{
	static const struct heap_calls calls = { mapped_left, mapped_map, mapped_unmap,
						 mapped_remap, mapped_advise, clear_inherited,
						 grow_inherited };
	const char *own = find_own_malloc();

	config_read();
	heap_on_begin = register_fork_handlers;
	if (own)
		fprintf(stderr, "umrun: cannot give '%s' a heap in storage: it uses the malloc of "
			"'%s'. Try without --heap\n", program_invocation_short_name, own);
	else if (config.heap)
		heap_calls = &calls;
}

__attribute__((destructor))
static void report_heap(void)
{
	struct umalloc_stats stats = { .struct_size = sizeof(stats) };

	if (!config.stats || !has_heap || !is_own_process())
		return;
	umalloc_stats(own_heap.heap, &stats);
	fprintf(stderr, "umrun: %s: the heap had %lu allocations, %lu of them by mmap, within %llu "
		"bytes; %llu bytes discarded, %lu copies for children\n",
		program_invocation_short_name, heap_count(), mapped_count(),
		(unsigned long long)stats.used, (unsigned long long)stats.discarded, copies);
}
