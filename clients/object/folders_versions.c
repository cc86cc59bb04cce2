/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Versions as files in live/: holding them, and claiming them for the collector. A version that can
 * be locked exclusively has no holder, and if it has one link, it has no name. Such a version is
 * removed at once, so that any number of versions can be claimed.
 */
#include "object/folders.h"

#include "common/try_lock.h"
#include "object/error.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Holding ---- */

static struct lease *make_lease(const struct umobject_id *id, int fd)
{
	struct folder_lease *l = malloc(sizeof(*l));

	if (!l)
		return NULL;
	*l = (struct folder_lease){ .id = *id, .fd = fd };
	return &l->lease;
}

/* The collector locks a version for a moment when it visits it. */
static int lock_shared(int fd)
{
	int result;

	do
		result = flock(fd, LOCK_SH);
	while (result < 0 && errno == EINTR);
	return result;
}

static bool has_links(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

/* Writes a record to a file that is locked before. Returns 0 or an errno value. */
static int write_record(int fd, const struct bytes *record)
{
	return lock_shared(fd) < 0 ? errno : durable_write_bytes(fd, record);
}

static struct lease *create_version(struct backend *b, const struct umobject_id *id,
				    const char *of_name, const struct bytes *record)
{
	const struct folders *f = of(b);
	struct lease *lease = NULL;
	char name[ID_TEXT];
	int fd, error;

	(void)of_name;
	id_text(id, name);
	/* The collector may remove the file before it is locked. */
	do {
		fd = create_shared_file(f->folder[LIVE], name);
		error = fd < 0 ? errno : write_record(fd, record);
	} while (!error && !has_links(fd) && close(fd) == 0);
	if (!error && !(lease = make_lease(id, fd)))
		error = ENOMEM;
	if (!error)
		return lease;
	if (fd >= 0) {
		unlinkat(f->folder[LIVE], name, 0);
		close(fd);
	}
	object_fail(error, "cannot create a version in '%s/live': %m", f->path);
	return NULL;
}

struct lease *hold_file(const struct folders *f, int folder, const char *file)
{
	struct lease *lease = NULL;
	struct bytes record;
	int fd, error;

	/* A file without links has been replaced by a newer version, so the loop ends. */
	for (;;) {
		fd = open_to_lock(f, folder, file);
		if (fd < 0) {
			object_fail(errno, "cannot open '%s/%s/%s': %m", f->path,
				    folder_names[folder], file);
			return NULL;
		}
		error = lock_shared(fd) < 0 ? errno : 0;
		if (error || has_links(fd))
			break;
		close(fd);
	}
	if (!error)
		error = durable_contents(fd, &record);
	if (!error && !(lease = make_lease(&(struct umobject_id){ { 0 } }, fd))) {
		error = ENOMEM;
		free(record.data);
	}
	if (error) {
		close(fd);
		object_fail(error, "cannot read '%s/%s/%s': %m", f->path, folder_names[folder],
			    file);
		return NULL;
	}
	lease->record = record;
	return lease;
}

static struct lease *hold_version(struct backend *b, const struct umobject_id *id)
{
	char name[ID_TEXT];
	struct lease *lease;

	id_text(id, name);
	lease = hold_file(of(b), LIVE, name);
	if (lease)
		((struct folder_lease *)lease)->id = *id;
	return lease;
}

void folders_release(struct backend *b, struct lease *lease)
{
	int error = errno;

	(void)b;
	close(((struct folder_lease *)lease)->fd);
	free(lease->record.data);
	free(lease);
	errno = error;
}

struct object *read_record(const struct folders *f, int folder, const char *file)
{
	struct lease *lease = hold_file(f, folder, file);
	struct object *o = lease ? object_unpack(&lease->record, file) : NULL;

	if (lease)
		folders_release(NULL, lease);
	return o;
}

/* Writes the record to another file, which is locked before others see it, so that no reader finds
 * half of a record. */
int rewrite_version(const struct folders *f, struct folder_lease *lease, const struct bytes *record)
{
	char name[ID_TEXT], temporary[ID_TEXT + 1];
	int fd, error;

	id_text(&lease->id, name);
	snprintf(temporary, sizeof(temporary), ".%s", name);
	fd = share_file(f->folder[LIVE], temporary, O_RDWR | O_TRUNC);
	if (fd < 0)
		return errno;
	error = write_record(fd, record);
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

/* ---- Claiming ---- */

static int list_versions(struct backend *b, visit_id_fn *each, void *arg)
{
	DIR *d = list_folder(of(b), LIVE);
	const struct dirent *e;
	int result = 0;

	if (!d)
		return -1;
	while (result == 0 && (e = readdir(d))) {
		struct umobject_id id;
		const char *end = id_parse(e->d_name, &id);

		if (end && !*end)
			result = each(arg, &id);
	}
	closedir(d);
	return result;
}

static int version_exists(struct backend *b, const struct umobject_id *id, bool *exists)
{
	char name[ID_TEXT];

	id_text(id, name);
	*exists = faccessat(of(b)->folder[LIVE], name, F_OK, 0) == 0;
	return *exists || errno == ENOENT ? 0 :
		object_fail(errno, "cannot look for version '%s' in '%s': %m", name, of(b)->path);
}

enum claim { CLAIM_MISSING, CLAIM_IN_USE, CLAIM_GARBAGE };

/* Opens a version, and locks it exclusively if it has no name and no holder. */
static enum claim lock_garbage(const struct folders *f, const char *name, int *fd)
{
	for (;;) {
		struct stat st;

		*fd = open_to_lock(f, LIVE, name);
		if (*fd < 0)
			return CLAIM_MISSING;
		if (try_lock_file(*fd, LOCK_EX) < 0 || fstat(*fd, &st) < 0)
			return CLAIM_IN_USE;
		if (st.st_nlink)
			return st.st_nlink == 1 ? CLAIM_GARBAGE : CLAIM_IN_USE;
		/* A commit has replaced the file, and holds the new one. */
		close(*fd);
	}
}

/* Removes temporary links, which a crash leaves between a link and its renaming. */
static void remove_temporary(const struct folders *f, const char *id)
{
	static const int folders[] = { LIVE, NAMES, VERSIONS, H5 };
	char name[ID_TEXT + 1];

	snprintf(name, sizeof(name), ".%s", id);
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
		unlinkat(f->folder[folders[i]], name, 0);
}

/* Removes a version that the caller has locked, and its view before it: a view without a version
 * would never be found. */
static int remove_version(const struct folders *f, const char *name)
{
	char view[VIEW_TEXT];

	view_name(name, view);
	remove_temporary(f, name);
	unlinkat(f->folder[VIEWS], view, 0);
	if (unlinkat(f->folder[LIVE], name, 0) < 0)
		return object_fail(errno, "cannot remove version '%s' from '%s': %m", name,
				   f->path);
	return 0;
}

static int claim_version(struct backend *b, const struct umobject_id *id, struct lease **claim,
			 struct bytes *record)
{
	const struct folders *f = of(b);
	char name[ID_TEXT];
	enum claim found;
	int fd, error;

	id_text(id, name);
	found = lock_garbage(f, name, &fd);
	if (found == CLAIM_IN_USE && try_lock_file(fd, LOCK_EX) == 0) {
		/*
		 * No process holds the version, so its temporary links belong to no commit in
		 * progress. If the file has no link, a commit has replaced it since it was opened
		 * and holds the new file: then the temporary links are that commit's.
		 */
		if (has_links(fd))
			remove_temporary(f, name);
		flock(fd, LOCK_UN);
		close(fd);
		found = lock_garbage(f, name, &fd);
	}
	if (found == CLAIM_MISSING)
		return object_fail(errno, "cannot open version '%s' in '%s': %m", name, f->path);
	if (found == CLAIM_GARBAGE) {
		error = remove_version(f, name) < 0 ? errno : 0;
		close(fd);
		*claim = NULL;
		errno = error;
		return error ? -1 : 0;
	}
	error = durable_contents(fd, record);
	close(fd);
	return error ? object_fail(error, "cannot read version '%s' in '%s': %m", name, f->path) :
		object_fail(EBUSY, "cannot remove version '%s' from '%s': it is in use", name,
			    f->path);
}

const struct version_ops folders_versions = {
	.create = create_version,
	.hold = hold_version,
	.release = folders_release,
	.list = list_versions,
	.exists = version_exists,
	.claim = claim_version,
};
