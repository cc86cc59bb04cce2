/* SPDX-License-Identifier: BSD-3-Clause */
/* Children of the process, and its end. */
#ifndef UMRUN_PROCESS_H
#define UMRUN_PROCESS_H

#include <stdbool.h>

/* Whether this process has the regions; false in a child of vfork(2), which uses the memory of its
 * parent. */
bool is_own_process(void);
/* Returns the exit status of the program: `status`, or EXIT_FAILURE in place of 0 if stores are
 * lost. */
int exit_status(int status);

#endif
