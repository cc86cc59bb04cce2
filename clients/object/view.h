/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The header of a view's file: HDF5 skips it as a user block. It has the id of the view's version and a checksum, so that a
 * damaged view, or a view in another one's place, is found without HDF5.
 */
#ifndef OBJECT_VIEW_H
#define OBJECT_VIEW_H

#include <stddef.h>
#include <ummap-object.h>

/* Bytes of the header; HDF5 looks for its own at 512. */
#define VIEW_HEADER_BYTES 512

/* Fills the header of a view, whose first VIEW_HEADER_BYTES are the header's. */
void view_seal(void *bytes, size_t size, const struct umobject_id *id);
/* 0, or -1 with a message (EBADMSG). A view without a header, as the first containers have them, is not checked. */
int view_verify(const void *bytes, size_t size, const struct umobject_id *id);

#endif
