/* SPDX-License-Identifier: BSD-3-Clause */
/* What makes chunks and objects files that any HDF5 program reads. */
#ifndef OBJECT_HDF5_H
#define OBJECT_HDF5_H

#include "object/message.h"

#include <stddef.h>
#include <stdint.h>
#include <ummap-object.h>

/* The name of the dataset in all files. */
#define HDF5_DATASET "data"

/* An HDF5 file of one contiguous dataset, without the bytes of the dataset. */
struct frame {
	void *front; /* begins with `skip` zeros, which are the writer's */
	size_t front_size;
	void *back;
	size_t back_size;
};

/* For an array of that type and rank, and `count` elements in each dimension. */
int frame_make(const struct umobject_shape *shape, const uint64_t *count, size_t skip, struct frame *frame);
void frame_free(struct frame *frame);

/*
 * A file of one virtual dataset, the whole array, whose parts are in the files that `file` names (relative to where the view will be;
 * into text, of `size` bytes), and whose attributes are the object's. It begins with the header of view.h.
 * NULL with a sentence; for the caller to free.
 */
void *view_make(const struct object *o, void (*file)(void *arg, const struct umobject_id *id, uint64_t number, char *text, size_t size),
		void *arg, size_t *size);

#endif
