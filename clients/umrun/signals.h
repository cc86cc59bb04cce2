/* SPDX-License-Identifier: BSD-3-Clause */
/* The signals by which the library learns of accesses. */
#ifndef UMRUN_SIGNALS_H
#define UMRUN_SIGNALS_H

#include <signal.h>

/* Signals report accesses from now on, and memory for system calls must be pinned. Unblocks the
 * signals in this thread. */
void signals_require_pins(void);
/* Returns the set without the library's signals, in room, or the set itself if signals do not
 * report accesses or the set is NULL. */
const sigset_t *signals_mask(const sigset_t *set, sigset_t *room);
/* Change the mask of the thread as sigprocmask(2) and sighold(3) do, except for the library's
 * signals. */
typedef int (*mask_call)(int how, const sigset_t *set, sigset_t *old);
int change_mask(mask_call next, int how, const sigset_t *set, sigset_t *old);
int change_one_signal(int how, int sig);

#endif
