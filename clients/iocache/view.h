/* SPDX-License-Identifier: BSD-3-Clause */
/* Views of files: the bytes of a file that a rank sees. */
#ifndef IOCACHE_VIEW_H
#define IOCACHE_VIEW_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct run {
	int64_t at;              /* offset in the item */
	int64_t before;          /* bytes of the item's data before the run */
};

struct view {
	int64_t disp;
	int64_t etype;           /* bytes of an etype */
	int64_t size;            /* bytes of a filetype's data; 0: the view is empty */
	int64_t extent;          /* bytes of a filetype's extent */
	struct run *runs;        /* runs of a filetype, and one more whose `before` is the size;
				    NULL: the view has no gaps */
	size_t n;
};

/* Sets the view of the whole file, in bytes. */
void view_init(struct view *v);
/* false: no memory, or a filetype whose layout cannot be determined. */
bool view_set(struct view *v, int64_t disp, MPI_Datatype etype, MPI_Datatype filetype);
void view_free(struct view *v);

/* The offset in the file of byte `data` of the view. *run: result, the number of contiguous bytes
 * from there on. */
int64_t view_place(const struct view *v, int64_t data, int64_t *run);
/* Whether the offsets of this byte and of the bytes before it are valid. */
bool view_has(const struct view *v, int64_t data);
/* The bytes of the view in a file of this size. */
int64_t view_data(const struct view *v, int64_t size);

#endif
