/* SPDX-License-Identifier: BSD-3-Clause */
/* Files from which objects are made, and which are made from objects: plain bytes, arrays of NumPy, and HDF5. */
#ifndef OBJECT_FORMATS_H
#define OBJECT_FORMATS_H

#include <stdbool.h>
#include <stddef.h>
#include <ummap-object.h>

/* Takes the attributes of an array. Both calls return 0, or -1 to end the list. */
struct taker {
	int (*take)(void *arg, const char *name, const void *value, size_t size);
	int (*leave_out)(void *arg, const char *name, const char *reason); /* for an attribute that an object cannot have */
	void *arg;
};

/* An array that is read from, or written to, slab by slab: elements in row-major order. Calls return 0, or -1 with a sentence in why. */
struct array {
	struct umobject_shape shape; /* of what is there; without chunks */
	int (*read)(struct array *a, void *to, const uint64_t *start, const uint64_t *count);
	int (*write)(struct array *a, const void *from, const uint64_t *start, const uint64_t *count);
	/* Adds an attribute to an array that is written. NULL: the format has none. */
	int (*add_attribute)(struct array *a, const char *name, const void *value, size_t size);
	/* Gives each attribute of an array that is read to the taker. NULL: the format has none. */
	int (*attributes)(struct array *a, const struct taker *t);
	/* What was written is there when it returns 0. */
	int (*close)(struct array *a);
	const char *path;
	char why[512];
	int fd;
	uint64_t data;               /* where the elements begin */
	long long file, set;         /* HDF5's */
};

/* By the name: ".npy", and ".h5" or ".hdf5", behind which ":/name" may name a dataset, are arrays; all others are plain bytes, whose shape is
 * the caller's. "-" is standard input or output. */
int array_open(struct array *a, const char *path, const struct umobject_shape *plain);
int array_create(struct array *a, const char *path, const struct umobject_shape *shape);

/* Of one that is read in order, whether all of it was read: it is an error if there is more. */
int array_ends(struct array *a);

__attribute__((format(printf, 2, 3)))
int array_fail(struct array *a, const char *format, ...);

/* The types by their names: "double". 0: there is none. */
enum umobject_type type_of_name(const char *name);
const char *name_of_type(enum umobject_type type);

/* formats_npy.c, formats_hdf5.c */
int npy_open(struct array *a);
int npy_create(struct array *a);
int hdf5_open(struct array *a);
int hdf5_create(struct array *a);
bool is_hdf5(const char *path);

#endif
