/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each event is one write(2) to a file that is opened for it with O_APPEND, so processes may be
 * killed, and a forked child needs nothing of its parent. An event that cannot be written is left
 * out. Two processes that begin the file at once may write two header lines, which the command
 * skips.
 */
#include "common/timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEADER "begin,end,process,event,bytes,store\n"

static const char *path; /* NULL: no timeline is written */

/* The program may change its environment later, while other threads run. */
__attribute__((constructor)) static void find_path(void)
{
	const char *value = secure_getenv("UMMAP_TIMELINE");

	if (value && *value)
		path = strdup(value);
}

/* Microseconds; machines of a job have about the same. */
static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t timeline_begin(void)
{
	return path ? now() : 0;
}

void timeline_end(uint64_t began, const char *role, const char *event, uint64_t bytes,
		  const char *store)
{
	uint64_t end = now();
	char line[600];
	struct stat st;
	int fd, n;

	if (!began)
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (fd < 0)
		return;
	n = snprintf(line, sizeof(line), "%s%" PRIu64 ".%06" PRIu64 ",%" PRIu64 ".%06" PRIu64
		     ",%s%d,%s,%" PRIu64 ",%.300s\n", fstat(fd, &st) == 0 && !st.st_size ? HEADER :
		     "", began / 1000000, began % 1000000, end / 1000000, end % 1000000, role,
		     (int)getpid(), event, bytes, store);
	/* A line that was written in part is left out by the command. */
	while (write(fd, line, (size_t)n) < 0 && errno == EINTR)
		;
	close(fd);
}
