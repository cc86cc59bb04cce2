/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * beside.h - the command line of the commands that work on the files which filters keep beside
 * stores: an action, a store (a path or a URI), perhaps one more word, and an option that names the
 * file if it is not where the filter puts it by default.
 */
#ifndef TOOLS_BESIDE_H
#define TOOLS_BESIDE_H

#include <limits.h>

#include "../drivers/side.h"
#include "common/uri_encode.h"
#include "ummap-driver.h"
#include "ummap.h"

#include "tool.h"

enum { EXIT_DAMAGED = 1, EXIT_TROUBLE = 2 };

struct job {
	const char *store;         /* store, as the user wrote it */
	const char *file;          /* file beside the store */
	const char *path;          /* path of the store, which may be a URI */
	const char *word;          /* third word; NULL: there is none */
	bool named;                /* whether the user has named the file by the option */
	const char *remedy;        /* end of the message about a file of another store */
};

struct action {
	struct tool_action call;
	int (*run)(const struct job *job);
};

struct tool {
	const struct tool_help *help; /* its only option names the file */
	const char *suffix;        /* end of the file's path, after the store's */
	/* Finds the file of a store, in place of the suffix; or NULL. */
	int (*beside)(char file[PATH_MAX], const char *store);
	const struct action *actions; /* the last one has no function */
	const char *remedy;        /* remedy of each job */
};

/* Whether a store is a URI. If a file of that name exists, the store is a path. */
static inline bool is_uri(const char *store)
{
	size_t len = strspn(store, "abcdefghijklmnopqrstuvwxyz0123456789-+");

	return len > 0 && store[len] == ':' && access(store, F_OK) < 0;
}

static inline void store_path(const char *store, char path[PATH_MAX])
{
	const char *from = is_uri(store) ? strchr(store, ':') + 1 : NULL;
	size_t len = 0;
	unsigned code;

	if (!from)
		snprintf(path, PATH_MAX, "%s", store);
	for (; from && *from && *from != '?' && len < PATH_MAX - 1; from++) {
		bool coded = sscanf(from, "%%%2x", &code) == 1;

		path[len++] = coded ? (char)code : *from;
		from += coded ? 2 : 0;
	}
	if (from)
		path[len] = '\0';
}

/* Makes the URI of a store, to which a filter may be prepended; a path becomes a URI of posix. */
#define STORE_URI_MAX (3 * PATH_MAX + 32)
static inline void store_uri(char uri[STORE_URI_MAX], const char *store)
{
	char path[3 * PATH_MAX];

	if (is_uri(store)) {
		snprintf(uri, STORE_URI_MAX, "%s", store);
		return;
	}
	uri_encode(path, sizeof(path), store);
	snprintf(uri, STORE_URI_MAX, "posix:%s", path);
}

static inline bool has_name(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');

	return strcmp(slash ? slash + 1 : path, name) == 0;
}

/* Whether the last part of a path is the name, also after links are followed. */
static inline bool is_called(const char *path, const char *name)
{
	char itself[PATH_MAX];

	return has_name(path, name) || (realpath(path, itself) && has_name(itself, name));
}

/* Removes a file whose kind has been checked. `of` is the name of its store; "": unknown. */
static inline int tool_remove(const struct job *job, struct side *file, const char *of)
{
	int err;

	if (*of && !is_called(job->path, of))
		refuse("cannot remove '%s': it belongs to another store, '%s'", job->file, of);
	err = side_remove(file);
	if (err)
		refuse("cannot remove '%s': %s", job->file, strerror(-err));
	return EXIT_SUCCESS;
}

static inline bool name_file(const struct tool *tool, const char *store, char file[PATH_MAX])
{
	if (tool->beside)
		return tool->beside(file, store) == 0;
	return snprintf(file, PATH_MAX, "%s%s", store, tool->suffix) < PATH_MAX;
}

static inline int tool_main(const struct tool *tool, int argc, char **argv)
{
	static char file[PATH_MAX], path[PATH_MAX];
	struct job job = { .file = NULL, .path = path, .remedy = tool->remedy };
	const struct action *action;

	tool_begin(EXIT_TROUBLE);
	while (take_option(argc, argv, tool->help) >= 0)
		job.file = optarg;
	argv += optind;
	action = find_action(tool->actions, sizeof(*action), tool->help->usage, argv);
	job.store = argv[1];
	job.word = argv[2];
	job.named = job.file != NULL;
	store_path(job.store, path);
	if (!job.file && !name_file(tool, path, file))
		refuse("cannot use '%s': %s", job.store, strerror(ENAMETOOLONG));
	job.file = job.file ? job.file : file;
	return action->run(&job);
}

#endif
