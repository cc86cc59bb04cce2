/* SPDX-License-Identifier: BSD-3-Clause */
/* Ways by which file descriptions reach other processes, or file contents reach the program,
 * without an intercepted call. */
#ifndef UMRUN_SHARING_H
#define UMRUN_SHARING_H

#include <stdio.h>
#include <sys/socket.h>

/* Called before a message is sent, and after one is received, that may carry descriptors
 * (SCM_RIGHTS). Keeps errno. */
void share_message(const struct msghdr *msg);
/* Called before a call of fcntl(2) that may change the flags, the owner or the lease of a
 * description. */
void share_changed_description(int fd, int command);
/* Called before a file is opened. The memory of a process (/proc/PID/mem) does not show absent
 * segments with any engine, so all regions are handed to the kernel before a program opens it. */
void share_memory_file(const char *path);
/* Records that a file is open as a stream, and returns the stream, which may be NULL. */
FILE *note_stream(FILE *stream);

#endif
