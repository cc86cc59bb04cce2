/* SPDX-License-Identifier: BSD-3-Clause */
#include "object/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <ummap-object.h>

static _Thread_local char text[sizeof(((struct failure *)0)->text)];

int object_fail(int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	errno = error;
	return -1;
}

void failure_keep(struct failure *f)
{
	f->error = errno;
	memcpy(f->text, text, sizeof(text));
}

void failure_restore(const struct failure *f)
{
	errno = f->error;
	memcpy(text, f->text, sizeof(text));
}

const char *umobject_errormsg(void)
{
	return text;
}
