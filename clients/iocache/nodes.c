/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI determines which ranks are on one node. UMMAP_TEST_IOCACHE_NODES=n pretends that the ranks of
 * each machine are on n nodes. The first rank of a node is its owner, and nodes are numbered in the
 * order of their owners.
 */
#include "iocache/open_file.h"

#include <stdint.h>
#include <stdlib.h>

/* The number of nodes that a machine of so many ranks counts as. */
static int nodes_of_machine(int ranks)
{
	const char *env = secure_getenv("UMMAP_TEST_IOCACHE_NODES");
	int n = env ? atoi(env) : 1;

	return n < 1 ? 1 : n > ranks ? ranks : n;
}

/* Finds out whether this rank is the first of its node and of its machine. Returns an MPI code. */
static int find_roles(MPI_Comm comm, bool *owns, bool *first)
{
	MPI_Comm machine;
	int rank, ranks, n;
	int code = PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);

	if (code != MPI_SUCCESS)
		return code;
	PMPI_Comm_rank(machine, &rank);
	PMPI_Comm_size(machine, &ranks);
	n = nodes_of_machine(ranks);
	*first = rank == 0;
	*owns = rank == 0 || (int64_t)rank * n / ranks != (int64_t)(rank - 1) * n / ranks;
	return PMPI_Comm_free(&machine);
}

bool nodes_find(struct nodes *n, MPI_Comm comm)
{
	int rank, ranks, mine, *all;

	*n = (struct nodes){ 0 };
	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &ranks);
	all = malloc((size_t)ranks * sizeof(*all));
	n->owner = malloc((size_t)ranks * sizeof(*all));
	if (!all || !n->owner || find_roles(comm, &n->owns, &n->first) != MPI_SUCCESS) {
		free(all);
		return false;
	}
	mine = n->owns;
	PMPI_Allgather(&mine, 1, MPI_INT, all, 1, MPI_INT, comm);
	for (int i = 0; i < ranks; i++) {
		if (all[i] && i == rank)
			n->mine = n->n;
		if (all[i])
			n->owner[n->n++] = i;
	}
	free(all);
	return true;
}

void nodes_free(struct nodes *n)
{
	free(n->owner);
	n->owner = NULL;
}
