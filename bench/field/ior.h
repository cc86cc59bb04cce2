/* SPDX-License-Identifier: BSD-3-Clause */
/* What IOR's tests and its ways of reading and writing files know of each other. */
#ifndef FIELD_IOR_H
#define FIELD_IOR_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc.h"

struct ior_api;

/* The command line; IOR's letters. */
struct ior {
	const struct ior_api *api;        /* -a */
	struct alloc alloc;
	const char *file;                 /* -o */
	const char *json;
	size_t block, transfer;           /* -b -t */
	unsigned segments, reps;          /* -s -i */
	unsigned deadline;                /* -D, seconds; 0: none */
	bool random, per_process;         /* -z -F */
	bool reorder, fsync;              /* -C -e */
	bool write, read;                 /* -w -r */
	bool check_write, check_read;     /* -W -R */
	bool keep;                        /* -k */
	bool cold, direct;
	size_t file_size;                 /* of each file */
	char *buf, *pattern;              /* a transfer each, of a rank */
};

/* An open file of a phase. */
struct ior_file {
	int fd;
	MPI_File mpi;
	struct memory *memory;
};

/* A way of reading and writing. Each call ends the program where it fails. */
struct ior_api {
	const char *name;
	const char *kind;                 /* the memory that it copies to and from; NULL: none */
	bool filed;                       /* there are files */
	bool paged;                       /* by the page cache */
	void (*open)(struct ior_file *, const struct ior *, const char *path, bool write);
	void (*read)(struct ior_file *, void *buf, size_t len, uint64_t off);
	void (*write)(struct ior_file *, const void *buf, size_t len, uint64_t off);
	void (*sync)(struct ior_file *);
	void (*close)(struct ior_file *);
};

/* NULL if there is none of that name. */
const struct ior_api *ior_find(const char *name);

#endif
