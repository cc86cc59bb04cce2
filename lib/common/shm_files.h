/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of this user in /dev/shm, which killed processes may have left. */
#ifndef COMMON_SHM_FILES_H
#define COMMON_SHM_FILES_H

#define SHM_FOLDER "/dev/shm"

/* Calls `found` with the path of each file whose path begins with `begin`. */
void shm_each_file(const char *begin, void (*found)(const char *path));

#endif
