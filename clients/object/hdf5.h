/* SPDX-License-Identifier: BSD-3-Clause */
/* Chunks and views as files that any HDF5 program reads. */
#ifndef OBJECT_HDF5_H
#define OBJECT_HDF5_H

#include "object/backend.h"
#include "object/message.h"

/* The name of the dataset in all files. */
#define HDF5_DATASET "data"

/* An HDF5 file with one contiguous dataset, without the bytes of the dataset. Several puts may
 * share a frame, and must not change it. */
struct frame {
	unsigned refs;                     /* number of users; under the lock of hdf5.c */
	enum umobject_type type;           /* of the dataset, as are the next two */
	unsigned rank;
	uint64_t count[UMOBJECT_RANK_MAX];
	size_t user_block;                 /* bytes at the beginning that HDF5 skips; they are 0 */
	char *front, *back;                /* bytes of the file before and after the data */
	size_t front_size, back_size;
};

/* Returns a frame for a dataset of this type and rank, with count[d] elements in each dimension:
 * `frame` itself if it fits, or a frame in its place. frame NULL: the caller has none. */
struct frame *frame_fit(struct frame *frame, const struct umobject_shape *shape,
			const uint64_t *count, size_t user_block);
/* frame may be NULL. */
void frame_release(struct frame *frame);

/*
 * Makes a view: a file with one virtual dataset, the whole array, and the attributes of the object.
 * The parts of the dataset are in the files that name_file names. The view begins with a
 * header, which view_seal fills. data is NULL on an error.
 */
struct bytes view_make(const struct object *o, name_file_fn *name_file, void *arg);

/* ---- view.c ---- */

/*
 * The header of a view, which HDF5 skips as a user block. It has the id of the view's version and a
 * checksum, so that a damaged view, or a view in another one's place, is found without HDF5.
 */

/* Bytes of the header. HDF5 looks for its own header at 512. */
#define VIEW_HEADER_BYTES 512

/* Fills the header of a view, whose first VIEW_HEADER_BYTES bytes are free. */
void view_seal(struct bytes *view, const struct umobject_id *id);
/* Checks a view. Returns 0 or -1 (EBADMSG). */
int view_verify(const struct bytes *view, const struct umobject_id *id);

#endif
