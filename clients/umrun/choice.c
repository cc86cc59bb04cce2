/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A writable region must be the only mapping of its file. The streams and the asynchronous I/O of
 * the C library make system calls inside the C library, which would miss stores that a region
 * holds: files that they use have no writable regions. `stream_lock` protects the list of streams.
 */
#include "umrun/choice.h"

#include "common/fd_path.h"
#include "umrun/config.h"
#include "umrun/next_calls.h"
#include "umrun/report.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#ifndef MAP_32BIT /* x86 only */
#define MAP_32BIT 0
#endif

/* Bytes of a line that are kept: all but the end of a long name. */
#define MAX_LINE_BYTES 256

struct stream {
	FILE *stream;
	struct file_id file;
	bool is_writable;
	struct stream *next;
};

_Atomic bool choice_has_async, choice_has_memory;
/* Files with a writable mapping of the kernel. */
static struct file_set kernel_files;
static struct stream *streams;
static pthread_mutex_t stream_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned stream_count;

/* ---- Streams ---- */

void choice_note_stream(FILE *stream, struct file_id file, bool is_writable)
{
	struct stream *s = malloc(sizeof(*s));

	if (!s)
		return;
	pthread_mutex_lock(&stream_lock);
	*s = (struct stream){ stream, file, is_writable, streams };
	streams = s;
	stream_count++;
	pthread_mutex_unlock(&stream_lock);
}

void choice_forget_stream(FILE *stream)
{
	struct stream **at = &streams, *gone;

	if (!stream_count)
		return;
	pthread_mutex_lock(&stream_lock);
	while (*at && (*at)->stream != stream)
		at = &(*at)->next;
	gone = *at;
	if (gone) {
		*at = gone->next;
		stream_count--;
	}
	pthread_mutex_unlock(&stream_lock);
	free(gone);
}

/* The C library writes to standard streams, also after their descriptors have been replaced. */
static bool has_stream(struct file_id file, bool is_writable)
{
	struct file_id standard;
	bool has = false;

	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		if (file_of(fd, &standard) && is_same_file(standard, file) &&
		    is_open_for_writing(fd))
			return true;
	}
	if (!stream_count)
		return false;
	pthread_mutex_lock(&stream_lock);
	for (const struct stream *s = streams; s && !has; s = s->next)
		has = is_same_file(s->file, file) && (is_writable || s->is_writable);
	pthread_mutex_unlock(&stream_lock);
	return has;
}

/* ---- Files and mappings ---- */

static bool next_line(FILE *maps, char *line)
{
	int c;

	if (!fgets(line, MAX_LINE_BYTES, maps))
		return false;
	if (!strchr(line, '\n')) {
		while ((c = getc_unlocked(maps)) != '\n' && c != EOF)
			;
	}
	return true;
}

int maps_each_file(const void *addr, size_t len, found_file found, void *arg)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uintptr_t first, end;
	char line[MAX_LINE_BYTES], way;
	unsigned long ino;
	int result = 0;

	if (!maps)
		return -1;
	while (result == 0 && next_line(maps, line)) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*c%*c%*c%c %*s %*s %lu", &first, &end,
			   &way, &ino) != 4 || !ino)
			continue;
		if (first < (uintptr_t)addr + len && (uintptr_t)addr < end)
			result = found((ino_t)ino, way == 's', arg);
	}
	fclose(maps);
	return result;
}

int choice_note_kernel_file(struct file_id file)
{
	return file_set_add(&kernel_files, file);
}

static bool is_in_memory(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) < 0 || fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC ||
	       fs.f_type == HUGETLBFS_MAGIC || fs.f_type == PROC_SUPER_MAGIC ||
	       fs.f_type == SYSFS_MAGIC;
}

static bool matches_name(int fd)
{
	char link[32], path[PATH_MAX];
	ssize_t len;

	if (!config.only)
		return true;
	snprintf(link, sizeof(link), FD_FOLDER "%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	path[len < 0 ? 0 : len] = '\0';
	return fnmatch(config.only, path, 0) == 0 ||
	       (strrchr(path, '/') && fnmatch(config.only, strrchr(path, '/') + 1, 0) == 0);
}

static int compare_file(ino_t ino, bool is_shared, void *wanted)
{
	(void)is_shared;
	return ino == *(ino_t *)wanted;
}

/* The kernel's read-only mappings are not recorded, so /proc/self/maps is searched for them. */
static bool has_other_mapping(struct file_id file, bool is_writable)
{
	for (const struct region *r = list_find_of_file(NULL, file); r;
	     r = list_find_of_file(r, file)) {
		if (r->is_writable || is_writable)
			return true;
	}
	return is_writable && maps_each_file(NULL, SIZE_MAX, compare_file, &file.ino) != 0;
}

bool choice_is_region(size_t library_len, int prot, int flags, int fd, struct file_id file)
{
	const int never = MAP_ANONYMOUS | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_GROWSDOWN |
			  MAP_HUGETLB | MAP_LOCKED | MAP_SYNC | MAP_32BIT;
	bool is_writable = prot & PROT_WRITE && (flags & MAP_TYPE) != MAP_PRIVATE;
	int mode = fcntl(fd, F_GETFL) & O_ACCMODE;

	if (!(flags & MAP_TYPE) || flags & never || prot & PROT_EXEC ||
	    !(prot & (PROT_READ | PROT_WRITE)) || !config.min)
		return false;
	if (library_len < config.min)
		return report_left(fd, LEFT_SMALL, NULL);
	if (!matches_name(fd))
		return report_left(fd, LEFT_NAME, NULL);
	if (is_in_memory(fd))
		return report_left(fd, LEFT_IN_MEMORY, NULL);
	if (mode == O_WRONLY || (is_writable && mode != O_RDWR))
		return report_left(fd, LEFT_ACCESS, NULL);
	if (file_set_has(&kernel_files, file))
		return report_left(fd, LEFT_MAPPED, NULL);
	if (has_stream(file, is_writable))
		return report_left(fd, LEFT_STREAM, NULL);
	if (choice_has_async && (is_writable || mode != O_RDONLY))
		return report_left(fd, LEFT_ASYNC, NULL);
	if (choice_has_memory)
		return report_left(fd, LEFT_MEMORY_FILE, NULL);
	return !has_other_mapping(file, is_writable) || report_left(fd, LEFT_MAPPED, NULL);
}
