/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names whose file in names/ is missing. folders_name_remove keeps that file, by another name, until nothing refers to the name
 * any more. So if a file in versions/ or a link in h5/ refers to a name that has neither file, the name was removed by other
 * means. The versions of the name are in live/, and are no garbage.
 *
 * Lock: that of the name, while the records of one name are compared. A user who may not lock compares without it.
 */
#include "object/folders.h"

#include "object/error.h"
#include "object/id.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_there(const struct folders *f, int folder, const char *file)
{
	return faccessat(f->folder[folder], file, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool folders_leads_to_version(const struct folders *f, const char *link, char id[static ID_TEXT])
{
	char target[ID_TEXT + 16] = "";
	struct umobject_id parsed;

	if (readlinkat(f->folder[H5], link, target, sizeof(target) - 1) != 9 + ID_TEXT - 1 + 3 ||
	    strncmp(target, "../views/", 9) != 0 || strcmp(target + 9 + ID_TEXT - 1, ".h5") != 0)
		return false;
	memcpy(id, target + 9, ID_TEXT - 1);
	id[ID_TEXT - 1] = '\0';
	return id_parse(id, &parsed) && is_there(f, LIVE, id);
}

/* Whether the name is there, or its removal has begun. */
static bool is_named(const struct folders *f, const char *escaped)
{
	char removed[NAME_TEXT + 16];

	folders_removed_name(escaped, removed);
	return is_there(f, NAMES, escaped) || is_there(f, NAMES, removed);
}

static bool refers(const struct folders *f, int folder, const char *file)
{
	char id[ID_TEXT];

	return folder == H5 ? folders_leads_to_version(f, file, id) : is_there(f, folder, file);
}

/* Whether the name is missing while this file in versions/ or h5/ refers to it. */
static bool is_lost(struct folders *f, const char *name, int folder, const char *file)
{
	char escaped[NAME_TEXT];
	void *lock = NULL;
	bool lost;

	name_escape(name, escaped);
	if (is_named(f, escaped))
		return false;
	if (f->b.ops->name_lock(&f->b, name, &lock) < 0)
		lock = NULL;
	lost = !is_named(f, escaped) && refers(f, folder, file) && !is_named(f, escaped);
	if (lock)
		f->b.ops->name_unlock(&f->b, lock);
	return lost;
}

/* The name to which a file in versions/ or h5/ refers, for the caller to free; NULL: none that can be told. */
static char *name_of_file(struct folders *f, int folder, const char *file)
{
	size_t len = strlen(file), end = folder == H5 ? 3 : VERSION_TEXT;
	char stem[NAME_MAX + 1], id[ID_TEXT], *name;

	if (*file == '.' || len <= end || file[len - end] != '.' || (folder == H5 && !folders_leads_to_version(f, file, id)))
		return NULL;
	memcpy(stem, file, len - end);
	stem[len - end] = '\0';
	/* The usual case needs no more than one look. */
	if (is_there(f, NAMES, stem))
		return NULL;
	name = name_unescape(stem);
	if (name)
		return name;
	return folder == H5 ? folders_name_in_file(f, LIVE, id) : folders_name_in_file(f, folder, file);
}

static int look_in(struct folders *f, int folder, int (*each)(void *arg, const char *name), void *arg)
{
	DIR *d = folders_read(f, folder);
	const struct dirent *e;
	int result = 0;

	if (!d)
		return -1;
	while (result == 0 && (e = readdir(d))) {
		char *name = name_of_file(f, folder, e->d_name);

		if (name && is_lost(f, name, folder, e->d_name))
			result = each(arg, name);
		free(name);
	}
	closedir(d);
	return result;
}

int folders_lost_names(struct backend *b, int (*each)(void *arg, const char *name), void *arg)
{
	int result = look_in(of(b), VERSIONS, each, arg);

	return result ? result : look_in(of(b), H5, each, arg);
}

int folders_end_removals(struct backend *b)
{
	const struct folders *f = of(b);
	DIR *d = folders_read(f, NAMES);
	const struct dirent *e;
	int result = 0;

	if (!d)
		return -1;
	while (result == 0 && (e = readdir(d)))
		if (strncmp(e->d_name, REMOVED, sizeof(REMOVED) - 1) == 0)
			result = folders_finish_removal(f, e->d_name + sizeof(REMOVED) - 1);
	closedir(d);
	return result;
}

/* Whether the record of a name cannot be read, or belongs to another name. */
static bool is_damaged(struct folders *f, const char *name, const char *escaped)
{
	char *found = folders_name_in_file(f, NAMES, escaped);
	bool damaged = found ? strcmp(found, name) != 0 : errno == EBADMSG;

	free(found);
	return damaged;
}

/* Links the version to the name. A damaged record is replaced. Returns 0 or an errno value. */
static int link_version(struct folders *f, const char *name, const char *id, int folder, const char *file)
{
	if (linkat(f->folder[LIVE], id, f->folder[folder], file, 0) == 0)
		return 0;
	if (errno != EEXIST || folder != NAMES || !is_damaged(f, name, file))
		return errno;
	return folders_point_name(f, folder, file, id);
}

int folders_name_restore(struct backend *b, const char *name, const struct umobject_id *id, uint64_t version, bool is_newest)
{
	struct folders *f = of(b);
	int folder = is_newest ? NAMES : VERSIONS, error;
	char escaped[NAME_TEXT], file[NAME_TEXT + 24], text[ID_TEXT];

	id_text(id, text);
	name_escape(name, escaped);
	if (is_newest)
		strcpy(file, escaped);
	else
		folders_version_name(name, version, file);
	error = link_version(f, name, text, folder, file);
	if (!error && fsync(f->folder[folder]) < 0)
		error = errno;
	if (error)
		return object_fail(error, "cannot restore version %llu of '%s' in '%s': %s",
				   (unsigned long long)version, name, f->path, strerror(error));
	if (is_newest && !folders_has_view(f, escaped, text))
		folders_point_view(f, escaped, text);
	return 0;
}
