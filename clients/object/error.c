/* SPDX-License-Identifier: BSD-3-Clause */
#include "object/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include <ummap-object.h>

static _Thread_local char text[1024];

int object_fail(int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	errno = error;
	return -1;
}

const char *umobject_errormsg(void)
{
	return text;
}
