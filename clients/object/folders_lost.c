/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names whose file in names/ is missing. A removal keeps that file, by another name, until no other
 * record of the name exists. So if a file in versions/ or a link in h5/ refers to a name that has
 * neither file, the name was removed by other means. The versions of the name are in live/, and are
 * no garbage.
 *
 * The records of one name are compared under its lock. A user who may not lock compares without it.
 */
#include "object/folders.h"

#include "object/error.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether the name exists, or its removal has begun. */
static bool is_named(const struct folders *f, const char *escaped)
{
	char removed[VERSION_NAME_TEXT];

	removed_name(escaped, removed);
	return file_exists(f, NAMES, escaped) || file_exists(f, NAMES, removed);
}

/* Whether the name is missing while this file in versions/ or h5/ refers to it. */
static bool is_lost(struct folders *f, const char *name, int folder, const char *file)
{
	char escaped[NAME_TEXT], id[ID_TEXT];
	void *lock = NULL;
	bool lost;

	name_escape(name, escaped);
	if (is_named(f, escaped))
		return false;
	if (folders_lock(&f->b, name, &lock) < 0)
		lock = NULL;
	lost = !is_named(f, escaped) &&
		(folder == H5 ? find_shown_version(f, file, id) : file_exists(f, folder, file)) &&
		!is_named(f, escaped);
	if (lock)
		folders_unlock(&f->b, lock);
	return lost;
}

/* The name to which a file in versions/ or h5/ refers, for the caller to free; NULL: none is known,
 * or it has a file in names/. */
static char *find_name(const struct folders *f, int folder, const char *file)
{
	size_t len = strlen(file), end = folder == H5 ? strlen(".h5") : VERSION_SUFFIX;
	char stem[NAME_MAX + 1], id[ID_TEXT], *name;

	if (*file == '.' || len <= end || file[len - end] != '.' ||
	    (folder == H5 && !find_shown_version(f, file, id)))
		return NULL;
	snprintf(stem, sizeof(stem), "%.*s", (int)(len - end), file);
	if (file_exists(f, NAMES, stem))
		return NULL;
	name = name_unescape(stem);
	return name ? name : folder == H5 ? read_name(f, LIVE, id) : read_name(f, folder, file);
}

static int search_folder(struct folders *f, int folder, visit_name_fn *each, void *arg)
{
	DIR *d = list_folder(f, folder);
	const struct dirent *e;
	int result = 0;

	if (!d)
		return -1;
	while (result == 0 && (e = readdir(d))) {
		char *name = find_name(f, folder, e->d_name);

		if (name && is_lost(f, name, folder, e->d_name))
			result = each(arg, name);
		free(name);
	}
	closedir(d);
	return result;
}

int folders_list_lost(struct backend *b, visit_name_fn *each, void *arg)
{
	int result = search_folder(of(b), VERSIONS, each, arg);

	return result ? result : search_folder(of(b), H5, each, arg);
}

/* Completes the removal of a name, by its file in names/. */
static int end_removal(struct folders *f, const char *file)
{
	const char *escaped = file + strlen(REMOVED);
	char *name = name_unescape(escaped);
	void *lock;
	int result;

	if (!name)
		name = read_name(f, NAMES, file);
	/* ENOENT: another process has completed it. */
	if (!name)
		return errno == ENOENT ? 0 : -1;
	result = folders_lock(&f->b, name, &lock);
	if (result == 0) {
		result = finish_removal(f, name, escaped);
		folders_unlock(&f->b, lock);
	}
	free(name);
	return result;
}

int folders_end_removals(struct backend *b)
{
	DIR *d = list_folder(of(b), NAMES);
	const struct dirent *e;
	int result = 0;

	if (!d)
		return -1;
	while (result == 0 && (e = readdir(d)))
		if (strncmp(e->d_name, REMOVED, strlen(REMOVED)) == 0)
			result = end_removal(of(b), e->d_name);
	closedir(d);
	return result;
}

/* Whether the record of a name cannot be read, or belongs to another name. */
static bool is_damaged(const struct folders *f, const char *name, const char *escaped)
{
	char *found = read_name(f, NAMES, escaped);
	bool damaged = found ? strcmp(found, name) != 0 : errno == EBADMSG;

	free(found);
	return damaged;
}

int folders_restore(struct backend *b, const char *name, const struct umobject_id *id,
		    uint64_t version, bool is_newest)
{
	const struct folders *f = of(b);
	int folder = is_newest ? NAMES : VERSIONS, error = 0;
	char escaped[NAME_TEXT], file[VERSION_NAME_TEXT], text[ID_TEXT];

	id_text(id, text);
	name_escape(name, escaped);
	if (is_newest)
		strcpy(file, escaped);
	else
		version_name(name, version, file);
	if (linkat(f->folder[LIVE], text, f->folder[folder], file, 0) < 0)
		error = errno;
	if (error == EEXIST && is_newest && is_damaged(f, name, file))
		error = replace_link(f, LIVE, text, NAMES, file, text);
	if (!error && fsync(f->folder[folder]) < 0)
		error = errno;
	if (error)
		return object_fail(error, "cannot restore version %" PRIu64 " of '%s' in '%s': %m",
				   version, name, f->path);
	if (is_newest)
		show_view(f, escaped, text);
	return 0;
}
