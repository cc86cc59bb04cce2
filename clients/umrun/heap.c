/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The heap of a process: made when it is first needed, in a file of no name, so that programs without large allocations pay
 * nothing. What the program maps as private memory is an allocation of whole pages; bits for pages say what of it the program
 * has not unmapped yet, and the last page that goes frees it.
 *
 * A child of fork(2) has what its parent's heap held, in a second file, of which it has a private mapping of the kernel's at the
 * same addresses: copied before the fork, when the library still works. Its own large allocations are in a heap of its own.
 *
 * `inside` is set while this thread is in the library: what that allocates is the C library's. `making` is for the heap's
 * beginning, `lock` for the bits; umalloc's locks are taken under both.
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

/* Arenas of interpreters, and more. */
#define MAP_MIN ((size_t)256 << 10)
#define SIZE_MIN ((size_t)1 << 30)
#define SIZE_MAX_OF_HEAP ((size_t)1 << 43)
/* Copied at a time before a fork: little beside any budget. */
#define PART ((size_t)256 << 10)

struct heap {
	umalloc_heap *heap;
	char *base;
	size_t size;
	size_t page;
	_Atomic uint64_t *begins;  /* a bit for each page with which something mapped begins */
	_Atomic uint64_t *mapped;  /* ... that the program has mapped, and not unmapped */
};

/* A parent's, whose contents are here. */
struct inherited {
	struct heap heap;
	struct inherited *next;
};

static struct heap mine;
static _Atomic bool ready, failed;
static struct inherited *inherited;
static _Thread_local bool inside;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t watching = PTHREAD_ONCE_INIT;
static int copy_fd = -1;  /* between the handlers of fork */
static size_t copied;
static pid_t process;
static struct { _Atomic unsigned long allocations, mappings, copies; } counted;

static bool is_in(const struct heap *h, const void *addr)
{
	return (uintptr_t)addr - (uintptr_t)h->base < h->size;
}

static const struct inherited *find_inherited(const void *memory)
{
	const struct inherited *i = inherited;

	while (i && !is_in(&i->heap, memory))
		i = i->next;
	return i;
}

bool heap_has(const void *memory)
{
	return is_in(&mine, memory) || (inherited && find_inherited(memory));
}

/* ---- Making it. ---- */

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

/* More addresses than there can be in use at once, because arenas keep those that they have. */
static size_t size_for(int fd)
{
	struct statvfs fs;
	unsigned long long size;

	if (fstatvfs(fd, &fs) < 0)
		return SIZE_MIN;
	size = 2ull * fs.f_bavail * fs.f_frsize;
	return size < SIZE_MIN ? SIZE_MIN : size > SIZE_MAX_OF_HEAP ? SIZE_MAX_OF_HEAP : size;
}

static umalloc_heap *create_as(const char *driver, int fd, size_t size)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	umalloc_heap *heap;
	char uri[PATH_MAX + 256];

	/* umrun has opened something by it, and a descriptor is no longer than that. */
	if (!config_uri(uri, sizeof(uri), driver, fd, false))
		return NULL;
	attr.policy = config.policy;
	attr.seg_size = config.segment;
	attr.flags = region_kernel ? UMMAP_KERNEL : 0;
	heap = umalloc_create(uri, size, &attr);
	/* The kernel does not report its own accesses here: what calls are given is pinned. */
	if (!heap && region_kernel) {
		attr.flags = 0;
		heap = umalloc_create(uri, size, &attr);
		if (heap)
			region_pins();
	}
	return heap;
}

static void *bits_for(const struct heap *h, size_t size)
{
	void *bits = kernel_mmap(NULL, size / h->page / 8 + 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				 -1, 0);

	return bits == MAP_FAILED ? NULL : bits;
}

/* Other threads look whether what they free is in it: nothing is, until it has a size. */
static int take(umalloc_heap *heap)
{
	struct umalloc_stats stats = { .struct_size = sizeof(stats) };
	struct heap h = { .heap = heap, .page = (size_t)sysconf(_SC_PAGESIZE) };

	umalloc_stats(heap, &stats);
	h.base = (char *)(uintptr_t)stats.base;
	h.begins = bits_for(&h, stats.size);
	h.mapped = bits_for(&h, stats.size);
	if (!h.begins || !h.mapped)
		return -1;
	mine = h;
	__atomic_store_n(&mine.size, stats.size, __ATOMIC_RELEASE);
	return 0;
}

static const char *create(void)
{
	int fd = unnamed_file(config.heap);
	umalloc_heap *heap;
	size_t size;

	if (fd < 0)
		return strerror(errno);
	size = size_for(fd);
	heap = create_as(config.driver ? config.driver : "uring", fd, size);
	if (!heap && !config.driver)
		heap = create_as("posix", fd, size);
	close(fd);
	if (!heap)
		return umalloc_errormsg();
	if (take(heap) < 0) {
		umalloc_destroy(heap);
		return "no address space for its tables";
	}
	return NULL;
}

static void watch_forks(void);

static void begin(void)
{
	const char *why = create();

	failed = why != NULL;
	if (why) {
		fprintf(stderr, "umrun: cannot create the heap of %s in '%s': %s. The program uses "
			"the C library's heap\n", program_invocation_short_name, config.heap, why);
		return;
	}
	region_count++;
	pthread_once(&watching, watch_forks);
	ready = true;
}

bool heap_ready(void)
{
	int error = errno;

	if (inside || failed)
		return false;
	if (ready)
		return true;
	inside = true;
	pthread_mutex_lock(&making);
	if (!ready && !failed)
		begin();
	pthread_mutex_unlock(&making);
	inside = false;
	errno = error;
	return ready;
}

/* ---- Allocations. ---- */

/* Once, where storage is the reason: the program only learns that there is no memory. */
static void say_refused(int error)
{
	static _Atomic bool said;

	if (error != ENOMEM && !atomic_exchange(&said, true))
		fprintf(stderr, "umrun: cannot allocate memory for %s in the heap in '%s': %s\n",
			program_invocation_short_name, config.heap, umalloc_errormsg());
}

static void *allocated(void *memory)
{
	if (memory) {
		counted.allocations++;
	} else {
		say_refused(errno);
		errno = ENOMEM;
	}
	inside = false;
	return memory;
}

void *heap_alloc(size_t size)
{
	inside = true;
	return allocated(umalloc(mine.heap, size));
}

void *heap_alloc_zeros(size_t count, size_t size)
{
	inside = true;
	return allocated(ucalloc(mine.heap, count, size));
}

void *heap_alloc_aligned(size_t alignment, size_t size)
{
	inside = true;
	return allocated(ualigned_alloc(mine.heap, alignment, size));
}

void heap_free(void *memory)
{
	if (!is_in(&mine, memory))
		return;
	inside = true;
	ufree(mine.heap, memory);
	inside = false;
}

size_t heap_usable_size(const void *memory)
{
	return umalloc_usable_size(is_in(&mine, memory) ? mine.heap : find_inherited(memory)->heap.heap, memory);
}

void *heap_realloc(void *old, size_t size)
{
	size_t had;
	void *memory;

	if (is_in(&mine, old)) {
		inside = true;
		return allocated(urealloc(mine.heap, old, size));
	}
	had = heap_usable_size(old);
	memory = heap_ready() ? heap_alloc(size) : NULL;
	if (memory)
		memcpy(memory, old, had < size ? had : size);
	return memory;
}

/* ---- What the program maps. ---- */

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
	return len / mine.page + (len % mine.page != 0);
}

static size_t page_of(const void *addr)
{
	return (size_t)((const char *)addr - mine.base) / mine.page;
}

static size_t left(const void *addr)
{
	return is_in(&mine, addr) ? (size_t)(mine.base + mine.size - (const char *)addr) : 0;
}

/* Zeros, where they are read again. */
static void give_up(char *from, size_t len)
{
	size_t seg = config.segment, at = (size_t)(from - mine.base), end = at + len;
	size_t first = (at + seg - 1) / seg * seg, last = end / seg * seg;

	/* What is locked in memory stays. */
	if (first >= last || umadvise(mine.base + first, last - first, UMMAP_ADV_DISCARD) < 0) {
		memset(from, 0, len);
		return;
	}
	memset(from, 0, first - at);
	memset(mine.base + last, 0, end - last);
}

static void *map(void *addr, size_t len, int prot, int flags)
{
	char *memory;

	if (addr || len < MAP_MIN || prot != (PROT_READ | PROT_WRITE) || (flags & ~MAP_NORESERVE) != (MAP_PRIVATE | MAP_ANONYMOUS) ||
	    !heap_ready())
		return NULL;
	/* The first begins with a segment, and writes nothing. */
	if (len >= 2 * config.segment)
		memory = heap_alloc_zeros(1, pages_of(len) * mine.page);
	else
		memory = heap_alloc_aligned(mine.page, pages_of(len) * mine.page);
	if (!memory)
		return MAP_FAILED;
	inside = true;
	if (len < 2 * config.segment)
		give_up(memory, pages_of(len) * mine.page);
	inside = false;
	pthread_mutex_lock(&lock);
	set_bits(mine.begins, page_of(memory), page_of(memory) + 1, true);
	set_bits(mine.mapped, page_of(memory), page_of(memory) + pages_of(len), true);
	pthread_mutex_unlock(&lock);
	counted.mappings++;
	return memory;
}

/* The first page of what the page is mapped with; none: the page itself is where nothing begins. */
static size_t beginning(size_t page)
{
	for (size_t at = page + 1; at-- > 0;) {
		if (at % 64 == 63 && !mine.begins[at / 64]) {
			at -= at >= 64 ? 63 : at;
			continue;
		}
		if (has_bit(mine.begins, at))
			return at + heap_usable_size(mine.base + at * mine.page) / mine.page > page ? at : page;
	}
	return page;
}

/* With the lock. What is mapped from page `first` on loses [from, last). */
static size_t unmap_one(size_t first, size_t from, size_t last)
{
	char *memory = mine.base + first * mine.page;
	size_t end = first + heap_usable_size(memory) / mine.page;

	last = last < end ? last : end;
	set_bits(mine.mapped, from, last, false);
	if (!any_set(mine.mapped, first, end)) {
		set_bits(mine.begins, first, first + 1, false);
		heap_free(memory);
	} else {
		inside = true;
		give_up(mine.base + from * mine.page, (last - from) * mine.page);
		inside = false;
	}
	return end;
}

static int unmap(void *addr, size_t len)
{
	size_t page = page_of(addr), last = page + pages_of(len), first;

	if ((uintptr_t)addr % mine.page || len == 0 || len > left(addr)) {
		errno = EINVAL;
		return -1;
	}
	pthread_mutex_lock(&lock);
	first = beginning(page);
	while (page < last) {
		if (has_bit(mine.begins, first))
			page = unmap_one(first, page, last);
		else
			page++;
		first = page;
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

static void *remap(void *old, size_t old_len, size_t len, int flags)
{
	void *memory;

	if (len <= old_len && !(flags & MREMAP_FIXED))
		return len == old_len || unmap((char *)old + pages_of(len) * mine.page, old_len - len) == 0 ? old : MAP_FAILED;
	memory = flags == MREMAP_MAYMOVE && old_len ? map(NULL, len < MAP_MIN ? MAP_MIN : len, PROT_READ | PROT_WRITE,
							   MAP_PRIVATE | MAP_ANONYMOUS) : NULL;
	if (!memory || memory == MAP_FAILED) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	memcpy(memory, old, old_len);
	unmap(old, old_len);
	return memory;
}

static bool clear_inherited(void *addr, size_t len)
{
	const struct inherited *i = find_inherited(addr);

	if (!i || (uintptr_t)addr % i->heap.page || len > (size_t)(i->heap.base + i->heap.size - (char *)addr))
		return false;
	memset(addr, 0, (len + i->heap.page - 1) / i->heap.page * i->heap.page);
	return true;
}

/* What is made larger is copied: the file ends where the heap did. */
static void *grow_inherited(void *old, size_t old_len, size_t len, int flags)
{
	const struct inherited *i = find_inherited(old);
	void *memory;

	if (!i || flags != MREMAP_MAYMOVE || len <= old_len || old_len > (size_t)(i->heap.base + i->heap.size - (char *)old))
		return NULL;
	memory = map_private(len);
	if (memory == MAP_FAILED)
		return memory;
	memcpy(memory, old, old_len);
	kernel_munmap(old, old_len);
	return memory;
}

static int advise(void *addr, size_t len, int advice)
{
	if (advice == MADV_DONTNEED && len <= left(addr)) {
		inside = true;
		give_up(addr, pages_of(len) * mine.page);
		inside = false;
	}
	return 0;
}

static const struct heap_calls calls = { left, map, unmap, remap, advise, clear_inherited, grow_inherited };

/* ---- Fork. ---- */

static bool all_zero(const char *part, size_t len)
{
	return part[0] == 0 && memcmp(part, part + 1, len - 1) == 0;
}

static int copy_part(int fd, const char *part, size_t len, off_t off)
{
	bool pinned = !region_kernel && umpin((void *)(uintptr_t)part, len, PROT_READ) == 0;
	size_t done = 0;
	ssize_t n = 0;

	while (!all_zero(part, len) && done < len && (n = pwrite(fd, part + done, len - done, off + (off_t)done)) > 0)
		done += (size_t)n;
	if (pinned)
		umunpin((void *)(uintptr_t)part, len);
	return n < 0 ? -1 : 0;
}

/* All that the heap ever gave out: what is free is zeros, or of no interest. */
static int copy_all(int fd)
{
	struct umalloc_stats stats = { .struct_size = sizeof(stats) };
	size_t used;

	umalloc_stats(mine.heap, &stats);
	used = (stats.used + PART - 1) / PART * PART;
	used = used < mine.size ? used : mine.size;
	if (ftruncate(fd, (off_t)used) < 0)
		return -1;
	for (size_t at = 0; at < used; at += PART) {
		if (copy_part(fd, mine.base + at, used - at < PART ? used - at : PART, (off_t)at) < 0)
			return -1;
	}
	copied = used;
	return 0;
}

static void before_fork(void)
{
	if (!ready)
		return;
	inside = true;
	copy_fd = unnamed_file(config.heap);
	if (copy_fd < 0 || copy_all(copy_fd) < 0) {
		fprintf(stderr, "umrun: cannot copy the heap of %s for a forked child: %s\n",
			program_invocation_short_name, strerror(errno));
		copied = 0;
	}
	counted.copies++;
	inside = false;
	pthread_mutex_lock(&making);
	pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
	if (!ready)
		return;
	pthread_mutex_unlock(&lock);
	pthread_mutex_unlock(&making);
	if (copy_fd >= 0)
		close(copy_fd);
	copy_fd = -1;
}

static void in_child(void)
{
	struct inherited *i = NULL;

	/* Not from the heap, which is the parent's. */
	inside = true;
	if (ready)
		i = malloc(sizeof(*i));
	inside = false;
	pthread_mutex_init(&making, NULL);
	pthread_mutex_init(&lock, NULL);
	process = getpid();
	if (!ready)
		return;
	if (!i || (copied && kernel_mmap(mine.base, copied, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, copy_fd, 0) == MAP_FAILED))
		abort();
	close(copy_fd);
	copy_fd = -1;
	*i = (struct inherited){ mine, inherited };
	inherited = i;
	mine = (struct heap){ 0 };
	ready = false;
	region_count--;
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- Threads of the library: what they allocate, by whatever call of the C library, is not the heap's. ---- */

struct thread {
	void *(*run)(void *arg);
	void *arg;
};

static void *run_inside(void *arg)
{
	struct thread thread = *(struct thread *)arg;

	inside = true;
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
	result = next_pthread_create(id, attr, run_inside, thread);
	if (result)
		free(thread);
	return result;
}

/* ---- The beginning, and the end. ---- */

__attribute__((constructor))
static void start(void)
{
	const char *own = heap_of_program();

	config_read();
	process = getpid();
	if (own)
		fprintf(stderr, "umrun: cannot give '%s' a heap in storage: it uses the malloc of "
			"'%s'. Try without --heap\n", program_invocation_short_name, own);
	else if (config.heap)
		heap_calls = &calls;
}

__attribute__((destructor))
static void at_end(void)
{
	struct umalloc_stats stats = { .struct_size = sizeof(stats) };

	if (!config.stats || !ready || getpid() != process)
		return;
	umalloc_stats(mine.heap, &stats);
	fprintf(stderr, "umrun: %s: the heap had %lu allocations, %lu of them by mmap, within %llu "
		"bytes; %llu bytes discarded, %lu copies for children\n",
		program_invocation_short_name, (unsigned long)counted.allocations,
		(unsigned long)counted.mappings, (unsigned long long)stats.used,
		(unsigned long long)stats.discarded, (unsigned long)counted.copies);
}
