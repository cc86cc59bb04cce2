/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Locks of ranges of files and devices: those of open file descriptions, which belong to a handle and not to a process, so
 * that two handles of one process keep each other away, too. Such a lock does not say whose it is: that is looked for in
 * /proc, when somebody is refused.
 */
#include "file.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a line of fdinfo is a lock of such a description that does not go with one of this type and range. */
static bool is_in_the_way(const char *line, const struct flock *wanted)
{
	unsigned long long from, to = INT64_MAX;
	unsigned long long end = (unsigned long long)wanted->l_start + (unsigned long long)wanted->l_len - 1;
	char type[8], last[24];

	if (sscanf(line, "lock: %*s OFDLCK %*s %7s %*s %*s %llu %23s", type, &from, last) != 3)
		return false;
	if (isdigit((unsigned char)*last))
		to = strtoull(last, NULL, 10);
	return (wanted->l_type == F_WRLCK || strcmp(type, "WRITE") == 0) && from <= end &&
	       to >= (unsigned long long)wanted->l_start;
}

static bool descriptor_holds(int process, const char *fd, const struct flock *wanted)
{
	char path[300], line[256];
	bool holds = false;
	FILE *f;
	int info;

	snprintf(path, sizeof(path), "fdinfo/%s", fd);
	info = openat(process, path, O_RDONLY | O_CLOEXEC);
	f = info < 0 ? NULL : fdopen(info, "r");
	while (f && !holds && fgets(line, sizeof(line), f))
		holds = is_in_the_way(line, wanted);
	if (f)
		fclose(f);
	else if (info >= 0)
		close(info);
	return holds;
}

bool file_is_locked_here(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	unsigned long long ino;
	struct stat st;
	bool has = false;
	char line[256];
	FILE *f;
	int pid;

	if (fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type == F_UNLCK || fstat(fd, &st) < 0)
		return false;
	/* It is one of several. */
	f = lock.l_pid == getpid() ? NULL : fopen("/proc/locks", "re");
	while (f && !has && fgets(line, sizeof(line), f))
		has = sscanf(line, "%*s POSIX %*s %*s %d %*x:%*x:%llu", &pid, &ino) == 2 && pid == getpid() && ino == st.st_ino;
	if (f)
		fclose(f);
	return has || lock.l_pid == getpid();
}

/* Whether a process has the file open, and a lock of it that is in the way. */
static bool process_holds(int process, const struct stat *file, const struct flock *wanted)
{
	int fds = openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fds < 0 ? NULL : fdopendir(fds);
	struct dirent *entry;
	bool holds = false;
	struct stat st;

	while (dir && !holds && (entry = readdir(dir)))
		holds = fstatat(fds, entry->d_name, &st, 0) == 0 && st.st_ino == file->st_ino &&
			st.st_dev == file->st_dev && descriptor_holds(process, entry->d_name, wanted);
	if (dir)
		closedir(dir);
	else if (fds >= 0)
		close(fds);
	return holds;
}

static void name_process(int process, const char *pid, char why[160])
{
	int fd = openat(process, "comm", O_RDONLY | O_CLOEXEC);
	char name[32];
	ssize_t len = fd < 0 ? 0 : read(fd, name, sizeof(name));

	if (fd >= 0)
		close(fd);
	/* It ends with a newline. */
	snprintf(why, 160, "process %.16s (%.*s)", pid, len > 1 ? (int)len - 1 : 1, len > 1 ? name : "?");
}

/* Says who keeps a lock from being had; nothing if that cannot be seen. */
static void find_holder(int fd, const struct flock *wanted, char why[160])
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	struct stat file;
	bool known = proc && fstat(fd, &file) == 0;

	*why = '\0';
	while (known && !*why && (entry = readdir(proc))) {
		int process = -1;

		if (isdigit((unsigned char)entry->d_name[0]))
			process = openat(dirfd(proc), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (process < 0)
			continue;
		if (process_holds(process, &file, wanted))
			name_process(process, entry->d_name, why);
		close(process);
	}
	if (proc)
		closedir(proc);
}

int file_lock_fd(int fd, uint64_t off, uint64_t len, int how, char why[160])
{
	static const short types[] = {
		[UMMAP_LOCK_NONE] = F_UNLCK, [UMMAP_LOCK_SHARED] = F_RDLCK, [UMMAP_LOCK_EXCLUSIVE] = F_WRLCK
	};
	struct flock range = { .l_type = types[how], .l_whence = SEEK_SET, .l_start = (off_t)off, .l_len = (off_t)len };
	int err;

	do {
		err = (int)answer(fcntl(fd, F_OFD_SETLK, &range));
	} while (err == -EINTR);
	if (err != -EAGAIN && err != -EACCES)
		return err;
	find_holder(fd, &range, why);
	return -EBUSY;
}

int file_lock(void *h, uint64_t off, uint64_t len, int how, char why[160])
{
	const struct file *f = h;

	/* A lock would belong to the caller's description, and be in the way of the caller's own locks. */
	if (f->given)
		return 0;
	return file_lock_fd(f->fd, off, len, how, why);
}
