/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of the engine sigbus beside its table (table.h). */
#ifndef SIGBUS_H
#define SIGBUS_H

/* From now on accesses may raise SIGBUS. Returns 0 or -errno with a sentence. */
int sigbus_start(void);
/* In a forked child: none do. */
void sigbus_forget(void);

#endif
