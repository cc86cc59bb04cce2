/* SPDX-License-Identifier: BSD-3-Clause */
/* The identity of the store that a URI or a descriptor names, which is known before the store is
 * opened: the file at its end, and the drivers on the way to the file. */
#ifndef IDENTITY_H
#define IDENTITY_H

#include "io/uri.h"

#include <stdbool.h>

struct identity {
	uint64_t file[2];        /* device and inode of the file at the end; file[1] 0: none */
	char *way;               /* all drivers with their keys, the outermost first */
	char *end;               /* the last driver with its path and keys */
};

/* fd: the descriptor that replaces the path; -1: none. Returns 0, or -ENOMEM with a message. */
int identity_make(struct identity *id, const struct uri *u, int fd);
/* The identity of a store that the caller has opened: no URI has it. */
int identity_of_handle(struct identity *id, const char *scheme);
void identity_free(struct identity *id);
/* Whether both lead to the same file through the same drivers with the same keys. */
bool identity_equal(const struct identity *a, const struct identity *b);
/* Whether both may end at the same bytes, with the same or different drivers. */
bool identity_meets(const struct identity *a, const struct identity *b);

#endif
