/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A region has the whole pages of a regular file within its length at the time of mmap(2). The
 * kernel maps the range behind them, which raises SIGBUS or shows bytes that the file has gained. A
 * writable region is the only mapping of its file: when the program maps the file again, all of its
 * regions are handed to the kernel for good. A writable region is also handed to the kernel when
 * the file is written by write(2), and before a fork. A child gets kernel mappings in place of the
 * other regions, at the same addresses.
 *
 * A private region, to which the program may store but whose stores stay out of the file, is
 * read-only for the library. The first store hands it to the kernel.
 */
#include "umrun/region.h"

#include "umrun/announce.h"
#include "umrun/choice.h"
#include "umrun/config.h"
#include "umrun/descriptors.h"
#include "umrun/lease.h"
#include "umrun/next_calls.h"
#include "umrun/open.h"
#include "umrun/report.h"

/* Seconds until stores are written: as for dirty pages of the kernel. */
#define FLUSH_INTERVAL_SECONDS 5
/* A pinned region is handed over as soon as its pins end, or after a second. */
#define MAX_PIN_RETRIES 1000
#define PIN_RETRY_SLEEP_US 1000

/* Reason for handing a private region back. */
static const char stores_privately[] = "the program stores to a private mapping";
/* Whether the kernel has had file mappings that mprotect(2) can make writable. */
static bool may_become_writable;

/* ---- Mapping by the library ---- */

static int open_region(const char *uri, struct ummap_attr *attr, void *region)
{
	struct region *r = region;
	void *base;

	if (ummap_open(uri, r->library_len, r->off,
		       r->is_writable ? PROT_READ | PROT_WRITE : PROT_READ, attr, &base) < 0)
		return -1;
	r->addr = base;
	r->is_copy = config.node_cache || attr->flags & UMMAP_NODE;
	return 0;
}

/* Maps the range behind the file's end, and a page of zeros: some programs load a byte behind their
 * mapping, where the kernel usually has another one. */
static bool map_tail(struct region *r)
{
	char *tail = r->addr + r->library_len, *end = r->addr + r->len;

	r->has_zero_page = kernel_mmap(end, page_bytes(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS |
				       MAP_FIXED, -1, 0) != MAP_FAILED;
	return r->has_zero_page &&
	       (tail == end || kernel_mmap(tail, (size_t)(end - tail), r->prot,
					   r->flags | MAP_FIXED, r->fd,
					   r->off + (off_t)r->library_len) != MAP_FAILED);
}

static void free_region(struct region *r)
{
	if (r->has_zero_page)
		kernel_munmap(r->addr + r->len, page_bytes());
	close_unless_locked(r->fd);
	if (r->announced >= 0)
		close(r->announced);
	if (r->lease)
		lease_drop(r->lease);
	free(r);
}

static int replace_private(void *addr);

static bool open_and_map(struct region *r, int fd)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;

	/* Mappings made from now on let no store pass unnoticed (umonstore(3)). */
	if (r->is_private)
		umonstore(replace_private);

	attr.flush_interval = r->is_writable ? FLUSH_INTERVAL_SECONDS : 0;
	attr.after = r->len - r->library_len + page_bytes();
	/* A mapping of the kernel also raises SIGBUS if the file system is full. */
	attr.on_full = UMMAP_FULL_SIGBUS;
	if (config.announces && !r->is_writable && announce_region(r))
		attr.flags = UMMAP_NODE;
	if (config.finds_size && (r->is_writable || attr.flags))
		attr.seg_size = config.segment;
	if (open_file(open_region, r->fd, r->lease && r->shares_writes, &attr, r) < 0)
		return report_left(fd, LEFT_FAILED, umerrormsg());
	if (map_tail(r))
		return true;
	umunmap(r->addr, 0);
	kernel_munmap(r->addr + r->library_len, r->len - r->library_len + page_bytes());
	r->has_zero_page = false;
	return report_left(fd, LEFT_FAILED, "the range behind the file's end cannot be mapped");
}

/* The lease comes first: after it, no other process can change the file until the region is
 * handed over. Frees the region on failure. */
static bool take_file(struct region *r, int fd)
{
	enum left_reason why;

	r->fd = descriptors_copy(fd);
	if (r->fd < 0) {
		free(r);
		return report_left(fd, LEFT_FAILED, "no file descriptor is free");
	}
	if (!config.exclusive)
		r->lease = lease_take(fd, r->file, &why);
	if (!config.exclusive && !r->lease)
		report_left(fd, why, NULL);
	else if (open_and_map(r, fd))
		return true;
	free_region(r);
	return false;
}

static struct region *make_region(size_t len, int prot, int flags, int fd, off_t off)
{
	struct region *r;
	struct file_id file;
	struct stat st;
	size_t whole = round_to_pages(len), library_len;
	bool is_shared = (flags & MAP_TYPE) != MAP_PRIVATE;

	if (whole < len || off < 0 || off % (off_t)page_bytes() || !file_of(fd, &file) ||
	    fstat(fd, &st) < 0)
		return NULL;
	library_len = off < st.st_size ? (size_t)(st.st_size - off) & ~(page_bytes() - 1) : 0;
	library_len = library_len < whole ? library_len : whole;
	if (!choice_is_region(library_len, prot, flags, fd, file) || !list_reserve())
		return NULL;
	r = malloc(sizeof(*r));
	if (!r)
		return NULL;
	*r = (struct region){ .len = whole, .library_len = library_len, .prot = prot,
			      .flags = flags & ~MAP_POPULATE, .off = off, .file = file,
			      .is_writable = prot & PROT_WRITE && is_shared,
			      .is_private = prot & PROT_WRITE && !is_shared, .last = whole,
			      .announced = -1,
			      .shares_writes = is_open_for_writing(fd) };
	return take_file(r, fd) ? r : NULL;
}

void *region_map(size_t len, int prot, int flags, int fd, off_t off)
{
	int error = errno;
	struct region *r = make_region(len, prot, flags, fd, off);

	if (r) {
		list_insert(r);
		report_taken(r->library_len);
		if (flags & MAP_POPULATE)
			umadvise(r->addr, r->library_len, UMMAP_ADV_WILLNEED);
	}
	errno = error;
	return r ? r->addr : NULL;
}

int region_unmap(struct region *r)
{
	if (r->is_writable && umsync_range(r->addr, r->library_len, UMMAP_NOFLUSH) < 0)
		return -1;
	if (umunmap(r->addr, 0) < 0)
		return -1;
	if (r->len > r->library_len)
		kernel_munmap(r->addr + r->library_len, r->len - r->library_len);
	list_remove(r);
	free_region(r);
	return 0;
}

void region_forget_zeros(const void *addr, size_t len)
{
	struct region *r;

	for (size_t i = 0; (r = list_at(i)); i++) {
		if ((uintptr_t)r->addr + r->len - (uintptr_t)addr < len)
			r->has_zero_page = false;
	}
}

/* ---- Mappings of the kernel ---- */

int region_note_kernel_mapping(int prot, int flags, int fd)
{
	bool is_private = (flags & MAP_TYPE) == MAP_PRIVATE;
	bool is_writable = !is_private && prot & PROT_WRITE;
	const struct region *r;
	struct file_id file;

	if (fd < 0 || flags & MAP_ANONYMOUS || !file_of(fd, &file))
		return 0;
	r = list_find_of_file(NULL, file);
	if (!is_private && !is_writable && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR)
		may_become_writable = true;
	/* Read-only regions stay unless the new mapping changes the file. */
	if (!is_writable && (!r || !r->is_writable))
		return 0;
	if (region_hand_back_file(file, 0, "the program maps the file a second time") < 0)
		return -1;
	return choice_note_kernel_file(file);
}

/* Called for a file whose kernel mapping becomes writable. */
static int note_writable_file(ino_t ino, bool is_shared, void *unused)
{
	struct region *r = NULL;
	struct file_id file;

	(void)unused;
	for (size_t i = 0; (r = list_at(i)) && r->file.ino != ino; i++)
		;
	if (!r || !is_shared)
		return 0;
	file = r->file;
	return region_hand_back_file(file, 0, "another mapping of the file becomes writable") < 0 ||
	       choice_note_kernel_file(file) < 0 ? -1 : 0;
}

int region_note_kernel_rights(const void *addr, size_t len, int prot)
{
	return may_become_writable && prot & PROT_WRITE ?
	       maps_each_file(addr, len, note_writable_file, NULL) : 0;
}

/* ---- Return to the kernel ---- */

/* Moves the kernel's mapping at `place` to the region. Other threads may use the region meanwhile.
 * A pin that does not end, of a system call or of mlock(2), does not prevent the replacement. */
static int replace_region(const struct region *r, void *place)
{
	int sync = r->is_writable ? UMMAP_NOFLUSH : 0;

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

/* The kernel maps all of the region: unmaps what the program has unmapped. */
static void unmap_ends(const struct region *r)
{
	if (r->first)
		kernel_munmap(r->addr, r->first);
	if (r->last < r->len)
		kernel_munmap(r->addr + r->last, r->len - r->last);
}

static int hand_back(struct region *r, const char *reason)
{
	char *place;
	int error;

	if (r->is_writable && choice_note_kernel_file(r->file) < 0)
		return -1;
	place = kernel_mmap(NULL, r->library_len, r->prot, r->flags, r->fd, r->off);
	if (place == MAP_FAILED)
		return -1;
	if (replace_region(r, place) < 0) {
		error = errno;
		kernel_munmap(place, r->library_len);
		errno = error;
		return -1;
	}
	unmap_ends(r);
	report_handed_back(r->fd, reason, r->lease && lease_is_broken(r->lease));
	may_become_writable |= !r->is_writable;
	list_remove(r);
	free_region(r);
	return 0;
}

/* The library keeps the addresses of an end that the program unmaps, without memory. */
int region_unmap_part(struct region *r, const char *addr, size_t len)
{
	size_t first = addr > r->addr ? (size_t)(addr - r->addr) : 0;
	size_t end = (size_t)(addr - r->addr) + len;

	end = end < r->len ? end : r->len;
	if (first <= r->first && end >= r->last)
		return region_unmap(r);
	if (first > r->first && end < r->last)
		return hand_back(r, "the program unmaps a part") < 0 ? -1 :
		       kernel_munmap((char *)addr, len);
	if (first < r->library_len &&
	    umadvise(r->addr + first, (end < r->library_len ? end : r->library_len) - first,
		     UMMAP_ADV_DONTNEED) < 0)
		return -1;
	if (first <= r->first)
		r->first = end > r->first ? end : r->first;
	else
		r->last = first < r->last ? first : r->last;
	return 0;
}

/* Called in a signal handler, which has interrupted no code of umrun. A thread that comes second
 * finds no region: it tries again, too. */
static int replace_private(void *addr)
{
	struct region *r;
	int try_again;

	list_lock_write();
	r = list_find(addr, 1);
	try_again = r ? r->is_private && hand_back(r, stores_privately) == 0 : !ummapped(addr, 1);
	list_unlock();
	return try_again;
}

void region_begin_stores(const void *addr, size_t len)
{
	const struct region *r;

	if (!region_private_count)
		return;
	list_lock_write();
	r = list_find(addr, len);
	if (r && r->is_private)
		region_hand_back_range(addr, len, stores_privately);
	list_unlock();
}

int region_hand_back_range(const void *addr, size_t len, const char *reason)
{
	struct region *r;

	while ((r = list_find(addr, len))) {
		if (hand_back(r, reason) < 0)
			return -1;
	}
	return 0;
}

int region_hand_back_file(struct file_id file, off_t end, const char *reason)
{
	for (size_t i = region_file_count; i-- > 0;) {
		struct region *r = list_at(i);

		if (is_same_file(r->file, file) && r->off + (off_t)r->library_len > end &&
		    hand_back(r, reason) < 0)
			return -1;
	}
	return 0;
}

static bool is_of_kinds(const struct region *r, int kinds)
{
	return kinds & REGIONS_ALL || (kinds & REGIONS_WRITABLE && r->is_writable) ||
	       (kinds & REGIONS_SHARED && r->shares_writes) ||
	       (kinds & REGIONS_LEASED && r->shares_writes && r->lease) ||
	       (kinds & REGIONS_BROKEN && r->lease && lease_is_broken(r->lease));
}

/* The watcher of leases tries again every 100 ms, and reports the first failure only. */
bool region_hand_back_kinds(const struct file_id *file, int kinds, const char *reason)
{
	static bool has_told_broken;
	bool is_done = true;

	for (size_t i = region_file_count; i-- > 0;) {
		struct region *r = list_at(i);

		if ((file && !is_same_file(r->file, *file)) || !is_of_kinds(r, kinds) ||
		    hand_back(r, reason) == 0)
			continue;
		is_done = false;
		if (kinds == REGIONS_BROKEN && has_told_broken)
			continue;
		has_told_broken |= kinds == REGIONS_BROKEN;
		fprintf(stderr, "umrun: %s: cannot return a mapping to the kernel because %s: %s\n",
			program_invocation_short_name, reason, umerrormsg());
	}
	return is_done;
}

void region_begin_child(void)
{
	struct region *r;

	while ((r = list_at(0))) {
		if (kernel_mmap(r->addr, r->library_len, r->prot, r->flags | MAP_FIXED, r->fd,
				r->off) == MAP_FAILED)
			abort();
		unmap_ends(r);
		list_remove(r);
		close(r->fd);
		if (r->announced >= 0)
			close(r->announced);
		free(r);
	}
	lease_forget_all();
}
