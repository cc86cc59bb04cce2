/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The header of a view, which HDF5 skips as a user block. It has the id of the view's version and a
 * checksum, so that a damaged view, or a view in another one's place, is found without HDF5.
 */
#ifndef OBJECT_VIEW_H
#define OBJECT_VIEW_H

#include "object/backend.h"

/* Bytes of the header. HDF5 looks for its own header at 512. */
#define VIEW_HEADER_BYTES 512

/* Fills the header of a view, whose first VIEW_HEADER_BYTES bytes are free. */
void view_seal(struct bytes *view, const struct umobject_id *id);
/* Returns 0 or -1 (EBADMSG). Views without a header, from early containers, are not checked. */
int view_verify(const struct bytes *view, const struct umobject_id *id);

#endif
