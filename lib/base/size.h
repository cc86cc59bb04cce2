/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers of bytes, as people write them. */
#ifndef SIZE_H
#define SIZE_H

#include <stddef.h>

/* Bytes from "4096", "64K", "512M", "8G", "1T", small letters too. Returns 0 or -EINVAL. */
int size_parse(const char *text, size_t *size);

#endif
