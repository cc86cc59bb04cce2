/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Containers in folders:
 *
 *	container            the description of the container
 *	live/UUID            the record of a version; a holder has a shared flock(2) on it
 *	names/NAME           a hard link to the newest version of a name (name_escape)
 *	names/.removed.NAME  that link, until all other records of a removed name are removed
 *	versions/NAME.N      hard links to older versions that are kept: N has 20 digits
 *	views/UUID.h5        a virtual dataset of a version
 *	h5/NAME.h5           a symbolic link to the view of the newest version
 *	locks/XX             locks of names, by the hash of the name
 *	DEVICE/UUID.N.h5     chunks, on the device that the hash of the UUID and the number selects
 *
 * A version without a name has one link, and a version without a holder can be locked exclusively:
 * both together are garbage. A process that opens a name whose file has lost its links in the
 * meantime opens the name again. A commit is one rename in names/. Before it, the replaced version
 * gets its link in versions/; after it, versions that are too old lose theirs.
 */
#include "object/folders.h"

#include "object/error.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The longest path of a container, so that paths of its files fit. */
#define CONTAINER_PATH_MAX (PATH_MAX - 512)

const char *const folder_names[FOLDERS] = { "live", "names", "versions", "views", "h5", "locks" };

/* ---- Files ---- */

/* Lets those who may make and remove files in a folder read, write and lock this file, even if the
 * umask of its owner forbids it. In a folder like /tmp, users remove only their own files. */
static void share_rights(int folder, int fd)
{
	struct stat in, st;
	mode_t more = 0;

	if (fstat(folder, &in) < 0 || fstat(fd, &st) < 0 || in.st_mode & S_ISVTX)
		return;
	if (in.st_mode & S_IWOTH)
		more |= S_IROTH | S_IWOTH;
	if (in.st_mode & S_IWGRP && (in.st_gid == st.st_gid || in.st_mode & S_IWOTH))
		more |= S_IRGRP | S_IWGRP;
	/* A file system without access rights refuses this, and needs no rights. */
	if (more & ~st.st_mode)
		fchmod(fd, (st.st_mode | more) & 0777);
}

int share_file(int folder, const char *name, int flags)
{
	int fd = openat(folder, name, flags | O_CREAT | O_CLOEXEC, 0666);

	if (fd >= 0)
		share_rights(folder, fd);
	return fd;
}

int create_shared_file(int folder, const char *name)
{
	int fd = openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0666), error;
	char path[32];

	/* File systems without O_TMPFILE, and systems without /proc, name the file first. */
	if (fd < 0)
		return share_file(folder, name, O_RDWR | O_EXCL);
	share_rights(folder, fd);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, path, folder, name, AT_SYMLINK_FOLLOW) == 0)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return error == EEXIST ? -1 : share_file(folder, name, O_RDWR | O_EXCL);
}

int open_to_read(const struct folders *f, int folder, const char *file)
{
	return openat(f->folder[folder], file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

int open_to_lock(const struct folders *f, int folder, const char *file)
{
	int fd = openat(f->folder[folder], file, O_RDWR | O_NONBLOCK | O_CLOEXEC);

	return fd < 0 && (errno == EACCES || errno == EROFS) ? open_to_read(f, folder, file) : fd;
}

DIR *list_folder(const struct folders *f, int folder)
{
	int fd = openat(f->folder[folder], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d)
		object_fail(errno, "cannot read the folder '%s/%s': %m", f->path,
			    folder_names[folder]);
	if (!d && fd >= 0)
		close(fd);
	return d;
}

bool file_exists(const struct folders *f, int folder, const char *file)
{
	return faccessat(f->folder[folder], file, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int replace_link(const struct folders *f, int from_folder, const char *from, int folder,
		 const char *name, const char *id)
{
	char temporary[ID_TEXT + 1];
	int error = 0;

	snprintf(temporary, sizeof(temporary), ".%s", id);
	unlinkat(f->folder[folder], temporary, 0);
	if (linkat(f->folder[from_folder], from, f->folder[folder], temporary, 0) < 0 ||
	    renameat(f->folder[folder], temporary, f->folder[folder], name) < 0)
		error = errno;
	/* renameat leaves the temporary link if both are links to the same file already. */
	unlinkat(f->folder[folder], temporary, 0);
	return error;
}

/* ---- Creating ---- */

static void join_path(char out[static PATH_MAX], const char *folder, const char *name)
{
	bool absolute = *name == '/';

	snprintf(out, PATH_MAX, "%s%s%s", absolute ? "" : folder, absolute ? "" : "/", name);
}

static int ensure_folder(const char *container, const char *name)
{
	char path[PATH_MAX];

	join_path(path, container, name);
	return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 :
		object_fail(errno, "cannot create the folder '%s': %m", path);
}

/* Writes the description durably to a temporary file, and links it to its name. If another process
 * has made the container in the meantime, its description stays. */
static int write_description(const char *path, const struct bytes *description)
{
	char temporary[PATH_MAX], file[PATH_MAX], text[ID_TEXT];
	struct umobject_id own;
	int fd, folder, error = 0;

	if (id_make(&own) < 0)
		return -1;
	id_text(&own, text);
	snprintf(temporary, sizeof(temporary), "%.4000s/.%s", path, text);
	join_path(file, path, "container");
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || folder < 0)
		error = errno;
	if (!error)
		error = durable_write_bytes(fd, description);
	if (!error && (fsync(fd) < 0 || (link(temporary, file) < 0 && errno != EEXIST) ||
		       fsync(folder) < 0))
		error = errno;
	unlink(temporary);
	if (fd >= 0)
		close(fd);
	if (folder >= 0)
		close(folder);
	return error ? object_fail(error, "cannot create the container '%s': %m", path) : 0;
}

static int check_lengths(const char *path, const struct description *d)
{
	for (size_t i = 0; i < d->ndevices; i++)
		if (strlen(path) + strlen(d->devices[i]) > PATH_MAX - 128)
			return object_fail(ENAMETOOLONG, "cannot use the device '%s' of the "
					   "container '%s': the path is too long", d->devices[i],
					   path);
	return 0;
}

static int create_container(const char *path, const struct bytes *wanted)
{
	struct description d;
	int result = ensure_folder(path, "");

	for (size_t i = 0; i < FOLDERS && result == 0; i++)
		result = ensure_folder(path, folder_names[i]);
	if (result < 0 || description_unpack(wanted, path, &d) < 0)
		return -1;
	result = check_lengths(path, &d);
	for (size_t i = 0; i < d.ndevices && result == 0; i++)
		result = ensure_folder(path, d.devices[i]);
	description_free(&d);
	return result < 0 ? -1 : write_description(path, wanted);
}

/* ---- Opening ---- */

static int read_description(const char *path, struct bytes *description)
{
	char file[PATH_MAX];
	int fd, error;

	join_path(file, path, "container");
	fd = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ?
			object_fail(ENOENT, "cannot open the container '%s': there is no "
				    "container. Try \"umobject create %s\"", path, path) :
			object_fail(errno, "cannot open the container '%s': %m", path);
	error = durable_contents(fd, description);
	close(fd);
	return error ? object_fail(error, "cannot read the container's description '%s': %m",
				   file) : 0;
}

static void folders_close(struct backend *b)
{
	struct folders *f = of(b);

	for (unsigned i = 0; i < f->nunsynced; i++)
		if (f->unsynced[i].fd >= 0)
			close(f->unsynced[i].fd);
	for (unsigned i = 0; i < FOLDERS; i++)
		if (f->folder[i] >= 0)
			close(f->folder[i]);
	for (unsigned i = 0; i < f->ndevices; i++) {
		if (f->device_fds[i] >= 0)
			close(f->device_fds[i]);
		free(f->devices[i]);
	}
	pthread_mutex_destroy(&f->lock);
	free(f->devices);
	free(f->path);
	free(f);
}

static int open_folders(struct folders *f)
{
	char path[PATH_MAX];

	for (unsigned i = 0; i < FOLDERS; i++) {
		join_path(path, f->path, folder_names[i]);
		f->folder[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (f->folder[i] < 0)
			return object_fail(errno, "cannot open the folder '%s' of the container: "
					   "%m", path);
	}
	/* A missing device is an error only if a chunk on it is needed. */
	for (unsigned i = 0; i < f->ndevices; i++) {
		join_path(path, f->path, f->devices[i]);
		f->device_fds[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	return 0;
}

/* At most a quarter of the process's descriptors. */
static unsigned limit_unsynced(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 4 < MAX_UNSYNCED ?
		(unsigned)limit.rlim_cur / 4 + 1 : MAX_UNSYNCED;
}

/* Takes over the devices of the description. */
static int open_container(const char *where, struct description *d, struct backend **b)
{
	struct folders *f = calloc(1, sizeof(*f));
	char *path = strdup(where);

	if (!f || !path) {
		free(f);
		free(path);
		return fail_no_memory("open the container");
	}
	*f = (struct folders){ .b.ops = &backend_folders, .path = path, .keep = d->keep,
			       .devices = d->devices, .ndevices = (unsigned)d->ndevices,
			       .max_unsynced = limit_unsynced() };
	*d = (struct description){ 0 };
	pthread_mutex_init(&f->lock, NULL);
	memset(f->folder, -1, sizeof(f->folder));
	memset(f->device_fds, -1, sizeof(f->device_fds));
	if (open_folders(f) < 0) {
		folders_close(&f->b);
		return -1;
	}
	*b = &f->b;
	return 0;
}

static int folders_open(const char *where, const struct bytes *wanted, struct bytes *description,
			struct backend **b)
{
	struct description d;
	int result;

	if (strlen(where) > CONTAINER_PATH_MAX)
		return object_fail(ENAMETOOLONG, "cannot open the container '%.200s...': the path "
				   "has %zu bytes, and at most %d are possible", where,
				   strlen(where), CONTAINER_PATH_MAX);
	if ((wanted && create_container(where, wanted) < 0) ||
	    read_description(where, description) < 0)
		return -1;
	result = description_unpack(description, where, &d);
	if (result == 0) {
		result = check_lengths(where, &d) < 0 ? -1 : open_container(where, &d, b);
		description_free(&d);
	}
	if (result < 0)
		free(description->data);
	return result;
}

const struct backend_ops backend_folders = {
	.abi = BACKEND_ABI,
	.open = folders_open,
	.close = folders_close,
	.chunks = &folders_chunks,
	.versions = &folders_versions,
	.names = &folders_names,
	.views = &folders_views,
};
