/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file in /dev/shm behind the node's registry: where it is, and whether it may be used. It must
 * be a regular file of this user that no other user can access, of the right size, with the header
 * of this version. The file is complete when it gets its name, and is removed with its last user.
 * Lock: flock(2) on the file, shared by all processes that have it mapped. A mapping keeps the open
 * file description, so the kernel releases the lock however a process dies. A process that gets the
 * lock exclusively knows that no other process uses the file, and removes it.
 */
#include "node/registry.h"

#include "base/log.h"
#include "common/try_lock.h"
#include "common/process.h"
#include "common/shm_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRY_REMOVE ". Try to have it removed, or another group (UMMAP_GROUP)"
/* Bounds on the wait for a process that removes the file. Removal takes less than a millisecond,
 * unless the process is stopped meanwhile. */
#define LOCK_TRIES 1000
#define LOCK_US 1000

_Static_assert(sizeof(struct registry_slot) == 64, "one cache line for each process");
_Static_assert(sizeof(struct registry_page) == 8192, "whole pages");

static const struct registry_head head = {
	REGISTRY_MAGIC, REGISTRY_VERSION, REGISTRY_SLOTS, sizeof(struct registry_slot),
	sizeof(struct registry_page), { 0 },
};

static size_t begin_path(char path[REGISTRY_PATH_LEN])
{
	return (size_t)snprintf(path, REGISTRY_PATH_LEN, SHM_FOLDER "/ummap-%u-",
				(unsigned)geteuid());
}

/* The name contains the namespace, because process IDs of other namespaces have no meaning here. */
void registry_path(const char *group, char path[REGISTRY_PATH_LEN])
{
	size_t len = begin_path(path);

	snprintf(path + len, REGISTRY_PATH_LEN - len, "%llu%s%s",
		 (unsigned long long)process_namespace(), group ? "-" : "", group ? group : "");
}

static int check_file(int fd, const char *path)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return fail(errno, "cannot examine '%s': %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return fail(EINVAL, "cannot use '%s': it is not a regular file" TRY_REMOVE, path);
	if (st.st_uid != geteuid())
		return fail(EACCES, "cannot use '%s': it belongs to user %u" TRY_REMOVE, path,
			    (unsigned)st.st_uid);
	if ((st.st_mode & 07777) != 0600)
		return fail(EACCES, "cannot use '%s': its permissions are %04o instead of 0600, so "
			    "another user may have changed it" TRY_REMOVE, path,
			    (unsigned)st.st_mode & 07777);
	if (st.st_size != sizeof(struct registry))
		return fail(EINVAL, "cannot use '%s': its size is %lld bytes instead of %zu, so it "
			    "is damaged or belongs to another version of the library" TRY_REMOVE,
			    path, (long long)st.st_size, sizeof(struct registry));
	return 0;
}

static int check_head(int fd, const char *path)
{
	struct registry_head found;
	ssize_t got = pread(fd, &found, sizeof(found), 0);

	if (got < 0)
		return fail(errno, "cannot read '%s': %s", path, strerror(errno));
	if (got != sizeof(found) || found.magic != head.magic)
		return fail(EINVAL, "cannot use '%s': it is damaged" TRY_REMOVE, path);
	if (memcmp(&found, &head, sizeof(head)) != 0)
		return fail(EINVAL, "cannot use '%s': its version is %u, but this library's is %u. "
			    "Try to end the programs that use it, or another group (UMMAP_GROUP)",
			    path, found.version, head.version);
	return 0;
}

int registry_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), err;

	if (fd < 0)
		return errno == ENOENT ? -ENOENT : fail(errno == ELOOP ? EACCES : errno,
			"cannot open '%s': %s" TRY_REMOVE, path, strerror(errno));
	err = check_file(fd, path);
	if (!err)
		err = check_head(fd, path);
	if (err)
		close(fd);
	return err ? err : fd;
}

/* Allocates memory for all slots, because a store without memory would raise SIGBUS. */
static int fill_file(int fd)
{
	if (fallocate(fd, 0, 0, offsetof(struct registry, page)) < 0)
		return -errno;
	return pwrite(fd, &head, sizeof(head), 0) == sizeof(head) ? 0 : -ENOSPC;
}

int registry_create(const char *path)
{
	int fd = shm_make_file(sizeof(struct registry)), err;

	if (fd == -EFBIG)
		return fail(ENOTSUP, "cannot create '%s': its size, %zu bytes, exceeds "
			    "RLIMIT_FSIZE (ulimit -f). Try a larger limit", path,
			    sizeof(struct registry));
	if (fd < 0)
		return fail(ENOTSUP, "cannot create a file in " SHM_FOLDER ": %s", strerror(-fd));
	err = fill_file(fd);
	if (!err)
		err = shm_name_file(fd, path);
	if (!err)
		return fd;
	close(fd);
	return err == -EEXIST ? err : fail(-err, "cannot create '%s': %s", path, strerror(-err));
}

uint64_t registry_owner(pid_t pid)
{
	struct process_id id = process_identify(pid);

	return (uint64_t)id.start_time << 32 | (uint32_t)id.pid;
}

bool registry_alive(uint64_t owner, uint64_t thread)
{
	struct process_id id = { registry_pid(owner), (uint32_t)(owner >> 32) };

	return is_thread_alive(id, registry_tid(owner, thread));
}

/* ---- Removing registries ---- */

void registry_hold(int fd)
{
	for (int i = 0; i < LOCK_TRIES && try_lock_file(fd, LOCK_SH) == -EBUSY; i++)
		usleep(LOCK_US);
}

/* Does not wait: if another process holds the registry, that process removes it, now or when it
 * leaves. A process that opens the registry meanwhile checks the name when it holds the file, and
 * sees that the name is gone. */
void registry_remove(const char *path)
{
	int fd = registry_open(path);

	if (fd < 0)
		return;
	if (try_lock_file(fd, LOCK_EX) == 0 && file_has_name(fd, AT_FDCWD, path))
		unlink(path);
	close(fd);
}

/* Removes registries of all groups and PID namespaces of this user, but not those of a user whose
 * number has this user's number as a prefix. */
void registry_sweep(void)
{
	char begin[REGISTRY_PATH_LEN];

	begin_path(begin);
	shm_each_file(begin, registry_remove);
	fail_clear();
}
