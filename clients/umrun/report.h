/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts of the mappings that were taken or left to the kernel, and the lines on standard error
 * about them. */
#ifndef UMRUN_REPORT_H
#define UMRUN_REPORT_H

#include <stdbool.h>
#include <stddef.h>

/* Reasons to leave a mapping to the kernel: LEFT(name, text). Those from LEFT_OPEN on concern other
 * processes and calls, and are reported at the end. */
#define LEFT_REASONS \
	LEFT(LEFT_SMALL, "the mapping is smaller than --min") \
	LEFT(LEFT_NAME, "the name of the file does not match --only") \
	LEFT(LEFT_IN_MEMORY, "the file is in memory") \
	LEFT(LEFT_ACCESS, "the descriptor does not allow the access") \
	LEFT(LEFT_MAPPED, "the program has another mapping of the file, and one of the two is " \
	     "writable") \
	LEFT(LEFT_FAILED, "the library cannot map the file") \
	/* The next five do not apply with --exclusive. */ \
	LEFT(LEFT_OPEN, "the file is open more than once, and a writer may be among the openers") \
	LEFT(LEFT_DESCRIPTION, "another process may have the same open file description") \
	LEFT(LEFT_OWNER, "the file belongs to another user, who may write it") \
	LEFT(LEFT_NO_LEASES, "the file system does not tell when other processes open the file " \
	     "(no leases)") \
	LEFT(LEFT_FLAGS, "the descriptor has O_APPEND or O_DIRECT") \
	LEFT(LEFT_STREAM, "the file is open as a stream (fopen)") \
	LEFT(LEFT_ASYNC, "the program uses asynchronous I/O") \
	LEFT(LEFT_MEMORY_FILE, "the program has opened the memory of a process (/proc/PID/mem)")

enum left_reason {
#define LEFT(name, text) name,
	LEFT_REASONS
#undef LEFT
	LEFT_REASON_COUNT
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
