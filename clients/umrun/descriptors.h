/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors of the library, which the program can neither close nor replace. */
#ifndef UMRUN_DESCRIPTORS_H
#define UMRUN_DESCRIPTORS_H

#include <stdbool.h>

/* The library's descriptors begin here, above those that programs expect. */
#define FD_FIRST 700

/* Copies a descriptor to a free number from FD_FIRST on, or to any free number. -1: there is
 * none. */
int descriptors_copy(int fd);
/* Calls found for each open descriptor from `first` on. Returns false if they cannot be
 * listed. Allocates no memory. */
bool descriptors_each(void (*found)(int fd), int first);
/* Records that the library has moved a descriptor to the number fd. */
void descriptors_note_copy(int fd);
/* Whether dup2(2) may give the number fd to the program. If not, errno is EBUSY, and the first time
 * a message is printed. */
bool descriptors_may_replace(int fd);

#endif
