/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Places: the kinds of memory of which frames have free lists of their own. With tiers
 * (memory/tiers.h), each tier is a place. Otherwise each NUMA node is one, unless the process has a
 * memory policy of its own (numactl(8), MPI) or only one node: then there is one place, and nothing
 * here makes a system call. The place of a node without processors stays empty.
 */
#ifndef PLACE_H
#define PLACE_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_PLACES 16
/* NUMA nodes with larger numbers have no place, and their threads use place 0. */
#define MAX_NODES 64

extern unsigned place_count;
/* A kind of memory. */
struct place {
	uint64_t nodes;   /* its nodes, a bit for each; 0: none are preferred */
	uint64_t limit;   /* bytes that its frames may have; 0: no limit. The pool lowers it when
			     the file system of the file is full */
	int file;         /* file whose pages are the memory, which is no RAM; -1: there is none */
};
extern struct place all_places[MAX_PLACES];
/* Sum of the limits of places with files. */
extern uint64_t place_file_bytes;

static inline bool place_has_file(unsigned place)
{
	return all_places[place].file >= 0;
}

/* Makes places of the nodes that the process may use. */
void place_start(void);
/* Makes these n places, of which those with files have limits. */
void place_start_tiers(unsigned n, const struct place *tiers);
/* The set of the nodes that the process may allocate memory on. */
uint64_t place_allowed_nodes(void);

/* Returns the place of the processor on which the calling thread runs, or for a job the place of
 * the thread that posted it. */
unsigned place_find_thread(void);
static inline unsigned place_of_thread(void)
{
	return place_count == 1 ? 0 : place_find_thread();
}
/* For a thread of the library: the jobs that it runs from now on come from this place. */
void place_set_thread(unsigned place);

/* Memory that the calling thread populates between place_begin and place_end comes from a place, as
 * long as that has any. Both are safe in signal handlers, and keep errno. */
struct place_policy {
	uint64_t nodes[16];      /* policy of the thread before */
	int mode;
	bool is_changed;         /* whether place_end has to restore the policy */
};
void place_change_policy(unsigned place, struct place_policy *before);
void place_restore_policy(const struct place_policy *before);
static inline void place_begin(unsigned place, struct place_policy *before)
{
	before->is_changed = false;
	if (place_count > 1)
		place_change_policy(place, before);
}
static inline void place_end(const struct place_policy *before)
{
	if (before->is_changed)
		place_restore_policy(before);
}

#endif
