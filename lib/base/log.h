/* SPDX-License-Identifier: BSD-3-Clause */
/* The log on standard error (UMMAP_LOG), and the message of a failed call (umerrormsg). */
#ifndef LOG_H
#define LOG_H

#include <stdarg.h>
#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Sets the levels. spec: "warn" or "warn,io:debug,start:info"; -EINVAL: it is not valid. *parts
 * becomes the list of valid parts. */
int log_configure(const char *spec, const char **parts);

/* Writes one line with one system call. Safe in a signal handler. */
void log_line(enum log_level level, const char *part, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Sets the message of the thread. The arguments may contain the current one. Returns -error. */
int fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
int fail_with(int error, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
/* Returns the message of the thread, "" if there is none. */
const char *fail_message(void);
void fail_clear(void);

#endif
