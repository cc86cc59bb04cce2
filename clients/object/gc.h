/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef OBJECT_GC_H
#define OBJECT_GC_H

#include "object/backend.h"
#include "object/message.h"

/* Removes versions that nobody names or holds, and chunks to which none that is named or held refers. */
int gc_all(struct backend *b, struct umobject_garbage *removed);
/* Removes one version, if nobody names or holds it, and these chunks of its id, to which no other version refers. What fails is left to
 * gc_all. */
void gc_version(struct backend *b, const struct umobject_id *id, const struct source *own, size_t n);

#endif
