/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the collector asks of folders. A version that can be locked for oneself is held by nobody, and if it has one link, nobody names it:
 * who claims it removes it at once, so that any number can be claimed. Chunks that no live version owns, whose collector did not come to
 * them or whose system lost power, go as well.
 */
#include "object/folders.h"

#include "common/try_lock.h"
#include "object/durable.h"
#include "object/error.h"
#include "object/id.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int folders_all_versions(struct backend *b, int (*each)(void *arg, const struct umobject_id *id), void *arg)
{
	DIR *d = folders_read(of(b), LIVE);
	const struct dirent *e;
	int result = 0;

	if (!d)
		return -1;
	while (result == 0 && (e = readdir(d))) {
		struct umobject_id id;

		if (id_parse(e->d_name, &id))
			result = each(arg, &id);
	}
	closedir(d);
	return result;
}

int folders_version_there(struct backend *b, const struct umobject_id *id, bool *there)
{
	char name[ID_TEXT];

	id_text(id, name);
	*there = faccessat(of(b)->folder[LIVE], name, F_OK, 0) == 0;
	return *there || errno == ENOENT ? 0 : object_fail(errno, "cannot look for version '%s' in "
			"'%s': %s", name, of(b)->path, strerror(errno));
}

/* Its descriptor, locked, if nobody names or holds it; -1: it is alive, and *fd is open to be asked; -2: it is not there. */
static int lock_dead(const struct folders *f, const char *name, int *fd)
{
	for (;;) {
		struct stat st;

		*fd = folders_open_to_lock(f, LIVE, name);
		if (*fd < 0)
			return -2;
		if (try_lock_file(*fd, LOCK_EX) < 0 || fstat(*fd, &st) < 0)
			return -1;
		if (st.st_nlink)
			return st.st_nlink == 1 ? *fd : -1;
		/* A commit has put another file in its place, which it holds. */
		close(*fd);
	}
}

/* What a crash has left between a link and its renaming. */
static void drop_temporary(const struct folders *f, const char *id)
{
	static const int where[] = { LIVE, NAMES, VERSIONS, H5 };
	char name[ID_TEXT + 2];
	size_t i;

	snprintf(name, sizeof(name), ".%.36s", id);
	for (i = 0; i < sizeof(where) / sizeof(*where); i++)
		unlinkat(f->folder[where[i]], name, 0);
}

/* Under its lock. Of a view without a version nobody would know any more. */
static int remove_version(const struct folders *f, const char *name)
{
	char view[ID_TEXT + 3];

	snprintf(view, sizeof(view), "%s.h5", name);
	drop_temporary(f, name);
	unlinkat(f->folder[VIEWS], view, 0);
	if (unlinkat(f->folder[LIVE], name, 0) < 0)
		return object_fail(errno, "cannot remove version '%s' from '%s': %s", name, f->path,
				   strerror(errno));
	return 0;
}

int folders_version_claim(struct backend *b, const struct umobject_id *id, struct lease **claim, void **bytes, size_t *size)
{
	const struct folders *f = of(b);
	char name[ID_TEXT];
	int fd, state, error;

	id_text(id, name);
	state = lock_dead(f, name, &fd);
	if (state == -1 && try_lock_file(fd, LOCK_EX) == 0) {
		/*
		 * No process holds the version, so its temporary links belong to no commit at work. If the file has no link, a commit has
		 * replaced it since it was opened and holds the new file: then the temporary links are that commit's.
		 */
		if (has_links(fd))
			drop_temporary(f, name);
		flock(fd, LOCK_UN);
		close(fd);
		state = lock_dead(f, name, &fd);
	}
	if (state == -2)
		return object_fail(errno, "cannot open version '%s' in '%s': %s", name, f->path,
				   strerror(errno));
	if (state >= 0) {
		state = remove_version(f, name);
		close(fd);
		*claim = NULL;
		return state;
	}
	*bytes = durable_contents(fd, size);
	error = errno;
	close(fd);
	return *bytes ?
		object_fail(EBUSY, "cannot remove version '%s' from '%s': it is in use", name,
			    f->path) :
		object_fail(error, "cannot read version '%s' in '%s': %s", name, f->path,
			    strerror(error));
}

/* The id and the number of a file in a device: of a chunk, or of one that was being written. */
static bool parse_file(const char *name, struct umobject_id *id, uint64_t *number)
{
	char text[ID_TEXT], *end;

	if (strlen(name) < ID_TEXT || name[ID_TEXT - 1] != '.')
		return false;
	memcpy(text, name, ID_TEXT - 1);
	text[ID_TEXT - 1] = '\0';
	*number = strtoull(name + ID_TEXT, &end, 10);
	return id_parse(text, id) && strncmp(end, ".h5", 3) == 0;
}

static int sweep_device(const struct folders *f, unsigned device,
			bool (*garbage)(void *arg, const struct umobject_id *id, uint64_t number), void *arg, struct umobject_garbage *removed)
{
	int fd = openat(f->devices[device], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	int error = 0;

	if (!d)
		return object_fail(errno, "cannot read the device '%s': %s",
				   f->device_paths[device], strerror(errno));
	while ((e = readdir(d))) {
		struct umobject_id id;
		uint64_t number;
		struct stat st;

		if (!parse_file(e->d_name, &id, &number) || !garbage(arg, &id, number))
			continue;
		if (fstatat(f->devices[device], e->d_name, &st, 0) == 0 && unlinkat(f->devices[device], e->d_name, 0) == 0) {
			removed->chunks++;
			removed->bytes += (uint64_t)st.st_size;
		} else if (errno != ENOENT) {
			error = errno;
		}
	}
	closedir(d);
	return error ? object_fail(error, "cannot remove chunks from '%s': %s",
				   f->device_paths[device], strerror(error)) : 0;
}

int folders_sweep(struct backend *b, bool (*garbage)(void *arg, const struct umobject_id *id, uint64_t number), void *arg,
		  struct umobject_garbage *removed)
{
	const struct folders *f = of(b);
	unsigned device;
	int error = 0;

	/* One from which nothing can be removed does not keep the others full. */
	for (device = 0; device < f->ndevices; device++) {
		if (f->devices[device] < 0)
			object_fail(ENODEV, "cannot remove garbage from the device '%s': it could "
				    "not be opened with the container. Try again when it is "
				    "mounted", f->device_paths[device]);
		else if (sweep_device(f, device, garbage, arg, removed) == 0)
			continue;
		error = errno;
	}
	errno = error;
	return error ? -1 : 0;
}
