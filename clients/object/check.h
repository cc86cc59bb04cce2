/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef OBJECT_CHECK_H
#define OBJECT_CHECK_H

#include "object/container.h"

/* Checks that no version of the container has lost its name. Returns 0 or -1 (EBADMSG: one has). */
int check_names(struct umobject_container *c);
/* Reports an error if the record of a name, which led to this object, is that of another name. */
int check_owner(const struct object *o, const char *name);

#endif
