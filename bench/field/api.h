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

/* What of it is under test, as the command line says. */
struct access {
	const struct api *api;
	struct alloc alloc;               /* for memory over a file; its kind follows from the api */
	size_t file_size;                 /* of each file */
	bool per_process;                 /* each rank has a file, else all have one */
	bool random, direct;
};

/* An open file. */
struct file {
	int fd;
	MPI_File mpi;
	struct memory *memory;
};

/* A way of reading and writing. Each call ends the program where it fails. */
struct api {
	const char *name;
	const char *kind;                 /* the memory that it copies to and from; NULL: none */
	bool filed;                       /* there are files */
	bool paged;                       /* by the page cache */
	void (*open)(struct file *, const struct access *, const char *path, bool write);
	void (*read)(struct file *, void *buf, size_t len, uint64_t off);
	void (*write)(struct file *, const void *buf, size_t len, uint64_t off);
	void (*expect)(struct file *, size_t len, uint64_t off); /* will be read soon; NULL: nobody can be told */
	void (*sync)(struct file *);      /* makes it durable */
	void (*close)(struct file *);
};

#define API_NAMES "POSIX, MPIIO, UMMAP, MMAP or MEMORY"

/* Takes the way by its name; ends the program if there is none. */
void access_choose(struct access *a, const char *name);
bool access_is(const struct access *a, const char *kind);
/* Makes a's file under that name, empty, or as long as memory over it needs it. */
void access_create(const struct access *a, const char *path);
/* Leaves nothing of the file in the page cache. */
void access_cool(const struct access *a, const char *path);
/* Ends the program if the ranks' parts of a file, of `unit` bytes each, would share segments of the library. */
void access_check_segments(const struct access *a, size_t unit);

#endif
