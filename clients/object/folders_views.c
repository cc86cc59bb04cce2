/* SPDX-License-Identifier: BSD-3-Clause */
/* Views: HDF5 files in views/, and the links in h5/ by which users find them. */
#include "object/folders.h"

#include "object/error.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* A link in h5/ leads to this folder and the name of a view. */
#define TARGET_FOLDER "../views/"
#define TARGET_TEXT (sizeof(TARGET_FOLDER) + VIEW_TEXT)

void view_name(const char *id, char text[static VIEW_TEXT])
{
	snprintf(text, VIEW_TEXT, "%s.h5", id);
}

void link_name(const char *escaped, char text[static LINK_TEXT])
{
	snprintf(text, LINK_TEXT, "%s.h5", escaped);
}

static int write_view(struct backend *b, const struct umobject_id *id, const struct bytes *view)
{
	const struct folders *f = of(b);
	char text[ID_TEXT], name[VIEW_TEXT];
	int fd, error;

	id_text(id, text);
	view_name(text, name);
	fd = share_file(f->folder[VIEWS], name, O_WRONLY | O_NONBLOCK | O_TRUNC);
	/* A FIFO without a reader is in its place. */
	if (fd < 0 && errno == ENXIO && unlinkat(f->folder[VIEWS], name, 0) == 0)
		fd = share_file(f->folder[VIEWS], name, O_WRONLY | O_NONBLOCK | O_TRUNC);
	if (fd < 0)
		return object_fail(errno, "cannot create '%s/views/%s': %m", f->path, name);
	error = durable_write_bytes(fd, view);
	close(fd);
	return error ? object_fail(error, "cannot write '%s/views/%s': %m", f->path, name) : 0;
}

static int read_view(struct backend *b, const struct umobject_id *id, struct bytes *view)
{
	const struct folders *f = of(b);
	char text[ID_TEXT], name[VIEW_TEXT];
	int fd, error;

	id_text(id, text);
	view_name(text, name);
	fd = open_to_read(f, VIEWS, name);
	error = fd < 0 ? errno : durable_contents(fd, view);
	if (fd >= 0)
		close(fd);
	return error ? object_fail(error, "cannot read '%s/views/%s': %m", f->path, name) : 0;
}

/* The id in the target of a link in h5/. */
static bool read_link(const struct folders *f, const char *link, char id[static ID_TEXT])
{
	const size_t folder = sizeof(TARGET_FOLDER) - 1;
	char target[TARGET_TEXT] = "";
	struct umobject_id parsed;
	const char *end;

	if (readlinkat(f->folder[H5], link, target, sizeof(target) - 1) < 0 ||
	    strncmp(target, TARGET_FOLDER, folder) != 0)
		return false;
	end = id_parse(target + folder, &parsed);
	if (!end || strcmp(end, ".h5") != 0)
		return false;
	id_text(&parsed, id);
	return true;
}

bool find_shown_version(const struct folders *f, const char *link, char id[static ID_TEXT])
{
	return read_link(f, link, id) && file_exists(f, LIVE, id);
}

static bool is_shown(const struct folders *f, const char *escaped, const char *id)
{
	char link[LINK_TEXT], shown[ID_TEXT];

	link_name(escaped, link);
	return read_link(f, link, shown) && strcmp(shown, id) == 0;
}

static bool is_view_shown(struct backend *b, const char *name, const struct umobject_id *id)
{
	char escaped[NAME_TEXT], text[ID_TEXT];

	name_escape(name, escaped);
	id_text(id, text);
	return is_shown(of(b), escaped, text);
}

void show_view(const struct folders *f, const char *escaped, const char *id)
{
	char link[LINK_TEXT], target[TARGET_TEXT], temporary[ID_TEXT + 1];

	if (is_shown(f, escaped, id))
		return;
	link_name(escaped, link);
	snprintf(target, sizeof(target), TARGET_FOLDER "%s.h5", id);
	snprintf(temporary, sizeof(temporary), ".%s", id);
	unlinkat(f->folder[H5], temporary, 0);
	if (symlinkat(target, f->folder[H5], temporary) == 0)
		renameat(f->folder[H5], temporary, f->folder[H5], link);
}

const struct view_ops folders_views = {
	.name_chunk = folders_name_chunk,
	.write = write_view,
	.read = read_view,
	.is_shown = is_view_shown,
};
