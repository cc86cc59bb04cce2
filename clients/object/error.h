/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef OBJECT_ERROR_H
#define OBJECT_ERROR_H

/* Keeps the sentence for umobject_errormsg, sets errno, and returns -1. */
__attribute__((format(printf, 2, 3)))
int object_fail(int error, const char *format, ...);

#endif
