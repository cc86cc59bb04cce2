/* SPDX-License-Identifier: BSD-3-Clause */
/* Eviction policies by their names on the command line. */
#ifndef BENCH_POLICY_H
#define BENCH_POLICY_H

#include <string.h>

#include "kit/common.h"
#include "ummap.h"

/* Returns UMMAP_PTYPE_*. */
int parse_policy(const char *name);

#endif
