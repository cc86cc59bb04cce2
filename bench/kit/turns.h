/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of benchmarks that turn over segments of a store which costs nothing. */
#ifndef BENCH_TURNS_H
#define BENCH_TURNS_H

#include <getopt.h>

#include "kit/common.h"

struct options {
	size_t size, budget, seg;
	unsigned reps;
};

/* Checks them, too, but not --budget. */
void parse_options(struct options *o, int argc, char **argv, const char *help);

#endif
