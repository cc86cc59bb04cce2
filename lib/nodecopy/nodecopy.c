/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The holders of node copies. Locks: flock(2) on the file of holders while a process joins or
 * leaves; a lock on the byte of its number, for as long as a process is a holder. The kernel
 * releases both when a process ends or calls execve(2). It may release them later than the process
 * has ended: a program that reads /proc/PID/smaps, for example, keeps the memory of the process
 * meanwhile, and so the file and its locks. Therefore the lock of a process that does not exist any
 * more counts as released.
 */
#include "nodecopy/nodecopy.h"

#include "base/config.h"
#include "base/log.h"
#include "base/sys.h"
#include "common/process.h"
#include "common/shm_files.h"
#include "common/try_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAGIC 0x34797063646e6d75ull /* "umndcpy4" */
#define HOLDER_BITS 10
/* Joining and leaving take less than a millisecond, unless a process is stopped meanwhile. */
#define LOCK_TRIES 5000
#define LOCK_US 1000
#define JOIN_TRIES 100

struct holder {
	_Atomic uint32_t generation;   /* number of processes that had this place, and have it */
	int32_t pid;                   /* 0: free */
	int32_t memory;                /* descriptor of the memory in that process */
	_Atomic uint64_t given;        /* bytes of memory that it gives the copy */
};

struct directory {
	uint64_t magic;
	uint64_t pids;                 /* PID namespace of the holders */
	uint64_t device, file;         /* identity of the memory */
	struct holder holders[NODECOPY_HOLDERS];
};

/* ---- The file of holders ---- */

static void begin_path(char path[NODECOPY_PATH_LEN])
{
	snprintf(path, NODECOPY_PATH_LEN, SHM_FOLDER "/ummapcopy-%u-", (unsigned)geteuid());
}

static void make_path(char path[NODECOPY_PATH_LEN], const char *key)
{
	XXH128_hash_t hash = XXH3_128bits(key, strlen(key));
	size_t len;

	begin_path(path);
	len = strlen(path);
	snprintf(path + len, NODECOPY_PATH_LEN - len, "%016llx%016llx%s%s",
		 (unsigned long long)hash.high64, (unsigned long long)hash.low64,
		 config.group ? "-" : "", config.group ? config.group : "");
}

static int check_file(int fd, const char *path)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
	    (st.st_mode & 07777) != 0600)
		return fail(EACCES, "cannot use '%s': it is not a regular file of this user with "
			    "the permissions 0600. Try to remove it", path);
	if (st.st_size != sizeof(struct directory))
		return fail(EINVAL, "cannot use '%s': it is damaged, or of another version of the "
			    "library. Try to end the programs that use it", path);
	return 0;
}

static int lock_file(int fd, const char *path)
{
	int err = try_lock_file(fd, LOCK_EX);

	for (int i = 0; err == -EBUSY && i < LOCK_TRIES; i++) {
		usleep(LOCK_US);
		err = try_lock_file(fd, LOCK_EX);
	}
	return err ? fail(-err, "cannot lock '%s': %s", path, strerror(-err)) : 0;
}

static int open_away(const char *path, int flags)
{
	int fd = open(path, flags | O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : sys_move_fd(fd);
}

/* Memory is allocated now, because a store without memory would raise SIGBUS. */
static int make_file(const char *path)
{
	int fd = shm_make_file(sizeof(struct directory)), err;

	if (fd == -EFBIG)
		return fail(EFBIG, "cannot make '%s': its size, %zu bytes, exceeds RLIMIT_FSIZE "
			    "(ulimit -f). Try a larger limit", path, sizeof(struct directory));
	err = fd < 0 ? fd : 0;
	if (!err && fallocate(fd, 0, 0, sizeof(struct directory)) < 0)
		err = -errno;
	if (!err)
		err = shm_name_file(fd, path);
	if (!err)
		return sys_move_fd(fd);
	if (fd >= 0)
		close(fd);
	return err == -EEXIST ? err : fail(-err, "cannot make '%s': %s. Try to make room in "
					   SHM_FOLDER, path, strerror(-err));
}

/* Opens and locks the file of holders, and makes it if it is missing. */
static int open_file(const char *path)
{
	for (int i = 0; i < JOIN_TRIES; i++) {
		int fd = open_away(path, O_NOFOLLOW | O_NONBLOCK), err;

		if (fd == -ENOENT)
			fd = make_file(path);
		else if (fd < 0)
			return fail(-fd, "cannot open '%s': %s", path, strerror(-fd));
		if (fd == -EEXIST)
			continue;
		if (fd < 0)
			return fd;
		err = check_file(fd, path);
		if (!err)
			err = lock_file(fd, path);
		if (!err && file_has_name(fd, AT_FDCWD, path))
			return fd;
		close(fd);
		if (err)
			return err;
	}
	return fail(EAGAIN, "cannot join '%s': other processes remove it again and again", path);
}

static int map_file(struct nodecopy *c)
{
	void *p = sys_map(sizeof(struct directory), PROT_READ | PROT_WRITE, MAP_SHARED, c->control,
			  0);

	if (p == MAP_FAILED)
		return fail(ENOMEM, "cannot map '%s'", c->path);
	raw_madvise(p, sizeof(struct directory), MADV_DONTFORK);
	c->directory = p;
	return 0;
}

/* ---- Holders ---- */

/* Whether a process has the locks of some of n places from place k on. */
static bool is_locked(int control, unsigned k, unsigned n)
{
	struct flock bytes = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = k, .l_len = n };

	return fcntl(control, F_OFD_GETLK, &bytes) < 0 || bytes.l_type != F_UNLCK;
}

/* Whether the process that took place k last is gone, with all of its threads. A zombie may have
 * threads that still run. Numbers of another PID namespace say nothing here. */
static bool has_ended(int control, unsigned k)
{
	off_t at = (off_t)(offsetof(struct directory, holders) + k * sizeof(struct holder));
	struct holder h;
	uint64_t pids;

	return pread(control, &h, sizeof(h), at) == sizeof(h) && h.pid > 0 &&
	       kill(h.pid, 0) < 0 && errno == ESRCH &&
	       pread(control, &pids, sizeof(pids), offsetof(struct directory, pids)) ==
		       sizeof(pids) && pids == process_namespace();
}

/* Whether another holder has place k. */
static bool is_held(int control, unsigned k)
{
	return is_locked(control, k, 1) && !has_ended(control, k);
}

/* Whether there are other holders. */
static bool has_holders(int control)
{
	bool locked = is_locked(control, 0, NODECOPY_HOLDERS);

	for (unsigned k = 0; locked && k < NODECOPY_HOLDERS; k++) {
		if (is_held(control, k))
			return true;
	}
	return false;
}

static bool lives(const struct nodecopy_view *view, uint64_t owner)
{
	const struct nodecopy *c = (const struct nodecopy *)view;
	unsigned k = owner & (NODECOPY_HOLDERS - 1);

	return c->directory->holders[k].generation == owner >> HOLDER_BITS &&
	       is_held(c->control, k);
}

static int take_place(struct nodecopy *c)
{
	for (unsigned k = 0; k < NODECOPY_HOLDERS; k++) {
		struct holder *h = &c->directory->holders[k];
		uint32_t last = (uint32_t)(NODECOPY_OWNERS >> HOLDER_BITS) - 1;
		int err = try_lock_bytes(c->control, F_WRLCK, k, 1);

		if (err == -EBUSY)
			continue;
		if (err)
			return fail(-err, "cannot lock '%s': %s", c->path, strerror(-err));
		h->generation = h->generation % last + 1;
		h->pid = getpid();
		h->memory = c->memory;
		h->given = 0;
		c->holder = k;
		c->view.owner = (uint64_t)h->generation << HOLDER_BITS | k;
		return 0;
	}
	return fail(EUSERS, "cannot join the node copy: %d processes use it already",
		    NODECOPY_HOLDERS);
}

/* Whether another holder has place k, or this one. */
static bool is_holder(const struct nodecopy *c, unsigned k)
{
	return c->directory->holders[k].pid && (k == c->holder || is_held(c->control, k));
}

unsigned nodecopy_holders(const struct nodecopy *c)
{
	unsigned n = 0;

	for (unsigned k = 0; k < NODECOPY_HOLDERS; k++)
		n += is_holder(c, k);
	return n;
}

void nodecopy_give(struct nodecopy *c, size_t bytes)
{
	struct nodecopy_table *t = c->view.table;
	uint64_t sum = 0, slots;

	c->directory->holders[c->holder].given = bytes;
	for (unsigned k = 0; k < NODECOPY_HOLDERS; k++)
		sum += is_holder(c, k) ? c->directory->holders[k].given : 0;
	slots = sum / t->seg_size;
	nodecopy_set_limit(t, slots < NODECOPY_MIN_SLOTS ? NODECOPY_MIN_SLOTS : slots);
}

size_t nodecopy_bytes(const struct nodecopy *c)
{
	struct stat st;

	return fstat(c->memory, &st) == 0 ? (size_t)st.st_blocks * 512 : 0;
}

/* ---- The memory ---- */

static int map_table(struct nodecopy *c, size_t len)
{
	void *p = sys_map(len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, c->memory, 0);

	if (p == MAP_FAILED)
		return fail(ENOMEM, "cannot map the table of the node copy: no address space. Try "
			    "a larger RLIMIT_AS (ulimit -v)");
	raw_madvise(p, len, MADV_DONTFORK);
	c->view.table = p;
	return 0;
}

static int make_memory(struct nodecopy *c, uint64_t segments, size_t seg_size, uint64_t slots)
{
	size_t len = nodecopy_table_bytes(segments, slots), data = round_up(len, HUGE_PAGE);
	struct nodecopy_table *t;
	struct stat st;
	int err;

	c->memory = sys_move_fd(sys_create_memfd("ummap-copy", data + segments * seg_size));
	if (c->memory < 0)
		return fail(-c->memory, "cannot create memory for a node copy of %llu segments: %s",
			    (unsigned long long)segments, strerror(-c->memory));
	err = map_table(c, len);
	if (err)
		return err;
	t = c->view.table;
	*(uint64_t *)t = MAGIC;
	nodecopy_init(t, segments, slots);
	t->seg_size = seg_size;
	t->data_at = data;
	if (fstat(c->memory, &st) < 0)
		return -errno;
	c->directory->device = st.st_dev;
	c->directory->file = st.st_ino;
	c->directory->pids = process_namespace();
	c->directory->magic = MAGIC;
	return 0;
}

/* Opens the memory of another holder. Returns 1; or 0 if its process is gone or is another one. */
static int open_memory(struct nodecopy *c, const struct holder *h)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", h->pid, h->memory);
	c->memory = open_away(path, 0);
	/* A process without rights may not open the descriptors of a process that ends. */
	if ((c->memory == -EACCES || c->memory == -EPERM) && !is_process_ending(h->pid))
		return fail(EACCES, "cannot open the node copy of process %d: this process may not "
			    "open its memory. Both must be ordinary programs that permit ptrace(2)",
			    h->pid);
	if (c->memory < 0)
		return 0;
	if (fstat(c->memory, &st) == 0 && st.st_dev == c->directory->device &&
	    st.st_ino == c->directory->file)
		return 1;
	close(c->memory);
	return 0;
}

/* Maps the memory of a copy that exists. Returns 1, 0 if there is none, or -errno. */
static int find_memory(struct nodecopy *c, uint64_t segments, size_t seg_size)
{
	struct nodecopy_table head;
	int found = 0, err = 0;

	if (c->directory->magic != MAGIC)
		return 0;
	for (unsigned k = 0; k < NODECOPY_HOLDERS && found <= 0; k++) {
		const struct holder *h = &c->directory->holders[k];

		if (!h->pid || !is_held(c->control, k))
			continue;
		if (c->directory->pids != process_namespace())
			return fail(EXDEV, "cannot join the node copy '%s': it belongs to "
				    "processes of another PID namespace (container). Try to start "
				    "all processes in one, or not to use UMMAP_NODE", c->path);
		found = open_memory(c, h);
		err = found < 0 ? found : err;
	}
	if (found <= 0)
		return err;
	if (pread(c->memory, &head, sizeof(head), 0) != sizeof(head) || head.magic != MAGIC ||
	    head.segments != segments || head.seg_size != seg_size)
		return fail(EINVAL, "cannot join the node copy '%s': it is damaged, or of another "
			    "version of the library. Try to end the programs that use it", c->path);
	err = map_table(c, nodecopy_table_bytes(segments, head.slots));
	return err ? err : 1;
}

static void drop(const struct nodecopy_view *view, uint64_t segment)
{
	const struct nodecopy *c = (const struct nodecopy *)view;
	const struct nodecopy_table *t = view->table;

	while (fallocate(c->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 (off_t)(t->data_at + segment * t->seg_size), (off_t)t->seg_size) < 0 &&
	       errno == EINTR)
		;
}

/* ---- Joining and leaving ---- */

/* Removes a file of holders that killed processes have left. */
static void remove_unheld(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return;
	/* With this lock, no process joins. */
	if (try_lock_file(fd, LOCK_EX) == 0 && file_has_name(fd, AT_FDCWD, path) &&
	    !has_holders(fd))
		unlink(path);
	close(fd);
}

void nodecopy_sweep(void)
{
	char begin[NODECOPY_PATH_LEN];

	begin_path(begin);
	shm_each_file(begin, remove_unheld);
}

static void release_copy(struct nodecopy *c)
{
	if (c->view.table)
		raw_munmap(c->view.table, nodecopy_table_bytes(c->view.table->segments,
							       c->view.table->slots));
	if (c->directory)
		raw_munmap(c->directory, sizeof(struct directory));
	nodecopy_forget(c);
}

int nodecopy_join(struct nodecopy *c, const char *key, uint64_t segments, size_t seg_size,
		  size_t most)
{
	uint64_t slots = most / seg_size;
	int err;

	nodecopy_sweep();
	*c = (struct nodecopy){ .view = { .lives = lives, .drop = drop }, .control = -1,
				.memory = -1 };
	make_path(c->path, key);
	c->control = open_file(c->path);
	if (c->control < 0)
		return c->control;
	slots = slots < NODECOPY_MIN_SLOTS ? NODECOPY_MIN_SLOTS : slots;
	slots = slots > segments ? segments : slots;
	err = map_file(c);
	if (!err)
		err = find_memory(c, segments, seg_size);
	if (err == 0)
		err = make_memory(c, segments, seg_size, slots);
	else if (err == 1)
		err = 0;
	if (!err)
		err = take_place(c);
	if (err) {
		release_copy(c);
		return err;
	}
	flock(c->control, LOCK_UN);
	return 0;
}

void nodecopy_leave(struct nodecopy *c)
{
	if (lock_file(c->control, c->path) == 0) {
		c->directory->holders[c->holder].pid = 0;
		if (!has_holders(c->control))
			unlink(c->path);
	}
	release_copy(c);
}

void nodecopy_forget(struct nodecopy *c)
{
	if (c->control >= 0)
		close(c->control);
	if (c->memory >= 0)
		close(c->memory);
	c->control = c->memory = -1;
	c->directory = NULL;
	c->view.table = NULL;
}
