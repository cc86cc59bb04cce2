/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting once, and fork. */
#ifndef CORE_H
#define CORE_H

#include "engine/engine.h"

#include <stddef.h>
#include <ummap.h>

/* Before the first mapping, and after a fork: reads the environment, installs handler and threads.
 * Returns 0, or -errno with a sentence. */
int start_library(void);
struct mapping;
/* What segments of a new mapping will need is there. 0, or -errno with a sentence. */
int start_prepare(const struct mapping *map);
/* A mapping was made: says in the log, once each, where its budget will be another than asked for. */
void start_note_mapping(const struct mapping *map);
/* Bytes that the mapping can count on: what is the process's due, or the least that one can work with. */
size_t start_budget(const struct mapping *map);

#endif
