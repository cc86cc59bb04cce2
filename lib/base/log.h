/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages: the log on stderr (UMMAP_LOG), and the sentence behind a failed call. */
#ifndef LOG_H
#define LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Takes "warn" or "warn,io:debug,start:info". Returns -EINVAL for anything else; *rooms: those that it may name. */
int log_configure(const char *spec, const char **rooms);
bool log_enabled(enum log_level level, const char *room);

/* One line, by one write(2); may be called anywhere, a signal handler included. */
void log_line(enum log_level level, const char *room, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Keeps the sentence for umerrormsg and returns -error. */
int fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, where a room below has already said its own sentence: kept, unless there is none. */
const char *fail_message(void);
void fail_clear(void);

#endif
