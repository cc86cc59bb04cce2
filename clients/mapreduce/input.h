/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The input is all files, one behind the other, and tasks are equal parts of that. A task maps the records that begin in
 * its part, and reads on to the end of the last one; so a record belongs to one task, however long it is.
 */
#ifndef MAPREDUCE_INPUT_H
#define MAPREDUCE_INPUT_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/stat.h>

#include <ummap-mapreduce.h>

#include "mapreduce/infile.h"
#include "mapreduce/kept.h"
#include "mapreduce/together.h"

/* What is read at first to find where a task's last record ends. */
#define INPUT_LOOK_AHEAD ((size_t)64 << 10)

struct file {
	const char *path; /* in names */
	uint64_t start;   /* in the input */
	uint64_t size;
	uint64_t time;    /* when it was changed last, in ns */
};

/* When a file was changed last, in ns. */
uint64_t input_time_of(const struct stat *st);

struct input {
	const struct ummr_config *config;
	struct file *files;
	char *names;
	uint64_t count;
	uint64_t size;
	uint64_t stamp;   /* of all names, sizes and times */
	uint64_t task_size;
	int64_t tasks;
	struct infile reading;  /* the file that is read */
	struct infile expected; /* the one after that */
	struct kept kept;       /* others */
	struct piece view;      /* of a file, for the task that is mapped */
	struct together together;
};

/* Collective: rank 0 looks for the files. */
int input_open(struct input *in, MPI_Comm comm, const struct ummr_config *config);
void input_close(struct input *in);

/* Whether a file of this name, whichever it is, belongs to it. */
bool input_has(const struct input *in, const char *path);

/* The last file that begins there or before: the one that has this byte of the input. */
uint64_t input_file_at(const struct input *in, uint64_t at);

/* The bytes of a task in one file: in [a, b) its records begin, [from, to) is read at first to find them. */
struct part {
	uint64_t number; /* of the file */
	uint64_t a, b, from, to;
};

/* The parts of a task in order: next_part begins at `*at`, which starts as 0. false: there are no more. */
bool input_next_part(const struct input *in, int64_t task, uint64_t *at, struct part *part);

/* Calls map for what the task has in each file. */
int input_map(struct input *in, int64_t task, int (*map)(const struct ummr_task *task, void *arg), void *arg);

/* That task may be the next one: the system begins to read it. */
void input_expect(struct input *in, int64_t task);

#endif
