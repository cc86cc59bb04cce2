/* SPDX-License-Identifier: BSD-3-Clause */
/* The variables of URIs. */
#ifndef VARS_H
#define VARS_H

#include <stddef.h>

#define VARS_VALUE_MAX 4095 /* bytes of a value: those of a path */

/* The number of characters at s that can be the name of a variable. */
size_t vars_name_len(const char *s);
/* Stores the value of the variable whose name is the first len characters of `name`. Returns the
 * length of the value, or -EINVAL with a message. */
int vars_get(const char *name, size_t len, char value[static VARS_VALUE_MAX + 1]);
/* Sets a variable of the program; value NULL: removes it. Returns 0, or -EINVAL or -ENOMEM with a
 * message. */
int vars_set(const char *name, const char *value);

#endif
