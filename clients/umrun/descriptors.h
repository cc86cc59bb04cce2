/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors of the library, which the program can neither close nor replace. */
#ifndef UMRUN_DESCRIPTORS_H
#define UMRUN_DESCRIPTORS_H

#include <stdbool.h>

/* Records that the library has moved a descriptor to the number fd. */
void descriptors_note_copy(int fd);
/* Whether dup2(2) may give the number fd to the program. If not, errno is EBUSY, and the first time
 * a message is printed. */
bool descriptors_may_replace(int fd);
/* Called before close(2): 0, or -1 with errno if the descriptor is the library's. */
int prepare_close(const void *caller, int fd);
/* Closes the descriptors of a range, as close_range(2) does, except those of the library. */
int close_others(unsigned first, unsigned last, int flags);

#endif
