/* SPDX-License-Identifier: BSD-3-Clause */
/* Text in URIs: ummap_open(3) decodes what this function encodes. */
#ifndef COMMON_URI_ENCODE_H
#define COMMON_URI_ENCODE_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Copies a path or a value of a key; characters with a meaning in URIs are encoded. The result is
 * cut off if it does not fit into `room` bytes. Returns its length. */
static inline size_t uri_encode(char *to, size_t room, const char *text)
{
	size_t len = 0;

	for (; *text && len + 4 <= room; text++)
		len += (size_t)snprintf(to + len, room - len,
					strchr("%?&={}", *text) ? "%%%02x" : "%c",
					(unsigned char)*text);
	to[len] = '\0';
	return len;
}

#endif
