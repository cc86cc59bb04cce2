/* SPDX-License-Identifier: BSD-3-Clause */
/* Mappings of the kernel's that are kept for the time when the process has all that it may (vm.max_map_count). */
#ifndef SPARE_H
#define SPARE_H

#include <stdbool.h>

/* Keeps as many as there are again, up to the most; but for some, which others need at once. */
void spare_keep(void);
/* Gives up those that are kept, for whoever needs one next. false: there was none. Safe in a signal handler. */
bool spare_give(void);
/* Whether some were given up since this was asked last. */
bool spare_was_needed(void);
/* In a forked child. */
void spare_forget(void);

#endif
