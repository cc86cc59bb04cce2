/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of benchmarks that load segments of a store without cost. */
#ifndef BENCH_TURNS_H
#define BENCH_TURNS_H

#include <getopt.h>

#include "kit/common.h"

struct options {
	size_t size, budget, seg;
	unsigned reps;
};

/* Parses and checks the options, except for --budget. */
void parse_options(struct options *o, int argc, char **argv, const char *help);

#endif
