/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UMALLOC_ERROR_H
#define UMALLOC_ERROR_H

#include <ummap.h>

#define heap_fail umseterror

#endif
