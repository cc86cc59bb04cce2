/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef OBJECT_PLUGIN_H
#define OBJECT_PLUGIN_H

#include "object/backend.h"

/* The back end of a container, and what stands behind its scheme; NULL with a sentence. */
const struct backend_ops *plugin_find(const char *where, const char **rest);

#endif
