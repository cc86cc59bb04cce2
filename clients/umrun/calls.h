/* SPDX-License-Identifier: BSD-3-Clause */
/* What calls do with memory that is in regions or in the heap, and with files that have regions. */
#ifndef UMRUN_CALLS_H
#define UMRUN_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* Whether the kernel cannot be given it as it is. */
bool is_held(const void *buf, size_t len);
/* Makes sure that the kernel can, until unpin; false: that was not needed. */
bool pin(const void *buf, size_t len, int prot);
void unpin(const void *buf, size_t len, bool pinned);
/* The file is going to have `len` bytes only: what of it is mapped behind is the kernel's before. -1 with errno. */
int shorten_file(const struct stat *st, off_t len);

#endif
