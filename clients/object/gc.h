/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef OBJECT_GC_H
#define OBJECT_GC_H

#include "object/backend.h"
#include "object/message.h"

/* Removes one version if it has no name and no holder, and n ranges of chunks of its id, to which
 * no other version refers. umobject_gc removes what could not be removed. */
void gc_version(struct backend *b, const struct umobject_id *id, const struct source *own,
		size_t n);

#endif
