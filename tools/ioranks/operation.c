/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of plug-ins. A shared library is loaded once and never unloaded. An operation that
 * fails gets no more data: the error and its message stay, for each client of the file.
 */
#include "operation.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <ummap-operation.h>

#include "../../drivers/ioranks.h"
#include "common/fd_path.h"

struct operation {
	char text[IORANKS_MAX_OPERATION_LEN + 1];    /* value of the key */
	char library[IORANKS_MAX_OPERATION_LEN + 1]; /* value up to the comma */
	char path[PATH_MAX];                         /* path of the file */
	const struct ummap_operation *calls;
	struct ummap_operation_file file;
	int error;                                   /* errno value after a failure, or 0 */
	char why[IORANKS_WHY_BYTES];                 /* message after a failure */
};

static void note_error(struct operation *o, int err)
{
	if (!err)
		return;
	o->error = err < 0 ? -err : err;
	snprintf(o->why, sizeof(o->why), "cannot run the operation '%.128s' on '%.200s': %.120s",
		 o->library, o->path, *o->file.why ? o->file.why : strerror(o->error));
}

static const struct ummap_operation *load(const char *library, char *why, size_t room)
{
	void *object = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	const struct ummap_operation *calls = object ? dlsym(object, "ummap_operation") : NULL;

	if (!calls)
		snprintf(why, room, "cannot load the operation: %.300s", dlerror());
	else if (calls->struct_size < sizeof(*calls) || calls->abi != UMMAP_OPERATION_ABI ||
		 !calls->open || !calls->write || !calls->close)
		snprintf(why, room, "cannot use the operation '%.200s': it was built for another "
			 "version of ummap-operation.h, or lacks a call", library);
	else
		return calls;
	return NULL;
}

static void find_path(struct operation *o, int fd)
{
	char link[FD_PATH_BYTES];
	ssize_t len;

	fd_path(link, fd);
	len = readlink(link, o->path, sizeof(o->path) - 1);
	o->path[len < 0 ? 0 : len] = '\0';
}

struct operation *operation_begin(const char *text, int fd, int *err, char *why, size_t room)
{
	struct operation *o = calloc(1, sizeof(*o));
	char *comma;

	*err = o ? -EINVAL : -ENOMEM;
	if (!o)
		return NULL;
	snprintf(o->text, sizeof(o->text), "%s", text);
	snprintf(o->library, sizeof(o->library), "%s", text);
	comma = strchr(o->library, ',');
	if (comma)
		*comma = '\0';
	find_path(o, fd);
	o->file.path = o->path;
	o->file.argument = comma ? o->text + (comma - o->library) + 1 : "";
	o->calls = load(o->library, why, room);
	if (o->calls)
		note_error(o, o->calls->open(&o->file));
	if (o->calls && !o->error)
		return o;
	if (o->error) {
		*err = -o->error;
		snprintf(why, room, "%s", o->why);
	}
	free(o);
	return NULL;
}

int operation_is(const struct operation *o, const char *text)
{
	return strcmp(o ? o->text : "", text) == 0;
}

/* Ends an operation that has failed. */
static void note_result(struct operation *o, int err)
{
	note_error(o, err);
	if (err)
		o->calls->close(&o->file);
}

void operation_write(struct operation *o, const void *data, size_t len, uint64_t off)
{
	if (o && !o->error)
		note_result(o, o->calls->write(&o->file, data, len, off));
}

void operation_commit(struct operation *o)
{
	if (o && !o->error && o->calls->commit)
		note_result(o, o->calls->commit(&o->file));
}

int operation_error(const struct operation *o, const char **why)
{
	*why = o ? o->why : "";
	return o ? o->error : 0;
}

int operation_end(struct operation *o, char *why, size_t room)
{
	int err;

	*why = '\0';
	if (!o)
		return 0;
	if (!o->error)
		note_error(o, o->calls->close(&o->file));
	err = o->error;
	snprintf(why, room, "%s", o->why);
	free(o);
	return err;
}
