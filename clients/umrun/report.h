/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts of the mappings that were taken or left to the kernel, and the lines on standard error
 * about them. */
#ifndef UMRUN_REPORT_H
#define UMRUN_REPORT_H

#include <stdbool.h>
#include <stddef.h>

/* Reasons to leave a mapping to the kernel. */
enum left_reason {
	LEFT_SMALL,         /* shorter than --min */
	LEFT_NAME,          /* the name does not match --only */
	LEFT_IN_MEMORY,     /* the file system is in memory */
	LEFT_ACCESS,        /* the descriptor's access mode does not allow it */
	LEFT_PRIVATE,       /* private and writable */
	LEFT_MAPPED,        /* the file has another mapping, and one of the two is writable */
	LEFT_FAILED,        /* the library could not open it */
	/* The following reasons do not apply with --exclusive. */
	LEFT_OPEN,          /* the file is open elsewhere */
	LEFT_DESCRIPTION,   /* another process may share the open file description */
	LEFT_OWNER,         /* another user owns the file, so the kernel grants no lease */
	LEFT_NO_LEASES,     /* the file system has no leases */
	LEFT_FLAGS,         /* the description has O_APPEND or O_DIRECT */
	/* The following reasons always apply. */
	LEFT_STREAM,        /* the file is open as a stream of the C library */
	LEFT_ASYNC,         /* the program has asynchronous I/O of its own */
	LEFT_MEMORY_FILE,   /* the program has opened /proc/PID/mem */
	LEFT_REASONS
};

/* Counts a mapping that is left to the kernel. detail: a message of the library, or NULL.
 * Returns false. */
bool report_left(int fd, enum left_reason why, const char *detail);
/* Counts a mapping of this many bytes that the library has taken. */
void report_taken(size_t bytes);
/* Counts a mapping of the file of fd that was handed to the kernel. is_reopened: the file was
 * opened again. */
void report_handed_back(int fd, const char *reason, bool is_reopened);
/* Prints the line about mappings that stayed with the kernel, and the statistics of --stats. */
void report_end(void);

#endif
