/* SPDX-License-Identifier: BSD-3-Clause */
/* object.h - what the tests of libummap-object share. */
#ifndef TESTS_OBJECT_H
#define TESTS_OBJECT_H

#include "../common.h"

#include <ummap-object.h>

#define good(call) check((call) == 0, "%s", umobject_errormsg())
/* A call that has to fail with this error, and with a sentence that has these words in it. */
#define refused(call, error, words) do { \
	check((call) == -1 && errno == (error), "%s: errno %d, %s", #call, errno, umobject_errormsg()); \
	check(strstr(umobject_errormsg(), words), "%s: \"%s\" says nothing of \"%s\"", #call, umobject_errormsg(), words); \
} while (0)

static inline umobject_container *open_box(const char *path, unsigned flags, unsigned keep)
{
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;
	umobject_container *c;

	attr.flags = flags;
	attr.keep = keep;
	good(umobject_open(path, &attr, &c));
	return c;
}

/* The container of this test. */
static unsigned box_number;

static inline const char *box(void)
{
	char name[16];

	snprintf(name, sizeof(name), "box%u", box_number);
	return in_dir(name);
}

static inline umobject_container *new_box(unsigned keep)
{
	return open_box(box(), UMOBJECT_CREATE, keep);
}

static inline struct umobject_stat stat_held(const umobject_version *v)
{
	struct umobject_stat st = { .struct_size = sizeof(st) };

	good(umobject_stat(v, &st));
	return st;
}

/* Files below a folder of the container. */
static inline unsigned count_files(const char *folder)
{
	char command[600];
	unsigned n;
	FILE *p;

	snprintf(command, sizeof(command), "find '%s/%s' -type f | wc -l", box(), folder);
	p = popen(command, "r");
	check(p && fscanf(p, "%u", &n) == 1);
	pclose(p);
	return n;
}

#endif
