/* SPDX-License-Identifier: BSD-3-Clause */
/* Ways by which file descriptions reach other processes, or file contents reach the program,
 * without an intercepted call. */
#ifndef UMRUN_SHARING_H
#define UMRUN_SHARING_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* Called before a child process begins, which shares the descriptions of this process; by clone(2),
 * with its flags. */
void begin_child(void);
void begin_clone(int flags);

/* Called before a message is sent, and after one is received, that may carry descriptors
 * (SCM_RIGHTS). */
void sharing_message(const struct msghdr *msg);
/* Called before an ioctl(2) that may clone ranges of files. */
void hand_back_cloned(int fd, unsigned long request, const void *arg);
/* Called before a call of fcntl(2) that may change the flags, the owner or the lease of a
 * description. */
void sharing_change_description(int fd, int command);

/* Called before a file is opened. The memory of a process (/proc/PID/mem) does not show absent
 * segments with any engine, so all regions are handed to the kernel before a program opens it. */
void sharing_open(const char *path);

/* Called before dup2(2): 0, or -1 with errno if the number is the library's. */
int prepare_replacement(int fd, int wanted);
/* Called before the C library writes to a descriptor by a stream. */
void share_with_stream(int fd);
/* Records that a file is open as a stream, or no longer. note_stream returns the stream, which may
 * be NULL. */
FILE *note_stream(FILE *file);
void forget_stream(FILE *file);
/* Called before the program begins asynchronous I/O. */
void begin_async(void);

/* Whether the file is open as a stream of the C library, and whether the program has begun
 * asynchronous I/O. A region of the file would miss such transfers. */
bool sharing_has_stream(const struct stat *st, bool writable);
bool sharing_has_async(void);
/* Whether the program has opened the memory of a process. */
bool sharing_has_memory(void);

#endif
