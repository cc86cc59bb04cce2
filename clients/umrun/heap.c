/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The heap of a process. It is created in an unnamed file when it is first needed, so that programs
 * without large allocations pay nothing. Private memory that the program maps is an allocation of
 * whole pages. A bit for each page records that the program has not unmapped it; the allocation is
 * freed with its last page.
 *
 * A child of fork(2) has a private kernel mapping of a second file, at the addresses of its
 * parent's heap. The file is a copy that is made before the fork, when the library still works. The
 * child's own large allocations come from another heap.
 *
 * `is_inside` is set while this thread runs code of the library, whose allocations come from the C
 * library. `create_lock` protects the creation of the heap, and `bits_lock` the bits. The locks of
 * umalloc are taken under both.
 */
#include "umrun/heap.h"

#include "umrun/config.h"
#include "umrun/next_calls.h"
#include "umrun/region.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <umalloc.h>

/* Least bytes of mapped memory that the heap takes, such as an arena of an interpreter. */
#define MAP_MIN ((size_t)256 << 10)
#define SIZE_MIN ((size_t)1 << 30)
#define SIZE_MAX_OF_HEAP ((size_t)1 << 43)
/* Bytes copied at a time before a fork: few, compared with any budget. */
#define COPY_PART_BYTES ((size_t)256 << 10)

struct heap {
	umalloc_heap *heap;
	char *base;
	size_t size;
	size_t page;
	_Atomic uint64_t *begins;  /* a bit for each first page of mapped memory */
	_Atomic uint64_t *mapped;  /* a bit for each page that is still mapped */
};

/* The heap of a parent, whose contents this process has. */
struct inherited {
	struct heap heap;
	struct inherited *next;
};

static struct heap own_heap;
static _Atomic bool is_ready, has_failed;
static struct inherited *inherited;
static _Thread_local bool is_inside;
static pthread_mutex_t create_lock = PTHREAD_MUTEX_INITIALIZER,
				     bits_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t handlers_once = PTHREAD_ONCE_INIT;
static int copy_fd = -1;  /* between the handlers of fork */
static size_t copied;
static pid_t own_pid;
static struct { _Atomic unsigned long allocations, mappings, copies; } counts;

static bool is_in_heap(const struct heap *h, const void *addr)
{
	return (uintptr_t)addr - (uintptr_t)h->base < h->size;
}

static const struct inherited *find_inherited(const void *memory)
{
	const struct inherited *i = inherited;

	while (i && !is_in_heap(&i->heap, memory))
		i = i->next;
	return i;
}

bool heap_has(const void *memory)
{
	return is_in_heap(&own_heap, memory) || (inherited && find_inherited(memory));
}

/* ---- Creation ---- */

static int unnamed_file(const char *folder)
{
	char path[PATH_MAX];
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), high;

	if (fd < 0 && snprintf(path, sizeof(path), "%s/umrun-XXXXXX", folder) < (int)sizeof(path)) {
		fd = mkostemp(path, O_CLOEXEC);
		if (fd >= 0)
			unlink(path);
	}
	high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FD_FIRST);
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
		return SIZE_MIN;
	size = 2ull * fs.f_bavail * fs.f_frsize;
	return size < SIZE_MIN ? SIZE_MIN : size > SIZE_MAX_OF_HEAP ? SIZE_MAX_OF_HEAP : size;
}

static umalloc_heap *create_with_driver(const char *driver, int fd, size_t size)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	umalloc_heap *heap;
	char uri[PATH_MAX + 256];

	if (!config_uri(uri, sizeof(uri), driver, fd, false))
		return NULL;
	attr.policy = config.policy;
	attr.seg_size = config.segment;
	attr.flags = region_kernel_can_access ? UMMAP_KERNEL : 0;
	heap = umalloc_create(uri, size, &attr);
	/* This kernel does not report its own accesses: memory for system calls is pinned. */
	if (!heap && region_kernel_can_access) {
		attr.flags = 0;
		heap = umalloc_create(uri, size, &attr);
		if (heap)
			region_require_pins();
	}
	return heap;
}

static void *bits_for(const struct heap *h, size_t size)
{
	void *bits = kernel_mmap(NULL, size / h->page / 8 + 8, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				 -1, 0);

	return bits == MAP_FAILED ? NULL : bits;
}

/* Other threads compare addresses with the heap, which contains none until its size is set. */
static int set_heap(umalloc_heap *heap)
{
	struct umalloc_stats stats = { .struct_size = sizeof(stats) };
	struct heap h = { .heap = heap, .page = (size_t)sysconf(_SC_PAGESIZE) };

	umalloc_stats(heap, &stats);
	h.base = (char *)(uintptr_t)stats.base;
	h.begins = bits_for(&h, stats.size);
	h.mapped = bits_for(&h, stats.size);
	if (!h.begins || !h.mapped)
		return -1;
	own_heap = h;
	__atomic_store_n(&own_heap.size, stats.size, __ATOMIC_RELEASE);
	return 0;
}

static const char *create_heap(void)
{
	int fd = unnamed_file(config.heap);
	umalloc_heap *heap;
	size_t size;

	if (fd < 0)
		return strerror(errno);
	size = size_for(fd);
	heap = create_with_driver(config.driver ? config.driver : "uring", fd, size);
	if (!heap && !config.driver)
		heap = create_with_driver("posix", fd, size);
	close(fd);
	if (!heap)
		return umalloc_errormsg();
	if (set_heap(heap) < 0) {
		umalloc_destroy(heap);
		return "no address space for its tables";
	}
	return NULL;
}

static void register_fork_handlers(void);

static void begin_heap(void)
{
	const char *why = create_heap();

	has_failed = why != NULL;
	if (why) {
		fprintf(stderr, "umrun: cannot create the heap of %s in '%s': %s. The program uses "
			"the C library's heap\n", program_invocation_short_name, config.heap, why);
		return;
	}
	region_count++;
	pthread_once(&handlers_once, register_fork_handlers);
	is_ready = true;
}

bool heap_ready(void)
{
	int error = errno;

	if (is_inside || has_failed)
		return false;
	if (is_ready)
		return true;
	is_inside = true;
	pthread_mutex_lock(&create_lock);
	if (!is_ready && !has_failed)
		begin_heap();
	pthread_mutex_unlock(&create_lock);
	is_inside = false;
	errno = error;
	return is_ready;
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
		counts.allocations++;
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
	return umalloc_usable_size(is_in_heap(&own_heap, memory) ? own_heap.heap :
				   find_inherited(memory)->heap.heap, memory);
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

/* ---- Memory that the program maps ---- */

static bool has_bit(const _Atomic uint64_t *bits, size_t page)
{
	return bits[page / 64] >> page % 64 & 1;
}

static void set_bits(_Atomic uint64_t *bits, size_t first, size_t last, bool value)
{
	for (size_t page = first; page < last; page++) {
		if (value)
			bits[page / 64] |= 1ull << page % 64;
		else
			bits[page / 64] &= ~(1ull << page % 64);
	}
}

static bool any_set(const _Atomic uint64_t *bits, size_t first, size_t last)
{
	for (size_t page = first; page < last;) {
		if (page % 64 == 0 && !bits[page / 64])
			page += 64;
		else if (has_bit(bits, page++))
			return true;
	}
	return false;
}

static size_t pages_of(size_t len)
{
	return len / own_heap.page + (len % own_heap.page != 0);
}

static size_t page_of(const void *addr)
{
	return (size_t)((const char *)addr - own_heap.base) / own_heap.page;
}

static size_t bytes_left(const void *addr)
{
	return is_in_heap(&own_heap, addr) ?
	       (size_t)(own_heap.base + own_heap.size - (const char *)addr) : 0;
}

/* Discards a range: it reads as zeros afterwards. */
static void discard_range(char *from, size_t len)
{
	size_t seg = config.segment, at = (size_t)(from - own_heap.base), end = at + len;
	size_t first = (at + seg - 1) / seg * seg, last = end / seg * seg;

	/* Memory that is locked cannot be discarded. */
	if (first >= last || umadvise(own_heap.base + first, last - first, UMMAP_ADV_DISCARD) < 0) {
		memset(from, 0, len);
		return;
	}
	memset(from, 0, first - at);
	memset(own_heap.base + last, 0, end - last);
}

static void *map_memory(void *addr, size_t len, int prot, int flags)
{
	char *memory;

	if (addr || len < MAP_MIN || prot != (PROT_READ | PROT_WRITE) ||
	    (flags & ~MAP_NORESERVE) != (MAP_PRIVATE | MAP_ANONYMOUS) ||
	    !heap_ready())
		return NULL;
	/* The first function returns whole segments, and writes no zeros. */
	if (len >= 2 * config.segment)
		memory = heap_alloc_zeros(1, pages_of(len) * own_heap.page);
	else
		memory = heap_alloc_aligned(own_heap.page, pages_of(len) * own_heap.page);
	if (!memory)
		return MAP_FAILED;
	is_inside = true;
	if (len < 2 * config.segment)
		discard_range(memory, pages_of(len) * own_heap.page);
	is_inside = false;
	pthread_mutex_lock(&bits_lock);
	set_bits(own_heap.begins, page_of(memory), page_of(memory) + 1, true);
	set_bits(own_heap.mapped, page_of(memory), page_of(memory) + pages_of(len), true);
	pthread_mutex_unlock(&bits_lock);
	counts.mappings++;
	return memory;
}

/* The pages of the allocation that begins at a page. */
static size_t pages_allocated(size_t first)
{
	return heap_usable_size(own_heap.base + first * own_heap.page) / own_heap.page;
}

/* The first page of the allocation that contains the page, or the page itself if it is free. */
static size_t find_first_page(size_t page)
{
	for (size_t at = page + 1; at-- > 0;) {
		if (at % 64 == 63 && !own_heap.begins[at / 64]) {
			at -= at >= 64 ? 63 : at;
			continue;
		}
		if (has_bit(own_heap.begins, at))
			return at + pages_allocated(at) > page ? at : page;
	}
	return page;
}

/* Unmaps the pages [from, last) of the allocation that begins at page `first`. Returns the page
 * behind the allocation. */
static size_t unmap_pages_locked(size_t first, size_t from, size_t last)
{
	char *memory = own_heap.base + first * own_heap.page;
	size_t end = first + pages_allocated(first);

	last = last < end ? last : end;
	set_bits(own_heap.mapped, from, last, false);
	if (!any_set(own_heap.mapped, first, end)) {
		set_bits(own_heap.begins, first, first + 1, false);
		heap_free(memory);
	} else {
		is_inside = true;
		discard_range(own_heap.base + from * own_heap.page, (last - from) * own_heap.page);
		is_inside = false;
	}
	return end;
}

static int unmap_memory(void *addr, size_t len)
{
	size_t page = page_of(addr), last = page + pages_of(len), first;

	if ((uintptr_t)addr % own_heap.page || len == 0 || len > bytes_left(addr)) {
		errno = EINVAL;
		return -1;
	}
	pthread_mutex_lock(&bits_lock);
	first = find_first_page(page);
	while (page < last) {
		if (has_bit(own_heap.begins, first))
			page = unmap_pages_locked(first, page, last);
		else
			page++;
		first = page;
	}
	pthread_mutex_unlock(&bits_lock);
	return 0;
}

static void *remap_memory(void *old, size_t old_len, size_t len, int flags)
{
	void *memory;

	if (len <= old_len && !(flags & MREMAP_FIXED))
		return len == old_len ||
		       unmap_memory((char *)old + pages_of(len) * own_heap.page,
				    old_len - len) == 0 ?
			old : MAP_FAILED;
	memory = flags == MREMAP_MAYMOVE && old_len ?
		 map_memory(NULL, len < MAP_MIN ? MAP_MIN : len, PROT_READ | PROT_WRITE,
							   MAP_PRIVATE | MAP_ANONYMOUS) : NULL;
	if (!memory || memory == MAP_FAILED) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	memcpy(memory, old, old_len);
	unmap_memory(old, old_len);
	return memory;
}

static bool clear_inherited(void *addr, size_t len)
{
	const struct inherited *i = find_inherited(addr);

	if (!i || (uintptr_t)addr % i->heap.page ||
	    len > (size_t)(i->heap.base + i->heap.size - (char *)addr))
		return false;
	memset(addr, 0, (len + i->heap.page - 1) / i->heap.page * i->heap.page);
	return true;
}

/* Copies the memory: the file behind it ends with the parent's heap. */
static void *grow_inherited(void *old, size_t old_len, size_t len, int flags)
{
	const struct inherited *i = find_inherited(old);
	void *memory;

	if (!i || flags != MREMAP_MAYMOVE || len <= old_len ||
	    old_len > (size_t)(i->heap.base + i->heap.size - (char *)old))
		return NULL;
	memory = map_private(len);
	if (memory == MAP_FAILED)
		return memory;
	memcpy(memory, old, old_len);
	kernel_munmap(old, old_len);
	return memory;
}

static int advise_memory(void *addr, size_t len, int advice)
{
	if (advice == MADV_DONTNEED && len <= bytes_left(addr)) {
		is_inside = true;
		discard_range(addr, pages_of(len) * own_heap.page);
		is_inside = false;
	}
	return 0;
}

static const struct heap_calls calls = { bytes_left, map_memory, unmap_memory, remap_memory,
					    advise_memory, clear_inherited, grow_inherited };

/* ---- Fork ---- */

static bool is_zero(const char *part, size_t len)
{
	return part[0] == 0 && memcmp(part, part + 1, len - 1) == 0;
}

static int copy_part(int fd, const char *part, size_t len, off_t off)
{
	bool pinned = !region_kernel_can_access &&
		      umpin((void *)(uintptr_t)part, len, PROT_READ) == 0;
	size_t done = 0;
	ssize_t n = 0;

	while (!is_zero(part, len) && done < len &&
	       (n = pwrite(fd, part + done, len - done, off + (off_t)done)) > 0)
		done += (size_t)n;
	if (pinned)
		umunpin((void *)(uintptr_t)part, len);
	return n < 0 ? -1 : 0;
}

/* Copies all addresses that the heap has ever used. Free memory may be copied too. */
static int copy_all(int fd)
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
	if (!is_ready)
		return;
	is_inside = true;
	copy_fd = unnamed_file(config.heap);
	if (copy_fd < 0 || copy_all(copy_fd) < 0) {
		fprintf(stderr, "umrun: cannot copy the heap of %s for a forked child: %s\n",
			program_invocation_short_name, strerror(errno));
		copied = 0;
	}
	counts.copies++;
	is_inside = false;
	pthread_mutex_lock(&create_lock);
	pthread_mutex_lock(&bits_lock);
}

static void unlock_in_parent_heap(void)
{
	if (!is_ready)
		return;
	pthread_mutex_unlock(&bits_lock);
	pthread_mutex_unlock(&create_lock);
	if (copy_fd >= 0)
		close(copy_fd);
	copy_fd = -1;
}

static void inherit_in_child(void)
{
	struct inherited *i = NULL;

	/* This allocation must not come from the parent's heap. */
	is_inside = true;
	if (is_ready)
		i = malloc(sizeof(*i));
	is_inside = false;
	pthread_mutex_init(&create_lock, NULL);
	pthread_mutex_init(&bits_lock, NULL);
	own_pid = getpid();
	if (!is_ready)
		return;
	if (!i || (copied && kernel_mmap(own_heap.base, copied, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_FIXED, copy_fd, 0) == MAP_FAILED))
		abort();
	close(copy_fd);
	copy_fd = -1;
	*i = (struct inherited){ own_heap, inherited };
	inherited = i;
	own_heap = (struct heap){ 0 };
	is_ready = false;
	region_count--;
}

static void register_fork_handlers(void)
{
	pthread_atfork(copy_before_fork, unlock_in_parent_heap, inherit_in_child);
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

__attribute__((constructor))
static void start_heap(void)
{
	const char *own = heap_of_program();

	config_read();
	own_pid = getpid();
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

	if (!config.stats || !is_ready || getpid() != own_pid)
		return;
	umalloc_stats(own_heap.heap, &stats);
	fprintf(stderr, "umrun: %s: the heap had %lu allocations, %lu of them by mmap, within %llu "
		"bytes; %llu bytes discarded, %lu copies for children\n",
		program_invocation_short_name, (unsigned long)counts.allocations,
		(unsigned long)counts.mappings, (unsigned long long)stats.used,
		(unsigned long long)stats.discarded, (unsigned long)counts.copies);
}
