/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The choice of the mappings that the library takes, and their return to the kernel.
 *
 * A region has the whole pages of a regular file within its length at the time of mmap(2). The
 * kernel maps the range behind them, which raises SIGBUS or shows bytes that the file has gained. A
 * writable region is the only mapping of its file: when the program maps the file again, all of its
 * regions are handed to the kernel for good. A writable region is also handed to the kernel when
 * the file is written by write(2), and before a fork. A child gets kernel mappings in place of the
 * other regions, at the same addresses.
 *
 * `lock` protects the list. No thread holds it during the program's own system calls.
 */
#include "umrun/region.h"

#include "common/fd_path.h"
#include "umrun/config.h"
#include "umrun/heap.h"
#include "umrun/maps.h"
#include "umrun/next_calls.h"
#include "umrun/report.h"
#include "umrun/sharing.h"
#include "umrun/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <ummap.h>

/* Seconds until stores are written: as for dirty pages of the kernel. */
#define FLUSH_INTERVAL_SECONDS 5

#ifndef MAP_32BIT /* x86 only */
#define MAP_32BIT 0
#endif

/* A pinned region is handed over as soon as its pins end, or after a second. */
#define MAX_PIN_RETRIES 1000
#define PIN_RETRY_SLEEP_US 1000

/* A file with a writable mapping of the kernel. */
struct shared_file {
	dev_t dev;
	ino_t ino;
	struct shared_file *next;
};

_Atomic unsigned region_count, region_file_count;
const struct heap_calls *heap_calls;
_Atomic bool region_kernel_can_access = true;
static struct shared_file *shared_files;
/* Whether the kernel has had file mappings that mprotect(2) can make writable. */
static bool may_be_shared;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static _Thread_local bool has_lock;
static pthread_once_t handlers_once = PTHREAD_ONCE_INIT;
static pid_t own_pid;
/* Whether the process has had a region, whose descriptors may still be open. */
static _Atomic bool has_had_region;
/* Whether stores could not be written when the program ended. */
static bool has_lost_stores;

void region_require_pins(void)
{
	region_kernel_can_access = false;
	signals_begin();
}

void region_lock_write(void)
{
	pthread_rwlock_wrlock(&lock);
	has_lock = true;
}

void region_lock_read(void)
{
	pthread_rwlock_rdlock(&lock);
	has_lock = true;
}

void region_unlock(void)
{
	has_lock = false;
	pthread_rwlock_unlock(&lock);
}

bool region_holds_lock(void)
{
	return has_lock;
}

static size_t page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- The list: an array sorted by addresses ---- */

/* A region in the list. Threads compare the atomic fields without the lock. */
struct entry {
	_Atomic uintptr_t first, end;  /* range of addresses */
	_Atomic dev_t dev;
	_Atomic ino_t ino;
	struct region *region;         /* under the lock only */
};

/* The array moves when it grows, and no array is unmapped: a thread may still search it. */
static struct {
	struct entry *_Atomic entries;
	_Atomic size_t count;
	size_t room;
	_Atomic unsigned version;      /* odd while the array changes */
} list;

/* The number of regions that end at or below the address. */
static size_t count_below(const struct entry *entries, size_t count, uintptr_t at)
{
	size_t low = 0;

	while (low < count) {
		size_t middle = low + (count - low) / 2;

		if (entries[middle].end <= at)
			low = middle + 1;
		else
			count = middle;
	}
	return low;
}

static uintptr_t end_of(uintptr_t at, size_t len)
{
	return len < UINTPTR_MAX - at ? at + len : UINTPTR_MAX;
}

static struct region *region_number(size_t i)
{
	return i < list.count ? list.entries[i].region : NULL;
}

static struct region *next_region(const struct region *r)
{
	return region_number(r ? count_below(list.entries, list.count, (uintptr_t)r->addr) + 1 : 0);
}

struct region *region_find(const void *addr, size_t len)
{
	struct region *r = region_number(count_below(list.entries, list.count, (uintptr_t)addr));

	return r && (uintptr_t)r->addr < end_of((uintptr_t)addr, len) ? r : NULL;
}

struct region *region_find_next(const struct region *r, const void *addr, size_t len)
{
	struct region *next = next_region(r);

	return next && (uintptr_t)next->addr < end_of((uintptr_t)addr, len) ? next : NULL;
}

static bool is_region_of(const struct region *r, const struct stat *st)
{
	return r->ino == st->st_ino && r->dev == st->st_dev;
}

struct region *region_find_of_file(const struct region *r, const struct stat *st)
{
	struct region *next = next_region(r);

	while (next && !is_region_of(next, st))
		next = next_region(next);
	return next;
}

/* Begins a search without the lock. Returns false if the array changes. */
static bool begin_search(unsigned *version)
{
	*version = list.version;
	return *version % 2 == 0;
}

/* Whether the array was the same throughout the search. */
static bool end_search(unsigned version)
{
	atomic_thread_fence(memory_order_acquire);
	return list.version == version;
}

bool region_has_range(const void *addr, size_t len)
{
	uintptr_t at = (uintptr_t)addr;
	unsigned version;
	bool has;

	if (begin_search(&version)) {
		size_t count = list.count;
		const struct entry *entries = list.entries;
		size_t i = count_below(entries, count, at);

		has = i < count && entries[i].first < end_of(at, len);
		if (end_search(version))
			return has;
	}
	region_lock_read();
	has = region_find(addr, len) != NULL;
	region_unlock();
	return has;
}

bool region_has_file(const struct stat *st)
{
	unsigned version;
	bool has = false;

	if (begin_search(&version)) {
		size_t count = list.count;
		const struct entry *entries = list.entries;

		for (size_t i = 0; i < count && !has; i++)
			has = entries[i].ino == st->st_ino && entries[i].dev == st->st_dev;
		if (end_search(version))
			return has;
	}
	region_lock_read();
	has = region_find_of_file(NULL, st) != NULL;
	region_unlock();
	return has;
}

static void copy_entry(struct entry *to, const struct entry *from)
{
	to->first = from->first;
	to->end = from->end;
	to->dev = from->dev;
	to->ino = from->ino;
	to->region = from->region;
}

/* Makes room for another region: false without memory. */
static bool reserve_entry(void)
{
	size_t room = list.room ? 2 * list.room : page_bytes() / sizeof(struct entry);
	struct entry *more;

	if (list.count < list.room)
		return true;
	more = map_private(room * sizeof(*more));
	if (more == MAP_FAILED)
		return false;
	for (size_t i = 0; i < list.count; i++)
		copy_entry(&more[i], &list.entries[i]);
	list.entries = more;
	list.room = room;
	return true;
}

static void insert_entry(struct region *r)
{
	uintptr_t at = (uintptr_t)r->addr;
	size_t place = count_below(list.entries, list.count, at);
	const struct entry entry = { at, at + r->len, r->dev, r->ino, r };

	list.version++;
	for (size_t i = list.count; i > place; i--)
		copy_entry(&list.entries[i], &list.entries[i - 1]);
	copy_entry(&list.entries[place], &entry);
	list.count++;
	list.version++;
}

static void remove_entry(const struct region *r)
{
	size_t i = count_below(list.entries, list.count, (uintptr_t)r->addr);

	list.version++;
	list.count--;
	for (; i < list.count; i++)
		copy_entry(&list.entries[i], &list.entries[i + 1]);
	list.version++;
}

static bool is_shared(const struct stat *st)
{
	for (struct shared_file *f = shared_files; f; f = f->next) {
		if (f->ino == st->st_ino && f->dev == st->st_dev)
			return true;
	}
	return false;
}

static int note_shared(dev_t dev, ino_t ino)
{
	const struct stat st = { .st_dev = dev, .st_ino = ino };
	struct shared_file *f;

	if (is_shared(&st))
		return 0;
	f = malloc(sizeof(*f));
	if (!f) {
		errno = ENOMEM;
		return -1;
	}
	*f = (struct shared_file){ dev, ino, shared_files };
	shared_files = f;
	return 0;
}

/* ---- Mappings that the library takes ---- */

static bool is_memory(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) < 0 || fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC ||
	       fs.f_type == HUGETLBFS_MAGIC ||
	       fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC;
}

static bool has_name(int fd)
{
	char link[FD_PATH_BYTES], path[4096];
	ssize_t len;

	if (!config.only)
		return true;
	fd_path(link, fd);
	len = readlink(link, path, sizeof(path) - 1);
	path[len < 0 ? 0 : len] = '\0';
	return fnmatch(config.only, path, 0) == 0 ||
	       (strrchr(path, '/') && fnmatch(config.only, strrchr(path, '/') + 1, 0) == 0);
}

/* The C library writes to these descriptors, also after the program has replaced them. */
static bool is_standard_stream(const struct stat *st)
{
	struct stat here;

	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		if (fstat(fd, &here) == 0 && here.st_ino == st->st_ino &&
		    here.st_dev == st->st_dev &&
		    (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY)
			return true;
	}
	return false;
}

static bool may_take(size_t library_len, int prot, int flags, int fd, const struct stat *st)
{
	bool writable = prot & PROT_WRITE;
	int mode = fcntl(fd, F_GETFL) & O_ACCMODE;

	if (library_len < config.min)
		return report_left(fd, LEFT_SMALL, NULL);
	if (!has_name(fd))
		return report_left(fd, LEFT_NAME, NULL);
	if (is_memory(fd))
		return report_left(fd, LEFT_IN_MEMORY, NULL);
	if ((flags & MAP_TYPE) == MAP_PRIVATE && writable)
		return report_left(fd, LEFT_PRIVATE, NULL);
	if (mode == O_WRONLY || (writable && mode != O_RDWR))
		return report_left(fd, LEFT_ACCESS, NULL);
	if (is_shared(st))
		return report_left(fd, LEFT_MAPPED, NULL);
	if (sharing_has_stream(st, writable) || is_standard_stream(st))
		return report_left(fd, LEFT_STREAM, NULL);
	if (sharing_has_async() && (writable || mode != O_RDONLY))
		return report_left(fd, LEFT_ASYNC, NULL);
	if (sharing_has_memory())
		return report_left(fd, LEFT_MEMORY_FILE, NULL);
	return true;
}

static bool is_kind(int prot, int flags, int fd)
{
	const int never = MAP_ANONYMOUS | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_GROWSDOWN |
			  MAP_HUGETLB | MAP_LOCKED | MAP_SYNC | MAP_32BIT;

	return fd >= 0 && (flags & MAP_TYPE) && !(flags & never) && !(prot & PROT_EXEC) &&
	       (prot & (PROT_READ | PROT_WRITE)) &&
	       config.min;
}

static int is_the_file(ino_t ino, bool is_shared_one, void *wanted)
{
	(void)is_shared_one;
	return ino == *(ino_t *)wanted;
}

/* A writable region must be the only mapping of its file. The kernel's read-only mappings are not
 * recorded, so /proc/self/maps is searched for them. */
static bool is_only_mapping(const struct region *r, const struct stat *st, int fd)
{
	ino_t ino = st->st_ino;

	for (struct region *other = region_find_of_file(NULL, st); other;
	     other = region_find_of_file(other, st)) {
		if (other->writable || r->writable)
			return report_left(fd, LEFT_MAPPED, NULL);
	}
	if (r->writable && maps_each_file(NULL, SIZE_MAX, is_the_file, &ino) != 0)
		return report_left(fd, LEFT_MAPPED, NULL);
	return true;
}

/* ---- Mapping by the library ---- */

static int open_with_driver(const char *driver, const struct region *r, struct ummap_attr *attr,
			    void **base)
{
	char uri[PATH_MAX + 256];
	int prot = r->writable ? PROT_READ | PROT_WRITE : PROT_READ, result;

	if (!config_uri(uri, sizeof(uri), driver, r->fd, r->lease && r->lease->type == F_WRLCK))
		return -1;
	attr->flags = region_kernel_can_access ? UMMAP_KERNEL : 0;
	result = ummap_open(uri, r->library_len, r->off, prot, attr, base);
	/* This kernel does not report its own accesses: memory for system calls is pinned. */
	if (result < 0 && region_kernel_can_access && errno != EBUSY) {
		attr->flags = 0;
		result = ummap_open(uri, r->library_len, r->off, prot, attr, base);
		if (result == 0)
			region_require_pins();
	}
	return result;
}

static int open_region(struct region *r, void **base)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;

	attr.policy = config.policy;
	attr.flush_interval = r->writable ? FLUSH_INTERVAL_SECONDS : 0;
	attr.after = r->len - r->library_len + page_bytes();
	/* A mapping of the kernel also raises SIGBUS if the file system is full. */
	attr.on_full = UMMAP_FULL_SIGBUS;
	if (config.driver)
		return open_with_driver(config.driver, r, &attr, base);
	return open_with_driver("uring", r, &attr, base) == 0 ? 0 :
	       open_with_driver("posix", r, &attr, base);
}

/* Maps the range behind the file's end, and a page of zeros: some programs load a byte behind their
 * mapping, where the kernel usually has another one. */
static int map_tail(struct region *r, void *base)
{
	char *end = (char *)base + r->len;

	if (kernel_mmap(end, page_bytes(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
			-1, 0) == MAP_FAILED)
		return -1;
	r->has_zero_page = true;
	if (r->len == r->library_len)
		return 0;
	return kernel_mmap((char *)base + r->library_len, r->len - r->library_len, r->prot,
			   r->flags | MAP_FIXED, r->fd, r->off + (off_t)r->library_len) ==
	       MAP_FAILED ? -1 : 0;
}

static void link_region(struct region *r)
{
	insert_entry(r);
	region_count++;
	region_file_count++;
	report_taken(r->library_len);
	has_had_region = true;
}

static void unlink_region(const struct region *r)
{
	remove_entry(r);
	region_count--;
	region_file_count--;
}

void region_forget_zeros(const void *addr, size_t len)
{
	for (struct region *r = next_region(NULL); r; r = next_region(r)) {
		if ((uintptr_t)r->addr + r->len - (uintptr_t)addr < len)
			r->has_zero_page = false;
	}
}

static void free_region(struct region *r)
{
	if (r->has_zero_page)
		kernel_munmap(r->addr + r->len, page_bytes());
	close_unless_locked(r->fd);
	if (r->lease)
		lease_drop(r->lease);
	free(r);
}

static void register_fork_handlers(void);

/* The lease comes first: after it, no other process can change the file until the region is
 * handed over. */
static bool lease_file(struct region *r, int fd, const struct stat *st)
{
	enum left_reason why;

	if (config.exclusive)
		return true;
	r->lease = lease_take(fd, r->writable, st, &why);
	return r->lease || report_left(fd, why, NULL);
}

static bool open_and_map(struct region *r, int fd)
{
	void *base;

	if (open_region(r, &base) < 0)
		return report_left(fd, LEFT_FAILED, umerrormsg());
	if (map_tail(r, base) < 0) {
		umunmap(base, 0);
		kernel_munmap((char *)base + r->library_len,
			      r->len - r->library_len + page_bytes());
		return report_left(fd, LEFT_FAILED, "the range behind the end of the file cannot "
				   "be mapped");
	}
	r->addr = base;
	return true;
}

/* Frees the region on failure. */
static bool take_file(struct region *r, int fd, const struct stat *st)
{
	r->fd = fcntl(fd, F_DUPFD_CLOEXEC, FD_FIRST);
	if (r->fd < 0)
		r->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (r->fd < 0) {
		free(r);
		return report_left(fd, LEFT_FAILED, "no file descriptor is free");
	}
	if (!lease_file(r, fd, st) || !open_and_map(r, fd)) {
		free_region(r);
		return false;
	}
	/* Registered behind the library's handlers, which have to come first in a child. */
	pthread_once(&handlers_once, register_fork_handlers);
	return true;
}

void *region_map(size_t len, int prot, int flags, int fd, off_t off)
{
	int error = errno;
	struct region *r;
	struct stat st;
	size_t whole = (len + page_bytes() - 1) & ~(page_bytes() - 1), library_len;

	/* The stores of a child of vfork(2) or clone(2) would not be written at its end. */
	if (!region_is_own_process() || !is_kind(prot, flags, fd) || whole < len || off < 0 ||
	    off % (off_t)page_bytes() || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return errno = error, NULL;
	library_len = off < st.st_size ? (size_t)(st.st_size - off) & ~(page_bytes() - 1) : 0;
	library_len = library_len < whole ? library_len : whole;
	r = NULL;
	if (may_take(library_len, prot, flags, fd, &st) && reserve_entry())
		r = malloc(sizeof(*r));
	if (!r)
		return errno = error, NULL;
	*r = (struct region){ .len = whole, .library_len = library_len, .prot = prot,
			      .flags = flags & ~MAP_POPULATE, .off = off,
			      .dev = st.st_dev, .ino = st.st_ino, .writable = prot & PROT_WRITE };
	if (!is_only_mapping(r, &st, fd)) {
		free(r);
		return errno = error, NULL;
	}
	if (!take_file(r, fd, &st))
		return errno = error, NULL;
	link_region(r);
	errno = error;
	return r->addr;
}

int region_note_kernel_mapping(int prot, int flags, int fd)
{
	struct region *r;
	struct stat st;
	bool writable = (flags & MAP_TYPE) != MAP_PRIVATE && (prot & PROT_WRITE);

	if (fd < 0 || flags & MAP_ANONYMOUS || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	r = region_find_of_file(NULL, &st);
	if ((flags & MAP_TYPE) != MAP_PRIVATE && !writable &&
	    (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR)
		may_be_shared = true;
	/* Read-only regions stay unless the new mapping changes the file. */
	if (!writable && (!r || !r->writable))
		return 0;
	if (region_hand_back_file(&st, 0, "the program maps the file a second time") < 0)
		return -1;
	return note_shared(st.st_dev, st.st_ino);
}

/* Called for a file whose kernel mapping becomes writable. */
static int share_file(ino_t ino, bool is_shared_one, void *arg)
{
	struct region *r = next_region(NULL);
	struct stat st;

	(void)arg;
	while (r && r->ino != ino)
		r = next_region(r);
	if (!r || !is_shared_one)
		return 0;
	st = (struct stat){ .st_dev = r->dev, .st_ino = ino };
	return region_hand_back_file(&st, 0, "another mapping of the file becomes writable") < 0 ||
	       note_shared(st.st_dev, st.st_ino) < 0 ? -1 : 0;
}

int region_note_kernel_rights(const void *addr, size_t len, int prot)
{
	return may_be_shared && prot & PROT_WRITE ? maps_each_file(addr, len, share_file, NULL) : 0;
}

/* ---- Return to the kernel ---- */

/* Moves the kernel's mapping at `place` to the region. Other threads may use the region meanwhile.
 * A pin that does not end, of a system call or of mlock(2), does not prevent the replacement. */
static int replace_region(const struct region *r, void *place)
{
	int sync = r->writable ? UMMAP_NOFLUSH : 0;

	for (int tries = 0; tries < MAX_PIN_RETRIES; tries++) {
		if (umunmap_onto(r->addr, sync, place) == 0)
			return 0;
		if (errno != EBUSY)
			return -1;
		usleep(PIN_RETRY_SLEEP_US);
	}
	if (umunmap(r->addr, sync) < 0)
		return -1;
	kernel_mremap(place, r->library_len, r->library_len, MREMAP_MAYMOVE | MREMAP_FIXED,
		      r->addr);
	return 0;
}

int region_hand_back(struct region *r, const char *reason)
{
	char *place;

	if (r->writable && note_shared(r->dev, r->ino) < 0)
		return -1;
	place = kernel_mmap(NULL, r->library_len, r->prot, r->flags, r->fd, r->off);
	if (place == MAP_FAILED)
		return -1;
	if (replace_region(r, place) < 0) {
		int error = errno;

		kernel_munmap(place, r->library_len);
		errno = error;
		return -1;
	}
	report_handed_back(r->fd, reason, r->lease && lease_is_broken(r->lease));
	may_be_shared |= !r->writable;
	unlink_region(r);
	free_region(r);
	return 0;
}

int region_hand_back_range(const void *addr, size_t len, const char *reason)
{
	struct region *r;

	while ((r = region_find(addr, len))) {
		if (region_hand_back(r, reason) < 0)
			return -1;
	}
	return 0;
}

int region_hand_back_file(const struct stat *st, off_t end, const char *reason)
{
	struct region *next;

	for (struct region *r = region_find_of_file(NULL, st); r; r = next) {
		next = region_find_of_file(r, st);
		if (r->off + (off_t)r->library_len > end && region_hand_back(r, reason) < 0)
			return -1;
	}
	return 0;
}

/* Hands a region to the kernel. After a failure, which is reported, the region may differ from
 * the file that others see. */
static bool hand_back_or_tell(struct region *r, const char *reason)
{
	if (region_hand_back(r, reason) == 0)
		return true;
	fprintf(stderr, "umrun: %s: cannot return a mapping to the kernel because %s: %s\n",
		program_invocation_short_name, reason, umerrormsg());
	return false;
}

void region_hand_back_leased_file(const struct stat *st)
{
	struct region *next;

	for (struct region *r = next_region(NULL); r; r = next) {
		next = next_region(r);
		if (r->lease && r->lease->type == F_WRLCK && (!st || is_region_of(r, st)))
			hand_back_or_tell(r, "another process receives the file description");
	}
}

void region_hand_back_leased(void)
{
	region_hand_back_leased_file(NULL);
}

void region_hand_back_stale(const struct stat *st, bool writes)
{
	struct region *next;

	for (struct region *r = next_region(NULL); r; r = next) {
		bool may_change = writes || r->writable ||
				  (r->lease ? r->lease->type == F_WRLCK :
				   (fcntl(r->fd, F_GETFL) & O_ACCMODE) != O_RDONLY);

		next = next_region(r);
		if (may_change && (!st || is_region_of(r, st)))
			hand_back_or_tell(r, "the program uses the file by other calls");
	}
}

bool region_yield_broken(void)
{
	static const char other_opens[] = "the file is opened again";
	static bool has_told;
	bool is_done = true;
	struct region *next;

	region_lock_write();
	for (struct region *r = next_region(NULL); r; r = next) {
		next = next_region(r);
		if (!r->lease || !lease_is_broken(r->lease))
			continue;
		if (has_told ? region_hand_back(r, other_opens) == 0 :
			       hand_back_or_tell(r, other_opens))
			continue;
		has_told = true;
		is_done = false;
	}
	region_unlock();
	return is_done;
}

int region_unmap(struct region *r)
{
	if (r->writable && umsync_range(r->addr, r->library_len, UMMAP_NOFLUSH) < 0)
		return -1;
	if (umunmap(r->addr, 0) < 0)
		return -1;
	if (r->len > r->library_len)
		kernel_munmap(r->addr + r->library_len, r->len - r->library_len);
	unlink_region(r);
	free_region(r);
	return 0;
}

/* ---- Fork ---- */

static void hand_back_before_fork(void)
{
	struct region *next;

	region_lock_write();
	for (struct region *r = next_region(NULL); r; r = next) {
		next = next_region(r);
		if (r->writable || (r->lease && r->lease->type == F_WRLCK))
			hand_back_or_tell(r, "a child is forked");
	}
}

static void unlock_in_parent(void)
{
	region_unlock();
}

/* The child does not have the mappings of its parent's library. */
static void remap_in_child(void)
{
	struct region *r;

	pthread_rwlock_init(&lock, NULL);
	has_lock = false;
	own_pid = getpid();
	while ((r = next_region(NULL))) {
		if (kernel_mmap(r->addr, r->library_len, r->prot, r->flags | MAP_FIXED, r->fd,
				r->off) == MAP_FAILED)
			abort();
		unlink_region(r);
		close(r->fd);
		free(r);
	}
	lease_forget_all();
}

static void register_fork_handlers(void)
{
	pthread_atfork(hand_back_before_fork, unlock_in_parent, remap_in_child);
}

/* ---- The end of the program ---- */

static bool write_all(bool tells)
{
	bool is_written = true;

	if (!region_count || !region_is_own_process())
		return true;
	region_lock_read();
	for (struct region *r = next_region(NULL); r; r = next_region(r)) {
		if (r->writable && umsync_range(r->addr, r->library_len, UMMAP_NOFLUSH) < 0) {
			is_written = false;
			if (tells)
				fprintf(stderr, "umrun: %s: cannot write stores to a mapping, and "
					"they are lost: %s\n", program_invocation_short_name,
					umerrormsg());
		}
	}
	region_unlock();
	return is_written;
}

bool region_write_all(void)
{
	return write_all(true);
}

void region_before_exec(void)
{
	region_write_all();
	if (!has_had_region || !region_is_own_process())
		return;
	/* The new program inherits the description, and would not release its lease. */
	region_lock_write();
	region_hand_back_leased();
	lease_keep_locks_over_exec();
	region_unlock();
}

int region_exit_status(int status)
{
	return region_write_all() || status ? status : EXIT_FAILURE;
}

__attribute__((destructor))
static void end_program(void)
{
	struct umstat st = { .struct_size = sizeof(st) };

	if (!region_is_own_process())
		return;
	/* The library's destructor, which runs next, reports the files and the bytes that they
	 * lack. */
	has_lost_stores = !write_all(false) || (umstat(NULL, &st) == 0 && st.lost_bytes);
	report_end();
}

/* Runs after all destructors, because it is registered before the dynamic linker's own handler. */
static void fail_if_lost(int status, void *unused)
{
	(void)unused;
	if (!has_lost_stores || status)
		return;
	fflush(NULL);
	next__exit(EXIT_FAILURE);
}

bool region_is_own_process(void)
{
	return getpid() == own_pid;
}

/* A forked child shares the descriptions of its parent. The handler hand_back_before_fork, once it
 * is registered, runs first and takes the lock. */
static void note_descriptions(void)
{
	bool is_locked = region_holds_lock();

	if (config.exclusive)
		return;
	if (!is_locked)
		region_lock_write();
	lease_note_shared_descriptions();
	if (!is_locked)
		region_unlock();
}

/* A forked child writes its own regions, also if its parent had none. */
void region_note_child(void)
{
	own_pid = getpid();
}

void region_begin(void)
{
	own_pid = getpid();
	if (config.pins)
		region_require_pins();
	on_exit(fail_if_lost, NULL);
	/* The process that started this one may share its descriptions. */
	note_descriptions();
	pthread_atfork(note_descriptions, NULL, region_note_child);
}
