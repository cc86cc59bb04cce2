/* SPDX-License-Identifier: BSD-3-Clause */
/* The nodes of a communicator. Each has one owner, the rank that has the node's part. */
#ifndef IOCACHE_NODES_H
#define IOCACHE_NODES_H

#include <mpi.h>
#include <stdbool.h>

struct nodes {
	int n;                   /* number of nodes */
	int mine;                /* at an owner: number of its node */
	int *owner;              /* rank of each node's owner */
	bool owns;               /* whether this rank is an owner */
	bool first;              /* whether this rank is the first one of its machine */
};

/* Collective. false: no memory. */
bool nodes_find(struct nodes *n, MPI_Comm comm);
void nodes_free(struct nodes *n);

#endif
