/* SPDX-License-Identifier: BSD-3-Clause */
/* Start of the library, and fork. */
#ifndef CORE_H
#define CORE_H

#include "engine/engine.h"

#include <stddef.h>
#include <ummap.h>

/* Starts the library before the first mapping, also in a forked child: reads the environment, and
 * installs the signal handler and the threads. 0, or -errno with a message. */
int start_library(void);
struct mapping;
/* Checks that the resources for segments of a new mapping are available. 0, or -errno with a
 * message. */
int start_prepare(const struct mapping *map);
/* Logs, once for each reason, if a new mapping has a smaller or larger budget than configured. */
void start_note_mapping(const struct mapping *map);

#endif
