/* SPDX-License-Identifier: BSD-3-Clause */
#include "object/error.h"

#include <stdarg.h>

static _Thread_local char text[MESSAGE_MAX];

int object_fail(int error, const char *format, ...)
{
	va_list args;

	errno = error; /* %m takes it from here */
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
