/* SPDX-License-Identifier: BSD-3-Clause */
/* Ways by which file descriptions reach other processes, or file contents the program, without calls that are intercepted. */
#ifndef UMRUN_SHARING_H
#define UMRUN_SHARING_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* Before and after a message that may carry descriptors (SCM_RIGHTS). */
void sharing_send(const struct msghdr *msg);
void sharing_receive(struct msghdr *msg);
/* Before an ioctl(2) that clones ranges of files. */
void sharing_clone(int fd, unsigned long request, const void *arg);
/* Before a call of fcntl(2) that changes the description's flags, owner or lease. */
void sharing_change_description(int fd, int command);

/* Before a file is opened: the memory of a process (/proc/PID/mem) has no absent segments, whatever the engine. */
void sharing_open(const char *path);

/* Whether the file is open as a stream of the C library, and whether the program has begun asynchronous I/O: a region would miss
 * such transfers. */
bool sharing_has_stream(const struct stat *st, bool writable);
bool sharing_has_async(void);
/* Whether the program has opened the memory of a process. */
bool sharing_has_memory(void);

#endif
