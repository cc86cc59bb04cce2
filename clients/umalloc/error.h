/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef UMALLOC_ERROR_H
#define UMALLOC_ERROR_H

/* Keeps the sentence for umalloc_errormsg, sets errno, and returns -1. */
__attribute__((format(printf, 2, 3)))
int heap_fail(int error, const char *format, ...);

#endif
