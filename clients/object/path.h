/* SPDX-License-Identifier: BSD-3-Clause */
/* Paths of containers: SCHEME:... selects a back end, any other path is a folder. */
#ifndef OBJECT_PATH_H
#define OBJECT_PATH_H

#include "object/backend.h"

/* The back end of a container, loaded if necessary. *rest: the text behind the scheme. */
const struct backend_ops *find_backend(const char *where, const char **rest);

#endif
