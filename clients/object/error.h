/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors: an errno value and a message that umobject_errormsg() returns. */
#ifndef OBJECT_ERROR_H
#define OBJECT_ERROR_H

#include <errno.h>
#include <stdio.h>
#include <ummap-object.h>

/* Stores the message, sets errno, and returns -1. %m in the format is the text of `error`. Loaded
 * back ends and the library for MPI call it, too, by the name umobject_fail. */
__attribute__((format(printf, 2, 3), visibility("default")))
int object_fail(int error, const char *format, ...) __asm__("umobject_fail");

static inline int fail_no_memory(const char *task)
{
	return object_fail(ENOMEM, "cannot %s: no memory", task);
}

#define MESSAGE_MAX 1024

/* An error that is kept during the cleanup after it, which may fail as well. */
struct failure {
	int error;
	char text[MESSAGE_MAX];
};

static inline void failure_keep(struct failure *f)
{
	f->error = errno;
	snprintf(f->text, sizeof(f->text), "%s", umobject_errormsg());
}

/* Returns -1. */
static inline int failure_restore(const struct failure *f)
{
	return object_fail(f->error, "%s", f->text);
}

#endif
