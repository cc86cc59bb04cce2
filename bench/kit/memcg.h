/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A memory cgroup for one child of a benchmark: a new group below the one that we are in (or the nearest one
 * above it where a limit can be set), version 1 or 2 of the interface.
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
	char dir[2 * PATH_MAX + 32]; /* the group made; "" if none was */
	char why[PATH_MAX + 64];      /* why none was */
};

/* Makes a group with that limit; false, with g->why, if that is not possible here. */
bool memcg_create(struct memcg *g, size_t limit);

/* Moves the calling process into the group. */
bool memcg_join(const struct memcg *g);

/* Moves it out again, to the group above: what it has touched inside stays charged there. */
bool memcg_leave(const struct memcg *g);

void memcg_remove(struct memcg *g);

#endif
