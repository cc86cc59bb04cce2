/* SPDX-License-Identifier: BSD-3-Clause */
/* Paths of open descriptors, by which a file can be opened again whichever name it has by now. */
#ifndef COMMON_FD_PATH_H
#define COMMON_FD_PATH_H

#include <stdio.h>

#define FD_FOLDER "/proc/self/fd/"
#define FD_PATH_BYTES 32

static inline void fd_path(char path[static FD_PATH_BYTES], int fd)
{
	snprintf(path, FD_PATH_BYTES, FD_FOLDER "%d", fd);
}

#endif
