/* SPDX-License-Identifier: BSD-3-Clause */
/* Private memory that the program maps, in the heap. The functions do the kernel's calls for struct
 * heap_calls (heap.h). */
#ifndef UMRUN_MAPPED_H
#define UMRUN_MAPPED_H

#include <stddef.h>

size_t mapped_left(const void *addr);
void *mapped_map(void *addr, size_t len, int prot, int flags);
int mapped_unmap(void *addr, size_t len);
void *mapped_remap(void *old, size_t old_len, size_t len, int flags);
int mapped_advise(void *addr, size_t len, int advice);
/* The number of calls that have mapped memory. */
unsigned long mapped_count(void);

#endif
