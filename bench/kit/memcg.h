/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A memory cgroup for a child of a benchmark: a new group below that of this process, or below the
 * nearest parent where a limit can be set. Version 1 or 2 of the interface.
 */
#ifndef BENCH_MEMCG_H
#define BENCH_MEMCG_H

#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kit/common.h"

struct memcg {
	char dir[2 * PATH_MAX + 32]; /* folder of the new group; "": there is none */
	char why[PATH_MAX + 64];      /* reason why there is none */
};

/* Creates a group with this limit. false, with g->why: it is not possible. */
bool memcg_create(struct memcg *g, size_t limit);

/* Moves the calling process into the group. */
bool memcg_join(const struct memcg *g);

/* Moves the process to the parent group. Its memory stays charged to the group. */
bool memcg_leave(const struct memcg *g);

void memcg_remove(struct memcg *g);

#endif
