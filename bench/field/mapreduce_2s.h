/* SPDX-License-Identifier: BSD-3-Clause */
/* The buffers of MapReduce-2S, and its checkpoints. */
#ifndef FIELD_MAPREDUCE_2S_H
#define FIELD_MAPREDUCE_2S_H

#include <stddef.h>

struct buffer {
	char *data;      /* NULL: the buffer is empty */
	size_t size;     /* bytes of contents */
	size_t capacity; /* bytes of memory */
};

/* Ends the program if there is no memory. */
void buffer_append(struct buffer *b, const void *data, size_t size);

/*
 * Writes the images of all ranks to the file ummr.NAME of the folder by collective MPI-IO, and
 * makes it durable before it replaces the previous one; collective.
 */
void write_checkpoint(const char *folder, const char *name, const struct buffer *image);

#endif
