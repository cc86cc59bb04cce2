/* SPDX-License-Identifier: BSD-3-Clause */
/* The NUMA nodes of the machine and their attributes, as hwloc(7) finds them. */
#ifndef NODES_H
#define NODES_H

#include <stdbool.h>
#include <stdint.h>

struct memory_node {
	unsigned number;
	bool has_processors;
	uint64_t bytes;           /* size of its memory */
	uint64_t bandwidth;       /* MB/s for the nearest processors (HMAT); 0: unknown */
	uint64_t latency;         /* ns, likewise */
	const char *kind;         /* "dram", "hbm" or "cxl" */
};

/* Finds the nodes with numbers below MAX_NODES, at most `most`. Returns how many, or -EOPNOTSUPP
 * with a message. */
int nodes_find(struct memory_node *nodes, unsigned most);

#endif
