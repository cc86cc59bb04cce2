/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * spelling - hints with misspelled names, which spelling.sh finds in warnings, and hints of other
 * layers.
 */
#include "common.h"

int main(int argc, char **argv)
{
	MPI_Info info;
	MPI_Win win;
	void *base;

	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	MPI_Info_create(&info);
	MPI_Info_set(info, "aloc_type", "storage");
	MPI_Info_set(info, "storage_alloc_filname", "nothing");
	MPI_Info_set(info, "no_locks", "false");
	MPI_Win_allocate(4096, 1, info, MPI_COMM_WORLD, &base, &win);
	MPI_Win_free(&win);
	MPI_Info_free(&info);
	MPI_Finalize();
	return 0;
}
