/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tool.h - the beginning and the end of a command: exit statuses, error messages, and the check
 * that the output has been written. Messages begin with the name by which the user started the
 * command ("ummap wal", "umtop"), which `ummap` passes as argv[0].
 */
#ifndef TOOLS_TOOL_H
#define TOOLS_TOOL_H

#include "common/size.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int tool_failed; /* exit status if the command fails */
static int output_error; /* errno of the first write to standard output that failed */

/* Returns false if the output cannot be written. tool_end reports that. */
static inline bool output_flush(void)
{
	if (fflush(stdout) < 0 && !output_error)
		output_error = errno;
	return !ferror(stdout);
}

static void tool_end(void)
{
	bool good = output_flush();

	if (fclose(stdout) < 0 && !output_error)
		output_error = errno;
	if (good && !output_error)
		return;
	fprintf(stderr, "%s: cannot write the output%s%s\n", program_invocation_short_name,
		output_error ? ": " : "", output_error ? strerror(output_error) : "");
	_exit(tool_failed);
}

/*
 * The first call of main. Opens /dev/null in place of closed standard descriptors, so that no
 * other file gets their numbers. A program that replaces this one finds them closed again.
 */
static inline void tool_begin(int failed)
{
	int fd;

	while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0 && fd <= STDERR_FILENO)
		;
	if (fd >= 0)
		close(fd);
	tool_failed = failed;
	atexit(tool_end);
}

__attribute__((format(printf, 1, 0))) static inline void tool_print_error(const char *format,
									  va_list args)
{
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
}

/* Prints an error message and ends the program. */
__attribute__((noreturn, format(printf, 1, 2))) static inline void refuse(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	tool_print_error(format, args);
	va_end(args);
	exit(tool_failed);
}

/* Reads a number from min to max. If the text has no such number, ends the program. */
static inline uint64_t parse_number(const char *what, const char *text, uint64_t min, uint64_t max)
{
	uint64_t n;

	if (size_parse_count(text, &n) < 0 || n < min || n > max)
		refuse("cannot use %s '%s': it must be a number from %ju to %ju", what, text,
		       (uintmax_t)min, (uintmax_t)max);
	return n;
}

/* Ends the program because of a wrong command line, of which a message has been printed. */
__attribute__((noreturn)) static inline void refuse_usage(int status)
{
	fprintf(stderr, "Try '%s --help'.\n", program_invocation_short_name);
	exit(status);
}

/* Prints a text, or the version, and ends the program. */
__attribute__((noreturn)) static inline void print_and_exit(const char *text)
{
	fputs(text, stdout);
	exit(EXIT_SUCCESS);
}

__attribute__((noreturn)) static inline void print_version(void)
{
	printf("%s (libummap) " UMMAP_VERSION "\n", program_invocation_short_name);
	exit(EXIT_SUCCESS);
}

#endif
