/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of a file that a rank sees: runs of bytes. */
#ifndef FILE_VIEW_H
#define FILE_VIEW_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct run {
	int64_t at;              /* from where the item begins */
	int64_t before;          /* bytes of data of the item that come before */
};

struct view {
	int64_t disp;
	int64_t etype;           /* bytes of one */
	int64_t size, extent;    /* of a filetype: of its data, and from one to the next; size 0: the view shows nothing */
	struct run *runs;        /* of one; the one behind the last has `before` alone. NULL: there are no gaps */
	size_t n;
};

/* All of the file, in bytes. */
void view_init(struct view *v);
/* false: there is no memory, or the type cannot be taken apart. */
bool view_set(struct view *v, int64_t disp, MPI_Datatype etype, MPI_Datatype filetype);
void view_free(struct view *v);

/* Where byte `data` of what the view shows is in the file; *run: how many follow there in a row, itself included. */
int64_t view_place(const struct view *v, int64_t data, int64_t *run);
/* Whether that, and what is before it, is where a file can be. */
bool view_has(const struct view *v, int64_t data);
/* How many bytes of data the view shows in a file of so many. */
int64_t view_data(const struct view *v, int64_t size);

#endif
