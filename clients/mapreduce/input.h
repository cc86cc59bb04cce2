/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The input: all files, one after the other, divided into tasks of equal size. A task has the
 * records that begin in its bytes, and is read to the end of its last record. A record thus belongs
 * to exactly one task, whatever its length.
 */
#ifndef MAPREDUCE_INPUT_H
#define MAPREDUCE_INPUT_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ummap-mapreduce.h>

#include "mapreduce/files.h"

/* Consecutive bytes of one file in memory. */
struct view {
	char *data;      /* the bytes */
	size_t size;     /* number of bytes */
	size_t capacity; /* bytes of memory */
	uint64_t offset; /* offset of the first byte in the file */
};

struct input {
	const struct ummr_config *config; /* configuration of the job */
	struct file_list list;            /* files of the input */
	uint64_t task_size;               /* bytes of a task */
	int64_t tasks;                    /* number of tasks */
	const struct input_file *current; /* the file that is read; NULL: none is open */
	int fd;                           /* its descriptor */
	struct view view;                 /* bytes of the task that is mapped */
};

/* Finds the files; collective. */
int input_open(struct input *in, MPI_Comm comm, const struct ummr_config *config);
void input_close(struct input *in);

/* Returns whether a file of the input is the file with this name, whatever its own name is. */
bool input_has_file(const struct input *in, const char *path);

/* Calls map for the records that the task has in each file. */
int input_map(struct input *in, int64_t task, int (*map)(const struct ummr_task *task, void *arg),
	      void *arg);

/* Lets the kernel begin to read a task. */
void input_prefetch(struct input *in, int64_t task);

#endif
