/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors: an errno value and a message that umobject_errormsg() returns. */
#ifndef OBJECT_ERROR_H
#define OBJECT_ERROR_H

#include <errno.h>
#include <stdio.h>
#include <ummap-object.h>
#include <ummap.h>

#define object_fail umseterror

static inline int fail_no_memory(const char *task)
{
	return object_fail(ENOMEM, "cannot %s: no memory", task);
}

/* An error that is kept during the cleanup after it, which may fail as well. */
struct failure {
	int error;
	char text[512];
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
