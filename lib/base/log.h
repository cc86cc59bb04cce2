/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages: the log on stderr (UMMAP_LOG), and the sentence behind a failed call. */
#ifndef LOG_H
#define LOG_H

#include <stdarg.h>
#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Accepts "warn" or "warn,io:debug,start:info". Returns -EINVAL for anything else; *rooms: the parts that it
 * may name. */
int log_configure(const char *spec, const char **rooms);
bool log_enabled(enum log_level level, const char *room);

/* One line, by one write(2); may be called anywhere, a signal handler included. */
void log_line(enum log_level level, const char *room, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Sets the message of umerrormsg, also from the present one. Returns -error. */
int fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
int fail_with(int error, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
/* The sentence that is kept, "" if there is none; and clears it. */
const char *fail_message(void);
void fail_clear(void);

#endif
