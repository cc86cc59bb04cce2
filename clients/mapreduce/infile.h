/* SPDX-License-Identifier: BSD-3-Clause */
/* An open file of the input, which is read by read(2). */
#ifndef MAPREDUCE_INFILE_H
#define MAPREDUCE_INFILE_H

#include <stddef.h>
#include <stdint.h>

struct input_file;

struct infile {
	const struct input_file *file; /* the file; NULL: none is open */
	int fd;                        /* its descriptor */
};

/* Fails if the file has changed since the list of files was made. */
int infile_open(struct infile *f, const struct input_file *file);
void infile_close(struct infile *f);

/* Reads all of the bytes; fewer are an error. */
int infile_read(struct infile *f, char *to, size_t size, uint64_t offset);

/* Lets the kernel begin to read these bytes, for a later infile_read. */
void infile_prefetch(struct infile *f, uint64_t offset, size_t size);

#endif
