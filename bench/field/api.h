/* SPDX-License-Identifier: BSD-3-Clause */
/* Ways of reading and writing files, for the benchmarks that compare them. */
#ifndef FIELD_API_H
#define FIELD_API_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc.h"

struct api;

/* The way under test, as the command line selects it. */
struct access {
	const struct api *api;
	struct alloc alloc;    /* memory over a file, of the kind that the api needs */
	size_t file_size;      /* bytes of each file */
	bool per_process;      /* whether each rank has a file of its own */
	bool random, direct;   /* random accesses; O_DIRECT */
};

/* An open file. */
struct file {
	int fd;
	MPI_File mpi;
	struct memory *memory;
};

/* A way of reading and writing. Each call ends the program on errors. */
struct api {
	const char *name;
	const char *kind;      /* kind of the memory over the file; NULL: none */
	bool filed;            /* whether there are files */
	bool paged;            /* whether the page cache has them */
	void (*open)(struct file *, const struct access *, const char *path, bool write);
	void (*read)(struct file *, void *buf, size_t len, uint64_t off);
	void (*write)(struct file *, const void *buf, size_t len, uint64_t off);
	void (*expect)(struct file *, size_t len, uint64_t off); /* announces a read; or NULL */
	void (*sync)(struct file *); /* makes the file durable */
	void (*close)(struct file *);
};

#define API_NAMES "POSIX, MPIIO, UMMAP, MMAP or MEMORY"

/* Selects a way by its name. Ends the program if there is none. */
void access_choose(struct access *a, const char *name);
bool access_is(const struct access *a, const char *kind);
/* Makes a file, empty, or as long as the memory over it. */
void access_create(const struct access *a, const char *path);
/* Removes the file from the page cache. */
void access_cool(const struct access *a, const char *path);
/* Ends the program if parts of a file, of `unit` bytes for each rank, would share segments. */
void access_check_segments(const struct access *a, size_t unit);

#endif
