/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The input is all files, one behind the other, and tasks are equal parts of that. A task maps the records that begin in
 * its part, and reads on to the end of the last one; so a record belongs to one task, however long it is.
 */
#ifndef MAPREDUCE_INPUT_H
#define MAPREDUCE_INPUT_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#include <ummap-mapreduce.h>

struct file {
	const char *path; /* in names */
	uint64_t start;   /* in the input */
	uint64_t size;
	uint64_t time;    /* when it was changed last, in ns */
};

struct input {
	const struct ummr_config *config;
	struct file *files;
	char *names;
	uint64_t count;
	uint64_t size;
	uint64_t stamp;   /* of all names, sizes and times */
	uint64_t task_size;
	int64_t tasks;
	uint64_t open;  /* the file that fd is of */
	int fd;         /* -1: none */
	char *buffer;
	size_t room;
};

/* Collective: rank 0 looks for the files. */
int input_open(struct input *in, MPI_Comm comm, const struct ummr_config *config);
void input_close(struct input *in);

/* Calls map for what the task has in each file. */
int input_map(struct input *in, int64_t task, int (*map)(const struct ummr_task *task, void *arg), void *arg);

/* That task may be the next one: the system begins to read it. */
void input_expect(struct input *in, int64_t task);

#endif
