/* SPDX-License-Identifier: BSD-3-Clause */
/* The background thread: flush intervals, stragglers of write-behind, the place of the SIGSEGV handler. */
#ifndef WRITER_H
#define WRITER_H

/* Returns 0 or -errno with a sentence. */
int writer_start(void);

#endif
