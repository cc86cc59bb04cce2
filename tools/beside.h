/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * beside.h - what the programs share that work on the files which filters keep beside stores: a command line of a verb, a store
 * (a path or a URI) and perhaps one word more, with an option for the file if it is not where it is by default.
 */
#ifndef TOOLS_BESIDE_H
#define TOOLS_BESIDE_H

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../drivers/side.h"
#include "ummap-driver.h"
#include "ummap.h"

#include "output.h"

enum { EXIT_DAMAGED = 1, EXIT_TROUBLE = 2 };

struct job {
	const char *store, *file;
	const char *path;          /* of the store, which may be a URI */
	const char *word;          /* the third one; NULL: none */
	bool named;                /* the file, by the option */
};

struct verb {
	const char *name;
	int words;                 /* with itself */
	int (*run)(const struct job *job);
};

struct tool {
	const char *usage;
	const char *option;        /* that names the file; else it is the store's path with ... */
	const char *suffix;        /* ... this behind it, ... */
	int (*beside)(char file[PATH_MAX], const char *store); /* ... or where this says */
	const struct verb *verbs;  /* the last one has no name */
};

__attribute__((noreturn, format(printf, 1, 2))) static inline void refuse(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(EXIT_TROUBLE);
}

/* In a URI. */
static inline void encode(char *to, const char *path)
{
	for (; *path; path++)
		to += sprintf(to, strchr("%?&={}", *path) ? "%%%02x" : "%c", (unsigned char)*path);
	*to = '\0';
}

/* What could be a path as well is one if there is such a file. */
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

/* URI of the store behind one filter, which may have more keys behind it; a path is a file. */
#define STORE_URI_MAX (3 * PATH_MAX + 32)
static inline void store_uri(char uri[STORE_URI_MAX], const char *store)
{
	char path[3 * PATH_MAX];

	if (is_uri(store)) {
		snprintf(uri, STORE_URI_MAX, "%s", store);
		return;
	}
	encode(path, store);
	snprintf(uri, STORE_URI_MAX, "posix:%s", path);
}

static inline bool has_name(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');

	return strcmp(slash ? slash + 1 : path, name) == 0;
}

/* Whether a store, which is a path or a link to it, has this name in the end. */
static inline bool is_called(const char *path, const char *name)
{
	char itself[PATH_MAX];

	return has_name(path, name) || (realpath(path, itself) && has_name(itself, name));
}

/* Removes a file that has been found to be what it should be, if it is of the store that is meant. */
static inline int tool_remove(const struct job *job, struct side *file, const char *of)
{
	int err;

	if (*of && !is_called(job->path, of))
		refuse("%s is of another store, \"%s\"", job->file, of);
	err = side_remove(file);
	if (err)
		refuse("%s cannot be removed: %s", job->file, strerror(-err));
	return EXIT_SUCCESS;
}

static inline void tool_options(const struct tool *tool, int argc, char **argv, struct job *job)
{
	const struct option names[] = {
		{ tool->option, required_argument, NULL, 'f' }, { "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' }, { NULL, 0, NULL, 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (option) {
		case 'f':
			job->file = optarg;
			break;
		case 'h':
			fputs(tool->usage, stdout);
			exit(EXIT_SUCCESS);
		case 'v':
			printf("%s (libummap) " UMMAP_VERSION "\n", program_invocation_short_name);
			exit(EXIT_SUCCESS);
		default:
			exit(EXIT_TROUBLE);
		}
	}
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
	struct job job = { .file = NULL, .path = path };

	output_watch(EXIT_TROUBLE);
	tool_options(tool, argc, argv, &job);
	argc -= optind;
	argv += optind;
	for (const struct verb *verb = tool->verbs; verb->name && argc > 0; verb++) {
		if (strcmp(argv[0], verb->name) != 0 || argc != verb->words)
			continue;
		job.store = argv[1];
		job.word = argv[2];
		job.named = job.file != NULL;
		store_path(job.store, path);
		if (!job.file && !name_file(tool, path, file))
			refuse("%s: %s", job.store, strerror(ENAMETOOLONG));
		job.file = job.file ? job.file : file;
		return verb->run(&job);
	}
	fputs(tool->usage, stderr);
	return EXIT_TROUBLE;
}

#endif
