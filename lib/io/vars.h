/* SPDX-License-Identifier: BSD-3-Clause */
/* The variables of URIs. */
#ifndef VARS_H
#define VARS_H

#include <stddef.h>

#define VARS_VALUE_MAX 4095 /* bytes; a path's */

/* How many characters at s could be a variable's name. */
size_t vars_name_len(const char *s);
/* Stores the value of the variable whose name is the first len characters, and returns its length; or
 * -EINVAL with a sentence. */
int vars_get(const char *name, size_t len, char value[static VARS_VALUE_MAX + 1]);
/* Sets a variable of the program; value NULL: removes it. 0, -EINVAL or -ENOMEM with a sentence. */
int vars_set(const char *name, const char *value);

#endif
