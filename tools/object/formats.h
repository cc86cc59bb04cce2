/* SPDX-License-Identifier: BSD-3-Clause */
/* Formats of files that are put and got: plain bytes, NumPy arrays, and HDF5 datasets. */
#ifndef OBJECT_FORMATS_H
#define OBJECT_FORMATS_H

#include <stdbool.h>
#include <stddef.h>
#include <ummap-object.h>

/* Takes the attributes of an array. Both calls return 0, or -1 to end the list. */
struct taker {
	int (*take)(void *arg, const char *name, const void *value, size_t size);
	/* Called for an attribute that an object cannot have. */
	int (*leave_out)(void *arg, const char *name, const char *reason);
	void *arg;
};

/* An array in a file, which is read or written slab by slab, in row-major order. Calls return 0, or
 * -1 with a message in why. */
struct array {
	struct umobject_shape shape; /* shape of the array, without chunks */
	int (*read)(struct array *a, void *to, const uint64_t *start, const uint64_t *count);
	int (*write)(struct array *a, const void *from, const uint64_t *start,
		     const uint64_t *count);
	/* Adds an attribute to an array that is written. NULL: the format has no attributes. */
	int (*add_attribute)(struct array *a, const char *name, const void *value, size_t size);
	/* Passes each attribute of an array that is read to the taker. NULL: the format has no
	 * attributes. */
	int (*attributes)(struct array *a, const struct taker *t);
	/* Closes the file. If it returns 0, all data has been written. */
	int (*close)(struct array *a);
	const char *path;
	char why[512];
	int fd;
	uint64_t data;               /* offset of the elements in the file */
	long long file, set;         /* identifiers of HDF5 */
};

/* Open or create a file in the format that its name tells: .npy, .h5 or .hdf5 (with ":/name" for a
 * dataset), else plain bytes, whose shape the caller gives. "-" is standard input or output. */
int array_open(struct array *a, const char *path, const struct umobject_shape *plain);
int array_create(struct array *a, const char *path, const struct umobject_shape *shape);

/* Transfer the next bytes of a file that is read or written in order. end: the message if the file
 * ends. */
int read_bytes(struct array *a, void *to, uint64_t size, const char *end);
int write_bytes(struct array *a, const void *from, uint64_t size);
/* Checks that a file that is read in order has no more data. */
int array_ends(struct array *a);

__attribute__((format(printf, 2, 3)))
int array_fail(struct array *a, const char *format, ...);

/* Convert between types and their names, such as "double". 0: there is no such type. */
enum umobject_type type_of_name(const char *name);
const char *name_of_type(enum umobject_type type);

/* The formats of formats_npy.c and formats_hdf5.c. */
int npy_open(struct array *a);
int npy_create(struct array *a);
int hdf5_open(struct array *a);
int hdf5_create(struct array *a);
bool is_hdf5(const char *path);

#endif
