/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of this user in /dev/shm. A file gets its name when it is complete. Killed processes may
 * have left files there.
 */
#ifndef COMMON_SHM_FILES_H
#define COMMON_SHM_FILES_H

#include <stddef.h>

#define SHM_FOLDER "/dev/shm"

/* Makes a file of `size` bytes, which has no name and which only this user may open. Returns its
 * descriptor, or a negative errno value: -EFBIG if the file would exceed RLIMIT_FSIZE, beyond which
 * the kernel raises SIGXFSZ. */
int shm_make_file(size_t size);
/* Gives the file its name. Returns 0, -EEXIST, or another negative errno value. */
int shm_name_file(int fd, const char *path);

/* Calls `found` with the path of each file whose path begins with `begin`. */
void shm_each_file(const char *begin, void (*found)(const char *path));

#endif
