/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on files with regions: they find the stores of the regions, and the regions show what they
 * change. */
#include "umrun/calls.h"

#include "umrun/config.h"
#include "umrun/descriptors.h"
#include "umrun/region.h"

#include <ummap.h>

/* Most bytes that the kernel moves in one call. */
#define MAX_KERNEL_BYTES ((size_t)0x7ffff000)

/* Reason for handing a region back. */
static const char writes_by_call[] = "the program writes the file by a system call";

bool has_regions(int fd, struct file_id *file)
{
	/* The heap is copied for a child while the list is locked. */
	return region_file_count && !list_is_locked_here() && file_of(fd, file) &&
	       list_has_file(*file);
}

/* Calls umsync_range for the parts of the file's regions in [off, off + len). */
static int sync_file_locked(struct file_id file, off_t off, size_t len, bool writable_only,
			    int flags)
{
	int result = 0;

	for (struct region *r = list_find_of_file(NULL, file); r; r = list_find_of_file(r, file)) {
		off_t from = off > r->off ? off : r->off, end = r->off + (off_t)r->library_len;

		end = off + (off_t)len < end ? off + (off_t)len : end;
		if (from < end && (r->is_writable || !writable_only))
			result |= umsync_range(r->addr + (from - r->off), (size_t)(end - from),
					       flags);
	}
	return result;
}

/* Called before a call reads or writes the file, so that the call finds all stores. */
static int write_stored(struct file_id file, off_t off, size_t len, int flags)
{
	int result;

	list_lock_read();
	result = sync_file_locked(file, off, len, true, flags);
	list_unlock();
	return result;
}

/*
 * Called before a call writes the file. The library writes whole dirty segments: if another thread
 * stored to a segment that the call writes too, write-back would undo the call. Writable regions
 * are therefore handed to the kernel.
 */
static void hand_back_stored(struct file_id file)
{
	const struct region *r;

	list_lock_write();
	r = list_find_of_file(NULL, file);
	if (r && r->is_writable)
		region_hand_back_file(file, 0, writes_by_call);
	list_unlock();
}

/*
 * Called after a call has written to the file, so that the file's regions show the new bytes. A
 * pinned segment cannot be read again, so regions with pins, by a call of another thread or by
 * mlock(2), are handed to the kernel. No thread pins memory while the list is locked for change. A
 * node copy has one version of the file, so it is handed to the kernel, too.
 */
static void show_written(struct file_id file, off_t off, size_t len)
{
	bool must_return = false;

	list_lock_write();
	for (const struct region *r = list_find_of_file(NULL, file); r && !must_return;
	     r = list_find_of_file(r, file)) {
		struct umstat now = { .struct_size = sizeof(now) };

		must_return = r->is_copy ||
			      (umstat(r->addr, &now) == 0 && now.pinned_bytes);
	}
	if (!must_return || region_hand_back_file(file, 0, writes_by_call) < 0)
		sync_file_locked(file, off, len, false, UMMAP_NOFLUSH | UMMAP_EVICT);
	list_unlock();
}

void begin_span(struct span *s, int fd, const off_t *at, size_t len, bool writes)
{
	int error = errno;

	s->has_regions = has_regions(fd, &s->file);
	if (s->has_regions) {
		if (writes)
			hand_back_stored(s->file);
		s->off = at ? *at : lseek(fd, 0, SEEK_CUR);
		write_stored(s->file, s->off, len, UMMAP_NOFLUSH);
	}
	errno = error;
}

void end_span(const struct span *s, ssize_t len)
{
	int error = errno;

	if (s->has_regions && len > 0)
		show_written(s->file, s->off, (size_t)len);
	errno = error;
}

/* ---- Files that become shorter: behind the end, a mapping of the kernel raises SIGBUS. ---- */

static int shorten_file(struct file_id file, off_t len)
{
	int result;

	list_lock_write();
	result = region_hand_back_file(file, len, "the program shortens the file");
	list_unlock();
	return result;
}

/* The call reports other errors. */
int before_ftruncate(int fd, off_t len)
{
	struct file_id file;

	return has_regions(fd, &file) ? shorten_file(file, len) : 0;
}

int shorten_path(int folder, const char *path, off_t len)
{
	int error = errno;
	struct stat st;

	if (region_file_count && path && fstatat(folder, path, &st, 0) == 0 &&
	    shorten_file((struct file_id){ st.st_dev, st.st_ino }, len) < 0)
		return -1;
	errno = error;
	return 0;
}

/* ---- Calls that move bytes between descriptors, or change the contents of a file ---- */

ssize_t take_copy(copy_call next, int in, off_t *in_at, int out, off_t *out_at, size_t len,
		  unsigned flags)
{
	struct span from, to;
	ssize_t n;

	len = len < MAX_KERNEL_BYTES ? len : MAX_KERNEL_BYTES;
	begin_span(&from, in, in_at, len, false);
	begin_span(&to, out, out_at, len, true);
	n = next(in, in_at, out, out_at, len, flags);
	end_span(&to, n);
	return n;
}

ssize_t call_sendfile(int in, off_t *at, int out, off_t *unused, size_t len, unsigned flags)
{
	(void)unused, (void)flags;
	return next_sendfile(out, in, at, len);
}

int take_fallocate(int fd, int mode, off_t off, off_t len)
{
	struct span s;
	int result;

	if (!(mode & ~FALLOC_FL_KEEP_SIZE) || off < 0 || len <= 0)
		return next_fallocate(fd, mode, off, len);
	/* These modes move all pages behind the range, which only a mapping of the kernel shows. */
	if (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE) &&
	    before_ftruncate(fd, off) < 0)
		return -1;
	begin_span(&s, fd, &off, (size_t)len, true);
	result = next_fallocate(fd, mode, off, len);
	end_span(&s, result == 0 ? len : 0);
	return result;
}

/* The file system sees stores, and so the ends of holes, only after they are written. */
void before_seek(int fd, int whence)
{
	struct file_id file;

	if ((whence == SEEK_DATA || whence == SEEK_HOLE) && has_regions(fd, &file))
		write_stored(file, 0, SIZE_MAX >> 1, UMMAP_NOFLUSH);
}

/* The kernel's fsync(2) includes the stores of mappings. */
int before_fsync(int fd)
{
	struct file_id file;

	return has_regions(fd, &file) ? write_stored(file, 0, SIZE_MAX >> 1, 0) : 0;
}

/* ---- Calls on paths and descriptions ---- */

int take_openat(int folder, const char *path, int flags, mode_t mode)
{
	share_memory_file(path);
	if (flags & O_TRUNC && shorten_path(folder, path, 0) < 0)
		return -1;
	return next_openat(folder, path, flags, mode);
}

int take_fcntl(const void *caller, int fd, int command, void *arg)
{
	int result;

	if (region_file_count && !next_is_library(caller) && !list_is_locked_here())
		share_changed_description(fd, command);
	result = next_fcntl(fd, command, arg);
	if (command == F_DUPFD_CLOEXEC && (intptr_t)arg == FD_FIRST && next_is_own(caller))
		descriptors_note_copy(result);
	return result;
}
