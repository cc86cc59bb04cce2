/* SPDX-License-Identifier: BSD-3-Clause */
/* output.h - what a program prints has to arrive: one that has printed into a full disk does not end as if all were well. */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int output_lost; /* the exit status then */
static int output_error; /* errno */

/* false: it does not arrive, which is said at the end. */
static inline bool output_flush(void)
{
	if (fflush(stdout) < 0 && !output_error)
		output_error = errno;
	return !ferror(stdout);
}

static void output_end(void)
{
	bool good = output_flush();

	if (fclose(stdout) < 0 && !output_error)
		output_error = errno;
	if (good && !output_error)
		return;
	fprintf(stderr, "%s: the output cannot be written%s%s\n", program_invocation_short_name, output_error ? ": " : "",
		output_error ? strerror(output_error) : "");
	_exit(output_lost);
}

/*
 * First of all in main. Where standard output is closed, nothing else that is opened takes its place; a program that takes
 * this one's finds it closed.
 */
static inline void output_watch(int lost)
{
	int fd;

	while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0 && fd <= STDERR_FILENO)
		;
	if (fd >= 0)
		close(fd);
	output_lost = lost;
	atexit(output_end);
}

#endif
