/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations of plug-ins (ummap-operation.h) on the data that an I/O process writes. */
#ifndef IO_RANKS_OPERATION_H
#define IO_RANKS_OPERATION_H

#include <stddef.h>
#include <stdint.h>

struct operation;

/* Begins an operation on the file of a descriptor. text: the value of the key ioranks.operation.
 * Returns NULL if it cannot begin, with -errno in *err and a message. */
struct operation *operation_begin(const char *text, int fd, int *err, char *why, size_t room);
/* Whether it has been begun with the same text. */
int operation_is(const struct operation *o, const char *text);
/* Passes data, or the end of a flush, on to it, unless it has failed. */
void operation_write(struct operation *o, const void *data, size_t len, uint64_t off);
void operation_commit(struct operation *o);
/* Returns 0, or the positive errno value with which it has failed, with its message. */
int operation_error(const struct operation *o, const char **why);
/* Ends it. Returns what operation_error returns. */
int operation_end(struct operation *o, char *why, size_t room);

#endif
