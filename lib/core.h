/* SPDX-License-Identifier: BSD-3-Clause */
/* Start once, the door through which a fault comes in, and fork. */
#ifndef CORE_H
#define CORE_H

#include "engine.h"

#include <stdatomic.h>
#include <ummap.h>

/* Before the first mapping, and after a fork: reads the environment, installs handler and threads.
 * Returns 0, or -errno with a sentence. */
int core_start(void);
/* The application's handler of failed loads. */
void core_onerror(void (*fn)(void *addr, int error));
struct map;
struct set;
/* The engine of a new mapping: wanted is UMMAP_ENGINE_*, small says what its segments are. 0, or -errno with a sentence. */
int core_engine(int wanted, bool kernel, bool small, bool writable, enum engine *engine);
/* A mapping was made: says in the log, once each, where its budget will be another than asked for. */
void core_note_mapping(const struct set *set);
/* Bytes that the mapping may hold: the process's budget, or the least that one can work with. */
size_t core_budget(const struct set *set);
/* Adds the counters of a mapping to *st; or to those of the process, because it ends. */
void core_stat_map(const struct map *map, struct umstat *st);
void core_stat_ending(const struct map *map);
void core_stat_process(struct umstat *st);

#endif
