/* SPDX-License-Identifier: BSD-3-Clause */
/* The names of the copy of jemalloc that is linked in. rules.mk renames them, because the program
 * may have a jemalloc of its own. */
#ifndef UMALLOC_JEMALLOC_H
#define UMALLOC_JEMALLOC_H

#define mallocx umalloc_je_mallocx
#define rallocx umalloc_je_rallocx
#define dallocx umalloc_je_dallocx
#define sallocx umalloc_je_sallocx
#define nallocx umalloc_je_nallocx
#define xallocx umalloc_je_xallocx
#define mallctl umalloc_je_mallctl
#define malloc_conf umalloc_je_malloc_conf
#include <jemalloc/jemalloc.h>

#endif
