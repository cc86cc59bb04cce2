/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Containers in folders:
 *
 *	container          what it says of itself
 *	live/UUID          a version: its bytes. Whoever holds it has it open, under a shared lock (flock(2))
 *	names/NAME         a hard link to the newest version of a name; NAME as name_escape makes it
 *	names/.removed.NAME  what that was, until the other files of the name are removed
 *	versions/NAME.N    hard links to the older ones that are kept, with 20 digits; where that is too long, NAME is a hash
 *	views/UUID.h5      a virtual dataset of a version; h5/NAME.h5 is a symbolic link to that of the newest one
 *	locks/XX           who names versions has one of these, by the name's hash
 *	DEVICE/UUID.N.h5   chunks, in the device that a hash of the UUID and the number says
 *
 * So a version that nobody names has one link, and a version that nobody holds can be locked. What is locked and has one link is garbage,
 * and whoever opens a name whose file has lost its links meanwhile opens the name again. A commit is one renaming, in names/: before it, the
 * version that is replaced gets its name in versions/, and behind it those that are too old lose theirs.
 *
 * Lock: `lock`, around the list of files whose contents are not durable yet.
 */
#include "object/folders.h"

#include "common/random.h"
#include "object/durable.h"
#include "object/error.h"
#include "object/id.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static const char *const folder_names[FOLDERS] = { "live", "names", "versions", "views", "h5", "locks" };

/*
 * Who may make and remove what is in a folder has to read, lock and link it, too, also where the umask of who made it says that
 * others may not. Not in a folder like /tmp, where everybody removes only what is his own.
 */
static void share(int folder, int fd)
{
	struct stat in, st;
	mode_t more = 0;

	if (fstat(folder, &in) < 0 || fstat(fd, &st) < 0 || in.st_mode & S_ISVTX)
		return;
	if (in.st_mode & S_IWOTH)
		more |= S_IROTH | S_IWOTH;
	if (in.st_mode & S_IWGRP && (in.st_gid == st.st_gid || in.st_mode & S_IWOTH))
		more |= S_IRGRP | S_IWGRP;
	/* A file system without rights refuses, and needs none. */
	if (more & ~st.st_mode)
		fchmod(fd, (st.st_mode | more) & 0777);
}

/* Makes a file, or opens it. */
static int share_file(int folder, const char *name, int flags)
{
	int fd = openat(folder, name, flags | O_CREAT | O_CLOEXEC, 0666);

	if (fd >= 0)
		share(folder, fd);
	return fd;
}

/* One that others may find and use at once has its rights before it has its name, where the file system and the system can do
 * that. EEXIST. */
static int make_shared(int folder, const char *name)
{
	int fd = openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0666), error;
	char path[32];

	if (fd < 0)
		return share_file(folder, name, O_RDWR | O_EXCL);
	share(folder, fd);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, path, folder, name, AT_SYMLINK_FOLLOW) == 0)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return error == EEXIST ? -1 : share_file(folder, name, O_RDWR | O_EXCL);
}

/* ---- Opening ---- */

static int ensure_folder(const char *path)
{
	if (mkdir(path, 0777) < 0 && errno != EEXIST)
		return object_fail(errno, "cannot create the folder '%s': %s", path,
				   strerror(errno));
	return 0;
}

static void join(char out[static PATH_MAX], const char *folder, const char *name)
{
	if (*name == '/')
		snprintf(out, PATH_MAX, "%s", name);
	else
		snprintf(out, PATH_MAX, "%s/%s", folder, name);
}

/* Into a file of another name, durably, and then under its own: false in *mine if somebody else was first. */
static int write_description(const char *path, const void *bytes, size_t size)
{
	char temporary[PATH_MAX], file[PATH_MAX], text[ID_TEXT];
	struct umobject_id own;
	int fd, folder, error = 0;

	/* Whoever makes it at the same time, in this process or on another machine, has another one. */
	if (id_make(&own) < 0)
		return -1;
	id_text(&own, text);
	snprintf(temporary, sizeof(temporary), "%.4000s/.%s", path, text);
	join(file, path, "container");
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || folder < 0)
		error = errno;
	if (!error)
		error = durable_write(fd, &(struct iovec){ (void *)(uintptr_t)bytes, size }, 1);
	if (!error && (fsync(fd) < 0 || (link(temporary, file) < 0 && errno != EEXIST) || fsync(folder) < 0))
		error = errno;
	unlink(temporary);
	if (fd >= 0)
		close(fd);
	if (folder >= 0)
		close(folder);
	return error ? object_fail(error, "cannot create the container '%s': %s", path,
				   strerror(error)) : 0;
}

static int check_lengths(const char *path, const struct description *d)
{
	size_t i;

	for (i = 0; i < d->ndevices; i++)
		if (strlen(path) + strlen(d->devices[i]) > PATH_MAX - 128)
			return object_fail(ENAMETOOLONG, "cannot use the device '%s' of the "
					   "container '%s': the path is too long", d->devices[i],
					   path);
	return 0;
}

static int create_devices(const char *path, const struct description *d)
{
	char sub[PATH_MAX];
	size_t i;

	for (i = 0; i < d->ndevices; i++) {
		join(sub, path, d->devices[i]);
		if (ensure_folder(sub) < 0)
			return -1;
	}
	return 0;
}

static int create(const char *path, const void *wanted, size_t size)
{
	char sub[PATH_MAX];
	struct description d;
	int result;
	size_t i;

	if (ensure_folder(path) < 0)
		return -1;
	for (i = 0; i < FOLDERS; i++) {
		join(sub, path, folder_names[i]);
		if (ensure_folder(sub) < 0)
			return -1;
	}
	if (description_unpack(wanted, size, path, &d) < 0)
		return -1;
	result = check_lengths(path, &d) < 0 ? -1 : create_devices(path, &d);
	description_free(&d);
	return result < 0 ? -1 : write_description(path, wanted, size);
}

/* NULL with a sentence. */
static void *read_description(const char *path, size_t *size)
{
	char file[PATH_MAX];
	void *bytes;
	int fd;

	join(file, path, "container");
	fd = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		if (errno == ENOENT)
			object_fail(ENOENT, "cannot open the container '%s': there is no container. Try "
				    "\"umobject create %s\"", path, path);
		else
			object_fail(errno, "cannot open the container '%s': %s", path, strerror(errno));
		return NULL;
	}
	bytes = durable_contents(fd, size);
	if (!bytes)
		object_fail(errno, "cannot read the container's description '%s': %s", file,
			    strerror(errno));
	close(fd);
	return bytes;
}

static void folders_close(struct backend *b)
{
	struct folders *f = of(b);
	unsigned i;

	for (i = 0; i < f->nunsynced; i++)
		if (f->unsynced[i].fd >= 0)
			close(f->unsynced[i].fd);
	for (i = 0; i < FOLDERS; i++)
		if (f->folder[i] >= 0)
			close(f->folder[i]);
	for (i = 0; i < f->ndevices; i++) {
		if (f->devices[i] >= 0)
			close(f->devices[i]);
		free(f->device_paths[i]);
		free(f->device_names[i]);
	}
	pthread_mutex_destroy(&f->lock);
	free(f->devices);
	free(f->device_paths);
	free(f->device_names);
	free(f->path);
	free(f);
}

/* A device that is gone is an error only where it is needed. */
static int open_devices(struct folders *f, const struct description *d)
{
	char path[PATH_MAX], name[PATH_MAX];
	size_t i;

	f->devices = calloc(d->ndevices, sizeof(*f->devices));
	f->device_paths = calloc(d->ndevices, sizeof(*f->device_paths));
	f->device_names = calloc(d->ndevices, sizeof(*f->device_names));
	if (!f->devices || !f->device_paths || !f->device_names)
		return object_fail(ENOMEM, "cannot open the container '%s': no memory", f->path);
	for (i = 0; i < d->ndevices; i++) {
		join(path, f->path, d->devices[i]);
		join(name, "..", d->devices[i]);
		f->device_paths[i] = strdup(path);
		f->device_names[i] = strdup(name);
		f->devices[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		f->ndevices++;
		if (!f->device_paths[i] || !f->device_names[i])
			return object_fail(ENOMEM, "cannot open the container '%s': no memory",
					   f->path);
	}
	return 0;
}

static int open_folders(struct folders *f)
{
	char path[PATH_MAX];
	size_t i;

	for (i = 0; i < FOLDERS; i++) {
		join(path, f->path, folder_names[i]);
		f->folder[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (f->folder[i] < 0)
			return object_fail(errno, "cannot open the folder '%s' of the container: "
					   "%s", path, strerror(errno));
	}
	return 0;
}

/* Other files of this process need room, too. */
static unsigned most_unsynced(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 4 < UNSYNCED ? (unsigned)limit.rlim_cur / 4 + 1 : UNSYNCED;
}

/* As the container's description says. */
static int open_all(const char *where, const struct description *d, struct backend **b)
{
	struct folders *f = calloc(1, sizeof(*f));
	char *path = strdup(where);
	size_t i;

	if (!f || !path) {
		free(f);
		free(path);
		return object_fail(ENOMEM, "cannot open the container '%s': no memory", where);
	}
	f->b.ops = &backend_folders;
	f->path = path;
	f->keep = d->keep;
	f->most = most_unsynced();
	pthread_mutex_init(&f->lock, NULL);
	for (i = 0; i < FOLDERS; i++)
		f->folder[i] = -1;
	if (open_folders(f) < 0 || open_devices(f, d) < 0) {
		folders_close(&f->b);
		return -1;
	}
	*b = &f->b;
	return 0;
}

static int folders_open(const char *where, const void *wanted, size_t wanted_size, void **bytes, size_t *size, struct backend **b)
{
	struct description d;
	int result;

	if (strlen(where) > PATH_MAX - 512)
		return object_fail(ENAMETOOLONG, "cannot open the container '%.200s...': the path "
				   "has %zu bytes, and at most %d are possible", where,
				   strlen(where), PATH_MAX - 512);
	if (wanted && create(where, wanted, wanted_size) < 0)
		return -1;
	*bytes = read_description(where, size);
	if (!*bytes)
		return -1;
	result = description_unpack(*bytes, *size, where, &d);
	if (result == 0) {
		result = check_lengths(where, &d) < 0 ? -1 : open_all(where, &d, b);
		description_free(&d);
	}
	if (result < 0)
		free(*bytes);
	return result;
}

/* ---- Chunks ---- */

static unsigned device_of(const struct folders *f, const struct umobject_id *id, uint64_t number)
{
	return (unsigned)(XXH3_64bits_withSeed(id->bytes, sizeof(id->bytes), number) % f->ndevices);
}

static void chunk_name(const struct umobject_id *id, uint64_t number, char name[static 64])
{
	char text[ID_TEXT];

	id_text(id, text);
	snprintf(name, 64, "%s.%llu.h5", text, (unsigned long long)number);
}

static int no_device(const struct folders *f, unsigned device)
{
	return object_fail(ENODEV, "cannot use the device '%s': it could not be opened with the "
			   "container. Try again when it is mounted", f->device_paths[device]);
}

static bool is_of(const struct unsynced *u, const struct umobject_id *id)
{
	return !id || id_same(&u->id, id);
}

/* What is flushed together with chunks. */
struct others {
	int fds[5];
	unsigned n;
};

/* Files of this id, or all, and their devices, where their names are. */
static int flush_some(const struct folders *f, const struct umobject_id *id, const struct others *others)
{
	int fds[UNSYNCED + DEVICES_MAX + 5];
	bool used[DEVICES_MAX] = { false };
	unsigned i, n;

	memcpy(fds, others->fds, sizeof(others->fds));
	n = others->n;
	for (i = 0; i < f->nunsynced; i++) {
		const struct unsynced *u = &f->unsynced[i];

		if (!is_of(u, id) || u->fd < 0)
			continue;
		fds[n++] = u->fd;
		used[u->device] = true;
	}
	for (i = 0; i < f->ndevices; i++)
		if (used[i] && f->devices[i] >= 0)
			fds[n++] = f->devices[i];
	return n ? durable_all(fds, n) : 0;
}

static bool is_noted(const struct folders *f, unsigned n, const struct umobject_id *id)
{
	unsigned i;

	for (i = 0; i < n; i++)
		if (f->unsynced[i].fd < 0 && id_same(&f->unsynced[i].id, id))
			return true;
	return false;
}

/* An error is for the put whose chunks these are, and an earlier one for no other: where files of all puts are flushed, because one needed
 * their places, it stays noted. */
static int sync_some(struct folders *f, const struct umobject_id *id, const struct others *others)
{
	int error = flush_some(f, id, others), earlier = 0;
	unsigned i, left = 0;

	for (i = 0; i < f->nunsynced; i++) {
		struct unsynced u = f->unsynced[i];

		if (!is_of(&u, id)) {
			f->unsynced[left++] = u;
			continue;
		}
		if (u.fd >= 0) {
			close(u.fd);
			u.fd = -1;
			u.error = error;
		}
		earlier = u.error ? u.error : earlier;
		if (!id && u.error && !is_noted(f, left, &u.id))
			f->unsynced[left++] = u;
	}
	f->nunsynced = left;
	error = earlier ? earlier : error;
	return error ? object_fail(error, "cannot make the written chunks durable in '%s': %s",
				   f->path, strerror(error)) : 0;
}

static int sync_with(struct folders *f, const struct umobject_id *id, const struct others *others)
{
	int result;

	pthread_mutex_lock(&f->lock);
	result = sync_some(f, id, others);
	pthread_mutex_unlock(&f->lock);
	return result;
}

static int folders_chunk_sync(struct backend *b, const struct umobject_id *id)
{
	return sync_with(of(b), id, &(struct others){ .n = 0 });
}

static int note_unsynced(struct folders *f, const struct umobject_id *id, int fd, unsigned device)
{
	int result = 0;

	pthread_mutex_lock(&f->lock);
	if (f->nunsynced >= f->most)
		result = sync_some(f, NULL, &(struct others){ .n = 0 });
	if (f->nunsynced < UNSYNCED) {
		f->unsynced[f->nunsynced++] = (struct unsynced){ *id, fd, device, 0 };
		result = 0;
	} else {
		close(fd);
	}
	pthread_mutex_unlock(&f->lock);
	return result;
}

/* A process that has no descriptor left may have them here. */
static int open_temporary(struct folders *f, unsigned device, const char *temporary)
{
	int fd = share_file(f->devices[device], temporary, O_WRONLY | O_TRUNC);

	if (fd >= 0 || errno != EMFILE)
		return fd;
	sync_with(f, NULL, &(struct others){ .n = 0 });
	return share_file(f->devices[device], temporary, O_WRONLY | O_TRUNC);
}

/* Written under another name: one that is put again is whole at any time. */
static int folders_chunk_write(struct backend *b, const struct umobject_id *id, uint64_t number, const struct iovec *iov, int n)
{
	struct folders *f = of(b);
	unsigned device = device_of(f, id, number);
	char name[64], temporary[96];
	int fd, error;

	if (f->devices[device] < 0)
		return no_device(f, device);
	chunk_name(id, number, name);
	/* Two machines may put one chunk at the same time. */
	snprintf(temporary, sizeof(temporary), "%s.%016" PRIx64, name, random_id());
	fd = open_temporary(f, device, temporary);
	if (fd < 0)
		return object_fail(errno, "cannot create the file of chunk %llu in '%s': %s",
				   (unsigned long long)number, f->device_paths[device],
				   strerror(errno));
	error = durable_write(fd, iov, n);
	if (!error && renameat(f->devices[device], temporary, f->devices[device], name) < 0)
		error = errno;
	if (error) {
		unlinkat(f->devices[device], temporary, 0);
		close(fd);
		return object_fail(error, "cannot write chunk %llu to '%s': %s",
				   (unsigned long long)number, f->device_paths[device],
				   strerror(error));
	}
	/* Storage begins now, and has less to do when it has to be durable. */
	sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	return note_unsynced(f, id, fd, device);
}

struct stored_file {
	struct stored s;
	int fd;
};

static int stored_read(struct stored *s, void *to, size_t size, uint64_t at)
{
	int error = durable_read(((struct stored_file *)s)->fd, to, size, at);

	if (error == EBADMSG)
		return object_fail(EBADMSG, "a chunk is damaged: its file is too short");
	return error ? object_fail(error, "cannot read a chunk: %s", strerror(error)) : 0;
}

static void stored_close(struct stored *s)
{
	close(((struct stored_file *)s)->fd);
	free(s);
}

static const struct stored_ops stored_ops = { stored_read, stored_close };

static int folders_chunk_open(struct backend *b, const struct umobject_id *id, uint64_t number, struct stored **stored)
{
	struct folders *f = of(b);
	unsigned device = device_of(f, id, number);
	struct stored_file *s;
	char name[64];
	int fd;

	if (f->devices[device] < 0)
		return no_device(f, device);
	chunk_name(id, number, name);
	fd = openat(f->devices[device], name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ?
			object_fail(ENODATA, "chunk %llu is missing: there is no file '%s' in '%s'",
				    (unsigned long long)number, name, f->device_paths[device]) :
			object_fail(errno, "cannot open the chunk '%s' in '%s': %s", name,
				    f->device_paths[device], strerror(errno));
	s = malloc(sizeof(*s));
	if (!s) {
		close(fd);
		return object_fail(ENOMEM, "cannot open chunk %llu: no memory",
				   (unsigned long long)number);
	}
	*s = (struct stored_file){ { &stored_ops }, fd };
	*stored = &s->s;
	return 0;
}

static int folders_chunk_there(struct backend *b, const struct umobject_id *id, uint64_t number, bool *there)
{
	struct folders *f = of(b);
	unsigned device = device_of(f, id, number);
	char name[64];

	if (f->devices[device] < 0)
		return no_device(f, device);
	chunk_name(id, number, name);
	*there = faccessat(f->devices[device], name, F_OK, 0) == 0;
	return *there || errno == ENOENT ? 0 : object_fail(errno, "cannot look for the chunk '%s' "
			"in '%s': %s", name, f->device_paths[device], strerror(errno));
}

static int chunk_remove(const struct folders *f, const struct umobject_id *id, uint64_t number)
{
	unsigned device = device_of(f, id, number);
	char name[64];

	if (f->devices[device] < 0)
		return no_device(f, device);
	chunk_name(id, number, name);
	if (unlinkat(f->devices[device], name, 0) < 0 && errno != ENOENT)
		return object_fail(errno, "cannot remove the chunk '%s' from '%s': %s", name,
				   f->device_paths[device], strerror(errno));
	return 0;
}

static int folders_chunks_remove(struct backend *b, const struct umobject_id *id, uint64_t first, uint64_t count)
{
	uint64_t number;

	for (number = first; number < first + count; number++)
		if (chunk_remove(of(b), id, number) < 0)
			return -1;
	return 0;
}

/* ---- Versions ---- */

struct lease *folders_lease(const struct umobject_id *id, int fd)
{
	struct lease *l = malloc(sizeof(*l));

	if (l)
		*l = (struct lease){ fd, *id };
	return l;
}

/* The collector has the lock for a moment, where it looks at a version. */
static int lock_shared(int fd)
{
	int result;

	do
		result = flock(fd, LOCK_SH);
	while (result < 0 && errno == EINTR);
	return result;
}

bool has_links(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

static int folders_version_new(struct backend *b, const struct umobject_id *id, const char *of_name, const void *bytes, size_t size,
			       struct lease **lease)
{
	struct folders *f = of(b);
	char name[ID_TEXT];
	int fd, error = 0;

	(void)of_name;
	id_text(id, name);
	do {
		fd = make_shared(f->folder[LIVE], name);
		if (fd < 0)
			return object_fail(errno, "cannot create a version in '%s/live': %s",
					   f->path, strerror(errno));
		if (lock_shared(fd) < 0)
			error = errno;
		/* Garbage may have been collected just now. */
	} while (!error && !has_links(fd) && close(fd) == 0);
	if (!error)
		error = durable_write(fd, &(struct iovec){ (void *)(uintptr_t)bytes, size }, 1);
	*lease = error ? NULL : folders_lease(id, fd);
	if (*lease)
		return 0;
	unlinkat(f->folder[LIVE], name, 0);
	close(fd);
	return object_fail(error ? error : ENOMEM, "cannot create a version in '%s/live': %s",
			   f->path, strerror(error ? error : ENOMEM));
}

/* Opens and locks a version by a link to it: 0; 1: it has gone meanwhile; -1. */
static int hold_link(const struct folders *f, int folder, const char *name, int *fd)
{
	*fd = openat(f->folder[folder], name, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (*fd < 0 && (errno == EACCES || errno == EROFS))
		*fd = openat(f->folder[folder], name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (*fd < 0)
		return errno == ENOENT ?
			object_fail(ENOENT, "cannot find an object of this name in '%s'", f->path) :
			object_fail(errno, "cannot open '%s/%s/%s': %s", f->path,
				    folder_names[folder], name, strerror(errno));
	if (lock_shared(*fd) < 0) {
		int error = errno;

		close(*fd);
		return object_fail(error, "cannot lock '%s/%s/%s': %s", f->path,
				   folder_names[folder], name, strerror(error));
	}
	if (has_links(*fd))
		return 0;
	close(*fd);
	return 1;
}

int folders_hold(const struct folders *f, int folder, const char *name, struct lease **lease, void **bytes, size_t *size)
{
	int fd, result;

	/* Each time somebody else has made a newer one, so this ends. */
	do
		result = hold_link(f, folder, name, &fd);
	while (result > 0);
	if (result < 0)
		return -1;
	*bytes = durable_contents(fd, size);
	*lease = *bytes ? folders_lease(&(struct umobject_id){ { 0 } }, fd) : NULL;
	if (*lease)
		return 0;
	result = errno;
	free(*bytes);
	close(fd);
	return object_fail(result, "cannot read '%s/%s/%s': %s", f->path, folder_names[folder],
			   name, strerror(result));
}

static int folders_version_hold(struct backend *b, const struct umobject_id *id, struct lease **lease, void **bytes, size_t *size)
{
	char name[ID_TEXT];

	id_text(id, name);
	if (folders_hold(of(b), LIVE, name, lease, bytes, size) < 0)
		return errno != ENOENT ? -1 :
			object_fail(ENOENT, "cannot find version '%s' in '%s'", name, of(b)->path);
	(*lease)->id = *id;
	return 0;
}

void folders_version_stem(const char *name, char text[static NAME_TEXT])
{
	name_escape(name, text);
	if (strlen(text) > NAME_MAX - VERSION_TEXT)
		name_hash(name, text);
}

void folders_version_name(const char *name, uint64_t version, char text[static NAME_TEXT + 24])
{
	folders_version_stem(name, text);
	sprintf(text + strlen(text), ".%020llu", (unsigned long long)version);
}

/* The newest version of a name, with what it says of itself; NULL. */
static struct object *hold_newest(const struct folders *f, const char *escaped, struct lease **lease, void **bytes, size_t *size)
{
	struct object *o;

	if (folders_hold(f, NAMES, escaped, lease, bytes, size) < 0)
		return NULL;
	o = object_unpack(*bytes, *size, escaped);
	if (o)
		return o;
	close((*lease)->fd);
	free(*lease);
	free(*bytes);
	return NULL;
}

/* 0: it is not known, and errno says why. */
static uint64_t newest_number(const struct folders *f, const char *escaped)
{
	struct lease *lease;
	void *bytes;
	size_t size;
	struct object *o = hold_newest(f, escaped, &lease, &bytes, &size);
	uint64_t number;

	if (!o)
		return 0;
	number = o->version;
	object_free(o);
	close(lease->fd);
	free(lease);
	free(bytes);
	return number;
}

/* The newest one, if it has this number; 1: it has a greater one. */
static int hold_if_newest(const struct folders *f, const char *escaped, uint64_t version, struct lease **lease, void **bytes, size_t *size)
{
	struct object *o = hold_newest(f, escaped, lease, bytes, size);
	uint64_t number;

	if (!o)
		return -1;
	number = o->version;
	object_free(o);
	if (number == version)
		return 0;
	close((*lease)->fd);
	free(*lease);
	free(*bytes);
	return number > version ? 1 : object_fail(ENOENT, "cannot find the version");
}

static bool is_being_removed(const struct folders *f, const char *escaped)
{
	char removed[NAME_TEXT + 16];

	folders_removed_name(escaped, removed);
	return faccessat(f->folder[NAMES], removed, F_OK, 0) == 0;
}

/* One that is replaced between the two looks has its other name by the second. */
static int hold_number(const struct folders *f, const char *name, uint64_t version, struct lease **lease, void **bytes, size_t *size)
{
	char escaped[NAME_TEXT], text[NAME_TEXT + 24];
	int result;

	name_escape(name, escaped);
	folders_version_name(name, version, text);
	if (is_being_removed(f, escaped))
		return object_fail(ENOENT, "cannot find the version");
	result = folders_hold(f, VERSIONS, text, lease, bytes, size);
	if (result == 0 || errno != ENOENT)
		return result;
	result = hold_if_newest(f, escaped, version, lease, bytes, size);
	return result > 0 ? folders_hold(f, VERSIONS, text, lease, bytes, size) : result;
}

static int folders_name_hold(struct backend *b, const char *name, uint64_t version, struct lease **lease, void **bytes, size_t *size)
{
	char escaped[NAME_TEXT];
	int result;

	name_escape(name, escaped);
	result = version ? hold_number(of(b), name, version, lease, bytes, size) : folders_hold(of(b), NAMES, escaped, lease, bytes, size);
	if (result < 0 && errno == ENOENT)
		return version ?
			object_fail(ENOENT, "cannot find version %llu of '%s' in '%s': it does not "
				    "exist or is no longer kept. Try \"umobject ls CONTAINER "
				    "NAME\"", (unsigned long long)version, name, of(b)->path) :
			object_fail(ENOENT, "cannot find the object '%s' in '%s'. Try \"umobject "
				    "ls\"", name, of(b)->path);
	return result;
}

static void folders_release(struct backend *b, struct lease *lease)
{
	(void)b;
	close(lease->fd);
	free(lease);
}

/* ---- Names ---- */

int folders_open_to_lock(const struct folders *f, int folder, const char *file)
{
	int fd = openat(f->folder[folder], file, O_RDWR | O_NONBLOCK | O_CLOEXEC);

	return fd < 0 && errno == EACCES ? openat(f->folder[folder], file, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : fd;
}

static int open_lock(const struct folders *f, const char *file)
{
	int fd;

	do {
		fd = folders_open_to_lock(f, LOCKS, file);
		if (fd < 0 && errno == ENOENT)
			fd = make_shared(f->folder[LOCKS], file);
		/* Somebody else has just made it. */
	} while (fd < 0 && errno == EEXIST);
	return fd;
}

static int folders_name_lock(struct backend *b, const char *name, void **lock)
{
	struct folders *f = of(b);
	int *fd = malloc(sizeof(*fd));
	char file[8];

	if (!fd)
		return object_fail(ENOMEM, "cannot lock a name in '%s': no memory", f->path);
	if (*name)
		snprintf(file, sizeof(file), "%02x", (unsigned)(XXH3_64bits(name, strlen(name)) & 0x3f));
	else
		strcpy(file, "collect");
	*fd = open_lock(f, file);
	while (*fd >= 0 && flock(*fd, LOCK_EX) < 0 && errno == EINTR)
		;
	if (*fd < 0) {
		int error = errno;

		free(fd);
		return object_fail(error, "cannot open '%s/locks/%s': %s", f->path, file,
				   strerror(error));
	}
	*lock = fd;
	return 0;
}

static void folders_name_unlock(struct backend *b, void *lock)
{
	int *fd = lock;

	(void)b;
	/* A child that another thread has made meanwhile has the file open as well. */
	flock(*fd, LOCK_UN);
	close(*fd);
	free(fd);
}

/* The version is another file from now on, locked before others can see it, so that nobody ever reads half of it. */
static int rewrite(const struct folders *f, struct lease *lease, const void *bytes, size_t size)
{
	char name[ID_TEXT], temporary[ID_TEXT + 1];
	int fd, error = 0;

	id_text(&lease->id, name);
	snprintf(temporary, sizeof(temporary), ".%s", name);
	fd = share_file(f->folder[LIVE], temporary, O_RDWR | O_TRUNC);
	if (fd < 0)
		return errno;
	if (lock_shared(fd) < 0)
		error = errno;
	if (!error)
		error = durable_write(fd, &(struct iovec){ (void *)(uintptr_t)bytes, size }, 1);
	if (!error && renameat(f->folder[LIVE], temporary, f->folder[LIVE], name) < 0)
		error = errno;
	if (error) {
		unlinkat(f->folder[LIVE], temporary, 0);
		close(fd);
		return error;
	}
	close(lease->fd);
	lease->fd = fd;
	return 0;
}

/* Chunks, view, version and the folders that have their names: all are durable before anything refers to them. */
static int sync_version(struct folders *f, const struct lease *lease)
{
	struct others others = { { lease->fd, f->folder[LIVE], f->folder[VIEWS] }, 3 };
	char name[ID_TEXT + 3];
	int view, result;

	id_text(&lease->id, name);
	strcat(name, ".h5");
	view = openat(f->folder[VIEWS], name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (view >= 0)
		others.fds[others.n++] = view;
	if (f->keep > 1)
		others.fds[others.n++] = f->folder[VERSIONS];
	result = sync_with(f, &lease->id, &others);
	if (view >= 0)
		close(view);
	return result;
}

/* A link of this name to the version, in place of another one. */
int folders_point_name(const struct folders *f, int folder, const char *name, const char *id)
{
	char temporary[ID_TEXT + 8];

	snprintf(temporary, sizeof(temporary), ".%s", id);
	unlinkat(f->folder[folder], temporary, 0);
	if (linkat(f->folder[LIVE], id, f->folder[folder], temporary, 0) < 0 ||
	    renameat(f->folder[folder], temporary, f->folder[folder], name) < 0)
		return errno;
	return 0;
}

/* What people open; it follows the name, and is no part of what is promised to be durable. */
void folders_point_view(const struct folders *f, const char *name, const char *id)
{
	char link[NAME_TEXT + 8], target[ID_TEXT + 16], temporary[ID_TEXT + 8];

	snprintf(link, sizeof(link), "%s.h5", name);
	snprintf(target, sizeof(target), "../views/%s.h5", id);
	snprintf(temporary, sizeof(temporary), ".%s", id);
	unlinkat(f->folder[H5], temporary, 0);
	if (symlinkat(target, f->folder[H5], temporary) == 0)
		renameat(f->folder[H5], temporary, f->folder[H5], link);
}

DIR *folders_read(const struct folders *f, int folder)
{
	int fd = openat(f->folder[folder], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		object_fail(errno, "cannot read the folder '%s/%s': %s", f->path,
			    folder_names[folder], strerror(errno));
		if (fd >= 0)
			close(fd);
	}
	return d;
}

/* False: it had none. */
static bool drop_version_name(const struct folders *f, const char *name, uint64_t version)
{
	char text[NAME_TEXT + 24];

	folders_version_name(name, version, text);
	return unlinkat(f->folder[VERSIONS], text, 0) == 0;
}

/* What a commit that was killed did not drop stands right before what the next one drops. */
static void drop_before(const struct folders *f, const char *name, uint64_t first)
{
	while (first > 1 && drop_version_name(f, name, --first))
		;
}

/* The version that is replaced has its number as its name from now on. */
static int keep_old(const struct folders *f, const char *name, const char *escaped, uint64_t version, const char *id)
{
	char text[NAME_TEXT + 24], temporary[ID_TEXT + 8];
	int error = 0;

	if (f->keep < 2 || version < 2)
		return 0;
	folders_version_name(name, version - 1, text);
	snprintf(temporary, sizeof(temporary), ".%s", id);
	unlinkat(f->folder[VERSIONS], temporary, 0);
	if (linkat(f->folder[NAMES], escaped, f->folder[VERSIONS], temporary, 0) < 0 ||
	    renameat(f->folder[VERSIONS], temporary, f->folder[VERSIONS], text) < 0)
		error = errno;
	/* It stays where both were the same already: a commit before this one has failed behind this step. */
	unlinkat(f->folder[VERSIONS], temporary, 0);
	return error;
}

static uint64_t first_kept(uint64_t version, unsigned keep)
{
	return version > keep ? version - keep + 1 : 1;
}

static int finish_removal(const struct folders *f, const char *name, const char *escaped);

/* A first version under a name that is missing would make garbage of the versions that it had. */
static int refuse_lost(const struct folders *f, const char *name, const char *escaped)
{
	char link[NAME_TEXT + 8], id[ID_TEXT];

	snprintf(link, sizeof(link), "%s.h5", escaped);
	if (!folders_leads_to_version(f, link, id))
		return 0;
	return object_fail(EBADMSG, "cannot commit '%s': its name is missing, but its version '%s' exists. Try "
			   "\"umobject check --repair\" to restore it, or \"umobject rm\" to delete it", name, id);
}

static int folders_publish(struct backend *b, struct lease *lease, const char *name, uint64_t version, unsigned keep, const void *bytes,
			   size_t size)
{
	struct folders *f = of(b);
	char escaped[NAME_TEXT], id[ID_TEXT];
	int error;

	name_escape(name, escaped);
	id_text(&lease->id, id);
	/* Older versions of this name are those of another object, whose removal was interrupted. */
	if (version == 1 && (finish_removal(f, name, escaped) < 0 || refuse_lost(f, name, escaped) < 0))
		return -1;
	error = rewrite(f, lease, bytes, size);
	if (error)
		return object_fail(error, "cannot commit version %llu of '%s': writing it failed: "
				   "%s", (unsigned long long)version, name, strerror(error));
	error = keep_old(f, name, escaped, version, id);
	if (error)
		return object_fail(error, "cannot commit version %llu of '%s': the previous "
				   "version cannot be kept: %s", (unsigned long long)version, name,
				   strerror(error));
	if (sync_version(f, lease) < 0)
		return -1;
	error = folders_point_name(f, NAMES, escaped, id);
	if (!error && fsync(f->folder[NAMES]) < 0)
		error = errno;
	if (error)
		return object_fail(error, "cannot commit version %llu of '%s': writing the name "
				   "failed: %s", (unsigned long long)version, name,
				   strerror(error));
	folders_point_view(f, escaped, id);
	drop_before(f, name, first_kept(version, keep));
	return 0;
}

bool folders_has_view(const struct folders *f, const char *escaped, const char *id)
{
	char link[NAME_TEXT + 8], target[ID_TEXT + 16], is[ID_TEXT + 16] = "";

	snprintf(link, sizeof(link), "%s.h5", escaped);
	snprintf(target, sizeof(target), "../views/%s.h5", id);
	return readlinkat(f->folder[H5], link, is, sizeof(is) - 1) > 0 && strcmp(is, target) == 0;
}

/* A copy of a container may have files where this one has links: what is in live/ would be garbage there. */
static int restore_link(const struct folders *f, int folder, const char *name, const char *id)
{
	char temporary[ID_TEXT + 1];
	struct stat named, live;

	if (fstatat(f->folder[folder], name, &named, 0) == 0 && fstatat(f->folder[LIVE], id, &live, 0) == 0 &&
	    named.st_ino == live.st_ino && named.st_dev == live.st_dev)
		return 0;
	snprintf(temporary, sizeof(temporary), ".%s", id);
	unlinkat(f->folder[LIVE], temporary, 0);
	if (linkat(f->folder[folder], name, f->folder[LIVE], temporary, 0) < 0 ||
	    renameat(f->folder[LIVE], temporary, f->folder[LIVE], id) < 0)
		return object_fail(errno, "cannot make '%s/%s/%s' a link to its version in live/: "
				   "%s", f->path, folder_names[folder], name, strerror(errno));
	return 0;
}

/* The same for an older version, if it is there. */
static int restore_old(const struct folders *f, const char *name, uint64_t version)
{
	char text[NAME_TEXT + 24], id[ID_TEXT];
	struct lease *lease;
	struct object *o;
	int result = -1;
	void *bytes;
	size_t size;

	folders_version_name(name, version, text);
	if (folders_hold(f, VERSIONS, text, &lease, &bytes, &size) < 0)
		return errno == ENOENT ? 0 : -1;
	o = object_unpack(bytes, size, text);
	if (o) {
		id_text(&o->id, id);
		result = restore_link(f, VERSIONS, text, id);
	}
	object_free(o);
	free(bytes);
	close(lease->fd);
	free(lease);
	return result;
}

static int folders_settle(struct backend *b, const char *name, const struct umobject_id *newest, uint64_t version)
{
	const struct folders *f = of(b);
	char escaped[NAME_TEXT], id[ID_TEXT];
	uint64_t number;

	name_escape(name, escaped);
	id_text(newest, id);
	if (!folders_has_view(f, escaped, id))
		folders_point_view(f, escaped, id);
	drop_before(f, name, first_kept(version, f->keep));
	for (number = first_kept(version, f->keep); number < version; number++)
		if (restore_old(f, name, number) < 0)
			return -1;
	return restore_link(f, NAMES, escaped, id);
}

void folders_removed_name(const char *escaped, char text[static NAME_TEXT + 16])
{
	sprintf(text, "%s%s", REMOVED, escaped);
}

/* Removes all files of a name in versions/, where its newest version does not tell how many there are: their number, or -1. */
static int drop_all(const struct folders *f, const char *name)
{
	DIR *d = folders_read(f, VERSIONS);
	char stem[NAME_TEXT];
	const struct dirent *e;
	int dropped = 0;
	size_t len;

	if (!d)
		return -1;
	folders_version_stem(name, stem);
	len = strlen(stem);
	while ((e = readdir(d)))
		if (strncmp(e->d_name, stem, len) == 0 && e->d_name[len] == '.' && strlen(e->d_name + len) == VERSION_TEXT)
			dropped += unlinkat(f->folder[VERSIONS], e->d_name, 0) == 0;
	closedir(d);
	return dropped;
}

/* Removes what refers to a name whose file in names/ is missing. */
static int remove_lost(const struct folders *f, const char *name, const char *escaped)
{
	char link[NAME_TEXT + 8];
	int dropped = drop_all(f, name);

	if (dropped < 0)
		return -1;
	snprintf(link, sizeof(link), "%s.h5", escaped);
	dropped += unlinkat(f->folder[H5], link, 0) == 0;
	if (!dropped)
		return object_fail(ENOENT, "cannot find the object '%s' in '%s'. Try \"umobject "
				   "ls\"", name, f->path);
	if (fsync(f->folder[VERSIONS]) < 0 || fsync(f->folder[H5]) < 0)
		return object_fail(errno, "cannot delete the object '%s': %s", name,
				   strerror(errno));
	return 0;
}

/* Removes older versions, the link in h5/ and the file of a name that has been removed. Under the name's lock. */
static int finish_removal(const struct folders *f, const char *name, const char *escaped)
{
	char removed[NAME_TEXT + 16], link[NAME_TEXT + 8];
	uint64_t version, first;

	folders_removed_name(escaped, removed);
	version = newest_number(f, removed);
	if (!version && errno != EBADMSG)
		return errno == ENOENT ? 0 : -1;
	if (!version && drop_all(f, name) < 0)
		return -1;
	first = first_kept(version, f->keep);
	drop_before(f, name, first);
	/* A commit that was killed may have kept the newest version as well. */
	for (; first <= version; first++)
		drop_version_name(f, name, first);
	snprintf(link, sizeof(link), "%s.h5", escaped);
	unlinkat(f->folder[H5], link, 0);
	if ((f->keep > 1 && fsync(f->folder[VERSIONS]) < 0) || fsync(f->folder[H5]) < 0 || unlinkat(f->folder[NAMES], removed, 0) < 0)
		return object_fail(errno, "cannot delete the object '%s': %s", name,
				   strerror(errno));
	return 0;
}

int folders_finish_removal(const struct folders *f, const char *escaped)
{
	char removed[NAME_TEXT + 16], *name = name_unescape(escaped);
	struct backend *b = (struct backend *)(uintptr_t)&f->b;
	void *lock;
	int result;

	folders_removed_name(escaped, removed);
	if (!name)
		name = folders_name_in_file(of(b), NAMES, removed);
	/* Another process has finished it. */
	if (!name)
		return errno == ENOENT ? 0 : -1;
	result = folders_name_lock(b, name, &lock);
	if (result == 0) {
		result = finish_removal(f, name, escaped);
		folders_name_unlock(b, lock);
	}
	free(name);
	return result;
}

/* The name is gone as soon as its file in names/ has another name, and durably so before anything else is removed: a name whose
 * file is missing altogether is damaged. */
static int folders_name_remove(struct backend *b, const char *name)
{
	struct folders *f = of(b);
	char escaped[NAME_TEXT], removed[NAME_TEXT + 16];

	name_escape(name, escaped);
	folders_removed_name(escaped, removed);
	if (finish_removal(f, name, escaped) < 0)
		return -1;
	if (renameat(f->folder[NAMES], escaped, f->folder[NAMES], removed) < 0)
		return errno == ENOENT ? remove_lost(f, name, escaped) : object_fail(errno,
				"cannot delete the object '%s': %s", name, strerror(errno));
	if (fsync(f->folder[NAMES]) < 0)
		return object_fail(errno, "cannot delete the object '%s': %s", name,
				   strerror(errno));
	return finish_removal(f, name, escaped);
}

char *folders_name_in_file(struct folders *f, int folder, const char *file)
{
	struct lease *lease;
	struct object *o;
	char *name = NULL;
	void *bytes;
	size_t size;

	if (folders_hold(f, folder, file, &lease, &bytes, &size) < 0)
		return NULL;
	o = object_unpack(bytes, size, file);
	if (o) {
		name = o->name;
		o->name = NULL;
	}
	object_free(o);
	free(bytes);
	folders_release(&f->b, lease);
	return name;
}

/* Files that were listed, sorted as far as `sorted`, and why one of them has no name that can be told. */
struct listed {
	char **files;
	size_t n, sorted;
	struct failure failed;
};

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* False: no memory. */
static bool note_listed(struct listed *l, const char *file)
{
	char **grown = realloc(l->files, (l->n + 1) * sizeof(*grown));

	if (!grown)
		return false;
	l->files = grown;
	grown[l->n] = strdup(file);
	return grown[l->n] && ++l->n;
}

static int tell_name(struct folders *f, struct listed *l, const char *file, int (*each)(void *arg, const char *name), void *arg)
{
	char *name = name_unescape(file);
	int result;

	if (!name)
		name = folders_name_in_file(f, NAMES, file);
	/* One that is deleted meanwhile is no longer in the list. One that is damaged does not hide the others. */
	if (!name && errno != ENOENT)
		failure_keep(&l->failed);
	result = name ? each(arg, name) : 0;
	free(name);
	return result;
}

/* All that are not listed yet. */
static int list_names(struct folders *f, struct listed *l, int (*each)(void *arg, const char *name), void *arg)
{
	DIR *d = folders_read(f, NAMES);
	const struct dirent *e;
	int result = 0;

	if (!d)
		return -1;
	while (result == 0 && (e = readdir(d))) {
		const char *file = e->d_name;

		if (*file == '.' || (l->sorted && bsearch(&file, l->files, l->sorted, sizeof(*l->files), by_text)))
			continue;
		result = note_listed(l, file) ? tell_name(f, l, file, each, arg) :
			object_fail(ENOMEM, "cannot list the names in '%s': no memory", f->path);
	}
	closedir(d);
	return result;
}

/* When the folder has changed last. */
static struct timespec change_of_names(const struct folders *f)
{
	struct stat st = { 0 };

	fstat(f->folder[NAMES], &st);
	return st.st_mtim;
}

/* So often names are listed if they change each time. */
#define LOOKS 10

/* While names get new versions, a list may leave them out (readdir(3) of tmpfs does), so it is taken once more. */
static int folders_names(struct backend *b, int (*each)(void *arg, const char *name), void *arg)
{
	struct folders *f = of(b);
	struct timespec before, now;
	struct listed l = { 0 };
	unsigned looks = 0;
	int result;

	do {
		before = change_of_names(f);
		result = list_names(f, &l, each, arg);
		now = change_of_names(f);
		if (l.n)
			qsort(l.files, l.n, sizeof(*l.files), by_text);
		l.sorted = l.n;
	} while (result == 0 && ++looks < LOOKS && (before.tv_sec != now.tv_sec || before.tv_nsec != now.tv_nsec));
	while (l.n)
		free(l.files[--l.n]);
	free(l.files);
	if (result || !l.failed.error)
		return result;
	failure_restore(&l.failed);
	return -1;
}

static int folders_versions(struct backend *b, const char *name, int (*each)(void *arg, uint64_t version), void *arg)
{
	const struct folders *f = of(b);
	char escaped[NAME_TEXT], text[NAME_TEXT + 24];
	uint64_t newest, number;
	int result = 0;

	name_escape(name, escaped);
	newest = newest_number(f, escaped);
	if (!newest)
		return errno == ENOENT ? 0 : -1;
	for (number = first_kept(newest, f->keep); number < newest && result == 0; number++) {
		folders_version_name(name, number, text);
		if (faccessat(f->folder[VERSIONS], text, F_OK, 0) == 0)
			result = each(arg, number);
	}
	return result ? result : each(arg, newest);
}

/* ---- Views ---- */

static void folders_view_file(void *b, const struct umobject_id *id, uint64_t number, char *text, size_t size)
{
	const struct folders *f = b;
	char name[64];

	chunk_name(id, number, name);
	snprintf(text, size, "%s/%s", f->device_names[device_of(f, id, number)], name);
}

static int folders_view_write(struct backend *b, const struct umobject_id *id, const void *bytes, size_t size)
{
	struct folders *f = of(b);
	char name[ID_TEXT + 3];
	int fd, error;

	id_text(id, name);
	strcat(name, ".h5");
	fd = share_file(f->folder[VIEWS], name, O_WRONLY | O_NONBLOCK | O_TRUNC);
	/* A FIFO, which nobody reads. */
	if (fd < 0 && errno == ENXIO && unlinkat(f->folder[VIEWS], name, 0) == 0)
		fd = share_file(f->folder[VIEWS], name, O_WRONLY | O_NONBLOCK | O_TRUNC);
	if (fd < 0)
		return object_fail(errno, "cannot create '%s/views/%s': %s", f->path, name,
				   strerror(errno));
	error = durable_write(fd, &(struct iovec){ (void *)(uintptr_t)bytes, size }, 1);
	close(fd);
	return error ? object_fail(error, "cannot write '%s/views/%s': %s", f->path, name,
				   strerror(error)) : 0;
}

static int folders_view_read(struct backend *b, const struct umobject_id *id, void **bytes, size_t *size)
{
	const struct folders *f = of(b);
	char name[ID_TEXT + 3];
	int fd, error;

	id_text(id, name);
	strcat(name, ".h5");
	fd = openat(f->folder[VIEWS], name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	*bytes = fd < 0 ? NULL : durable_contents(fd, size);
	error = errno;
	if (fd >= 0)
		close(fd);
	return *bytes ? 0 : object_fail(error, "cannot read '%s/views/%s': %s", f->path, name,
					strerror(error));
}

static bool folders_view_shown(struct backend *b, const char *name, const struct umobject_id *id)
{
	char escaped[NAME_TEXT], text[ID_TEXT];

	name_escape(name, escaped);
	id_text(id, text);
	return folders_has_view(of(b), escaped, text);
}

const struct backend_ops backend_folders = {
	.abi = BACKEND_ABI,
	.open = folders_open,
	.close = folders_close,
	.chunk_write = folders_chunk_write,
	.chunk_sync = folders_chunk_sync,
	.chunk_open = folders_chunk_open,
	.chunk_there = folders_chunk_there,
	.chunks_remove = folders_chunks_remove,
	.version_new = folders_version_new,
	.version_hold = folders_version_hold,
	.name_hold = folders_name_hold,
	.release = folders_release,
	.name_lock = folders_name_lock,
	.name_unlock = folders_name_unlock,
	.publish = folders_publish,
	.settle = folders_settle,
	.name_remove = folders_name_remove,
	.names = folders_names,
	.versions = folders_versions,
	.view_file = folders_view_file,
	.view_write = folders_view_write,
	.view_read = folders_view_read,
	.view_shown = folders_view_shown,
	.end_removals = folders_end_removals,
	.lost_names = folders_lost_names,
	.name_restore = folders_name_restore,
	.all_versions = folders_all_versions,
	.version_there = folders_version_there,
	.version_claim = folders_version_claim,
	.sweep = folders_sweep,
};
