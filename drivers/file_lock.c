/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Locks of ranges of files and devices. These are locks of open file descriptions: they belong to a
 * handle and not to a process, so that two handles of one process exclude each other, too. Such a
 * lock does not name its holder. When a lock is refused, the holder is looked for in /proc.
 *
 * LOCK GROUPS. A handle that is handed over (ummap-driver.h: hand_over) and the handle that
 * replaces it must not conflict, and no other process may get the lock in between. Both are members
 * of one group, which has one file description for its locks. The kernel's lock of a range is the
 * strongest lock that a member has there, so it is replaced in one call when members come and go. A
 * group of one handle, which is the usual case, behaves as the handle alone would.
 *
 * Lock: `groups.lock`, a leaf, around all groups.
 */
#include "file.h"

#include "common/fork.h"
#include "common/futex.h"
#include "common/try_lock.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Two seconds in all. */
#define MAX_LOCK_TRIES 100
#define LOCK_RETRY_US 20000

/* Whether a line of fdinfo is a lock of an open file description that conflicts with the wanted
 * lock. */
static bool line_conflicts(const char *line, const struct flock *wanted)
{
	unsigned long long from, to = INT64_MAX;
	unsigned long long start = (unsigned long long)wanted->l_start;
	unsigned long long end = start + (unsigned long long)wanted->l_len - 1;
	char type[8], last[24];

	if (sscanf(line, "lock: %*s OFDLCK %*s %7s %*s %*s %llu %23s", type, &from, last) != 3)
		return false;
	if (isdigit((unsigned char)*last))
		to = strtoull(last, NULL, 10);
	return (wanted->l_type == F_WRLCK || strcmp(type, "WRITE") == 0) && from <= end &&
	       to >= start;
}

/* Whether a line of fdinfo is a lock of a process. */
static bool line_is_of_process(const char *line, const struct flock *unused)
{
	char kind[8];

	(void)unused;
	return sscanf(line, "lock: %*s %7s", kind) == 1 && strcmp(kind, "POSIX") == 0;
}

typedef bool (*line_test)(const char *line, const struct flock *wanted);

static bool descriptor_has(int process, const char *fd, line_test test, const struct flock *wanted)
{
	char path[300], line[256];
	bool found = false;
	FILE *f;
	int info;

	snprintf(path, sizeof(path), "fdinfo/%s", fd);
	info = openat(process, path, O_RDONLY | O_CLOEXEC);
	f = info < 0 ? NULL : fdopen(info, "r");
	while (f && !found && fgets(line, sizeof(line), f))
		found = test(line, wanted);
	if (f)
		fclose(f);
	else if (info >= 0)
		close(info);
	return found;
}

/* Whether a process, whose folder in /proc is open, has the file open with such a lock. (To read
 * /proc/locks would stop all locks and closes of the machine for some milliseconds.) */
static bool process_has(int process, const struct stat *file, line_test test,
			const struct flock *wanted)
{
	int fds = openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fds < 0 ? NULL : fdopendir(fds);
	struct dirent *entry;
	bool found = false;
	struct stat st;

	while (dir && !found && (entry = readdir(dir)))
		found = fstatat(fds, entry->d_name, &st, 0) == 0 && st.st_ino == file->st_ino &&
			st.st_dev == file->st_dev &&
			descriptor_has(process, entry->d_name, test, wanted);
	if (dir)
		closedir(dir);
	else if (fds >= 0)
		close(fds);
	return found;
}

bool file_is_locked_here(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct stat st;
	int process;
	bool found;

	if (fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type == F_UNLCK || fstat(fd, &st) < 0)
		return false;
	if (lock.l_pid == getpid())
		return true;
	/* F_OFD_GETLK returns one of several locks, so the others are searched. */
	process = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	found = process >= 0 && process_has(process, &st, line_is_of_process, NULL);
	if (process >= 0)
		close(process);
	return found;
}

static void name_process(int process, const char *pid, char why[160])
{
	int fd = openat(process, "comm", O_RDONLY | O_CLOEXEC);
	char name[32];
	ssize_t len = fd < 0 ? 0 : read(fd, name, sizeof(name));

	if (fd >= 0)
		close(fd);
	/* The name ends with a newline. */
	snprintf(why, 160, "process %.16s (%.*s)", pid, len > 1 ? (int)len - 1 : 1,
		 len > 1 ? name : "?");
}

/* Stores the name of the process whose lock conflicts with the wanted one; "": it was not found. */
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
			process = openat(dirfd(proc), entry->d_name,
					 O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (process < 0)
			continue;
		if (process_has(process, &file, line_conflicts, wanted))
			name_process(process, entry->d_name, why);
		close(process);
	}
	if (proc)
		closedir(proc);
}

int file_lock_fd(int fd, uint64_t off, uint64_t len, int how, char why[160])
{
	static const short types[] = {
		[UMMAP_LOCK_NONE] = F_UNLCK,
		[UMMAP_LOCK_SHARED] = F_RDLCK,
		[UMMAP_LOCK_EXCLUSIVE] = F_WRLCK
	};
	struct flock wanted = { .l_type = types[how], .l_whence = SEEK_SET,
				.l_start = (off_t)off, .l_len = (off_t)len };
	int err;

	for (int tries = 0;; tries++) {
		err = try_lock_bytes(fd, types[how], off, len);
		if (err != -EBUSY)
			return err;
		find_holder(fd, &wanted, why);
		if (*why || tries == MAX_LOCK_TRIES)
			return -EBUSY;
		/* Requests of a dead process may keep the lock for a moment (file_open.c). */
		usleep(LOCK_RETRY_US);
	}
}

/* ---- Lock groups ---- */

/* A range that one handle has locked. */
struct range {
	struct range *next;      /* next range of the group */
	const void *owner;       /* handle that has locked the range */
	uint64_t from, to;       /* first byte, and the byte behind the last one */
	int how;                 /* UMMAP_LOCK_SHARED or UMMAP_LOCK_EXCLUSIVE */
};

struct lock_group {
	struct lock_group *next; /* next group in the list */
	dev_t device;            /* device of the file; a block device's own number */
	ino_t inode;             /* inode of the file; 0: a block device */
	int fd;                  /* descriptor of the description that has the locks */
	bool writable;           /* fd is open for writing, which exclusive locks need */
	bool owns;               /* the group must close fd, whose handle is closed */
	unsigned handles;        /* number of members */
	pid_t pid;               /* process that has the locks; a child only frees memory */
	pid_t offered;           /* thread whose new handles join; 0: none */
	const void *offerer;     /* handle that offers the group to the thread */
	int offer;               /* UMMAP_HANDOVER_KEEP or _SWITCH, while it is offered */
	struct range *ranges;    /* locks of all members */
};

static struct {
	_Atomic uint32_t lock;
	struct lock_group *first;
} groups;

/* The child closes handles in a handler that runs after the lock has been released. */
__attribute__((constructor))
static void register_fork_handler(void)
{
	fork_register(FORK_FILE_LOCKS, &groups.lock, NULL, NULL);
}

/* The strongest lock of any member on the byte `at`. *end is lowered to the next byte where the
 * result may change. */
static int strongest_lock(const struct lock_group *g, uint64_t at, uint64_t *end)
{
	int how = UMMAP_LOCK_NONE;

	for (const struct range *r = g->ranges; r; r = r->next) {
		uint64_t edge = at < r->from ? r->from : r->to;

		if (at < edge && edge < *end)
			*end = edge;
		if (r->from <= at && at < r->to && r->how > how)
			how = r->how;
	}
	return how;
}

/* Sets the kernel's locks in [from, to) to the strongest locks of the members. Making a lock weaker
 * cannot fail. */
static int apply_ranges(const struct lock_group *g, uint64_t from, uint64_t to, char why[160])
{
	int err = 0;

	for (uint64_t end; from < to && !err; from = end) {
		int how;

		end = to;
		how = strongest_lock(g, from, &end);
		err = file_lock_fd(g->fd, from, end - from, how, why);
	}
	return err;
}

/* Removes [from, to) from the owner's ranges, except from the range `newest`. If a range is cut in
 * two, the second part takes *spare, so that the call cannot run out of memory. Returns whether any
 * range was changed. */
static bool cut_ranges(struct lock_group *g, const void *owner, uint64_t from, uint64_t to,
		       const struct range *newest, struct range **spare)
{
	bool changed = false;

	for (struct range **at = &g->ranges, *r; (r = *at);) {
		if (r == newest || r->owner != owner || r->to <= from || to <= r->from) {
			at = &r->next;
			continue;
		}
		changed = true;
		if (r->from < from && to < r->to && *spare) {
			**spare = (struct range){ r->next, owner, to, r->to, r->how };
			r->next = *spare;
			*spare = NULL;
			r->to = from;
		} else if (r->from < from) {
			r->to = from;
		} else if (to < r->to) {
			r->from = to;
		} else {
			*at = r->next;
			free(r);
		}
	}
	return changed;
}

/* Adds the new lock to the older ones first: only this step can fail, and it can be undone. */
static int change_range(struct lock_group *g, const void *owner, uint64_t off, uint64_t len,
			int how, char why[160])
{
	struct range *added = how == UMMAP_LOCK_NONE ? NULL : malloc(sizeof(*added));
	struct range *spare = malloc(sizeof(*spare));
	char unused[160];
	int err = 0;

	if (!spare || (!added && how != UMMAP_LOCK_NONE))
		err = -ENOMEM;
	if (!err && added) {
		*added = (struct range){ g->ranges, owner, off, off + len, how };
		g->ranges = added;
		err = apply_ranges(g, off, off + len, why);
		if (err) {
			g->ranges = added->next;
			apply_ranges(g, off, off + len, unused);
		}
	}
	if (err)
		free(added);
	else if (cut_ranges(g, owner, off, off + len, added, &spare))
		err = apply_ranges(g, off, off + len, why);
	free(spare);
	return err;
}

int lock_group_lock(struct lock_group *g, const void *owner, uint64_t off, uint64_t len, int how,
		    char why[160])
{
	int err;

	futex_lock(&groups.lock);
	err = change_range(g, owner, off, len, how, why);
	futex_unlock(&groups.lock);
	return err;
}

/* Moves the locks to the description of fd. The older description is open for reading only, so it
 * has only shared locks, and both descriptions can have them at the same time. The file is never
 * unlocked in between. */
static void move_locks(struct lock_group *g, int fd)
{
	char unused[160];

	for (const struct range *r = g->ranges; r; r = r->next)
		file_lock_fd(fd, r->from, r->to - r->from, UMMAP_LOCK_SHARED, unused);
	file_lock_fd(g->fd, 0, INT64_MAX, UMMAP_LOCK_NONE, unused);
	if (g->owns)
		file_close_fd(g->fd);
	g->owns = false;
	g->writable = true;
	g->fd = fd;
}

static struct lock_group *new_group(dev_t device, ino_t inode, int fd, bool writable)
{
	struct lock_group *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	*g = (struct lock_group){ .next = groups.first, .device = device, .inode = inode, .fd = fd,
				  .writable = writable, .pid = getpid() };
	return groups.first = g;
}

/* A block device may have several names, so its device number identifies it. */
static dev_t device_of(const struct stat *st)
{
	return S_ISBLK(st->st_mode) ? st->st_rdev : st->st_dev;
}

static ino_t inode_of(const struct stat *st)
{
	return S_ISBLK(st->st_mode) ? 0 : st->st_ino;
}

/* The group of the file that was offered to this thread; NULL: there is none. */
static struct lock_group *find_offered_locked(const struct stat *st)
{
	pid_t thread = (pid_t)syscall(SYS_gettid);
	struct lock_group *g = groups.first;

	while (g &&
	       (g->offered != thread || g->device != device_of(st) || g->inode != inode_of(st)))
		g = g->next;
	return g;
}

int lock_group_find_offer(const struct stat *st)
{
	const struct lock_group *g;
	int how;

	futex_lock(&groups.lock);
	g = find_offered_locked(st);
	how = g ? g->offer : 0;
	futex_unlock(&groups.lock);
	return how;
}

struct lock_group *lock_group_join(int fd, bool writable)
{
	struct lock_group *g;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return NULL;
	futex_lock(&groups.lock);
	g = find_offered_locked(&st);
	if (!g)
		g = new_group(device_of(&st), inode_of(&st), fd, writable);
	else if (writable && !g->writable)
		move_locks(g, fd);
	if (g)
		g->handles++;
	futex_unlock(&groups.lock);
	return g;
}

static void free_group(struct lock_group *g)
{
	struct lock_group **at = &groups.first;

	while (*at != g)
		at = &(*at)->next;
	*at = g->next;
	for (struct range *next; g->ranges; g->ranges = next) {
		next = g->ranges->next;
		free(g->ranges);
	}
	free(g);
}

static void drop_ranges(struct lock_group *g, const void *owner)
{
	struct range *no_spare = NULL;
	char unused[160];

	/* Whole ranges are removed, so none is cut in two. */
	cut_ranges(g, owner, 0, UINT64_MAX, NULL, &no_spare);
	if (g->pid == getpid())
		apply_ranges(g, 0, INT64_MAX, unused);
}

bool lock_group_leave(struct lock_group *g, const void *owner, int fd)
{
	bool keeps;

	futex_lock(&groups.lock);
	keeps = --g->handles > 0 && g->fd == fd;
	if (g->offerer == owner)
		g->offered = 0;
	if (g->handles > 0) {
		drop_ranges(g, owner);
		g->owns = g->owns || keeps;
	} else {
		/* Locks end with their description, but not when a forked child closes it. */
		if (g->owns)
			file_close_fd(g->fd);
		free_group(g);
	}
	futex_unlock(&groups.lock);
	return keeps;
}

void lock_group_offer(struct lock_group *g, const void *owner, int how)
{
	futex_lock(&groups.lock);
	g->offered = how == UMMAP_HANDOVER_CANCEL ? 0 : (pid_t)syscall(SYS_gettid);
	g->offerer = owner;
	g->offer = how;
	futex_unlock(&groups.lock);
}

int file_lock(void *h, uint64_t off, uint64_t len, int how, char why[160])
{
	struct file *f = h;

	/* A lock would belong to the caller's description, and change the caller's own locks. */
	if (f->given)
		return 0;
	return lock_group_lock(f->locks, f, off, len, how, why);
}

int file_hand_over(void *h, struct ummap_handover *to)
{
	struct file *f = h;

	if (to->how != UMMAP_HANDOVER_FINISH)
		lock_group_offer(f->locks, f, to->how);
	return 0;
}
