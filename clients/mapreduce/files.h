/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of the input: rank 0 finds them, and all ranks have the same list. */
#ifndef MAPREDUCE_FILES_H
#define MAPREDUCE_FILES_H

#include <mpi.h>
#include <stdint.h>

struct input_file {
	const char *path;  /* name, in the memory of the list */
	uint64_t start;    /* offset of the file in the input */
	uint64_t size;     /* bytes */
	uint64_t mtime_ns; /* time of the last change */
};

struct file_list {
	struct input_file *files; /* in order of the input */
	char *names;              /* memory of all names */
	uint64_t count;           /* number of files */
	uint64_t size;            /* bytes of all files */
	uint64_t stamp;           /* hash of all names, sizes and times */
};

/* Collective. `inputs` of rank 0 counts. */
int files_find(struct file_list *l, MPI_Comm comm, const char *const *inputs);
void files_close(struct file_list *l);

/* Fails if the file has changed since files_find. */
int files_check(const struct input_file *f);

#endif
