/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nodecache - windows with storage_alloc_node_cache: ranks that open the same bytes of a file read
 * them once together, and get them from each other.
 */
#include "common.h"

#define SEG (16 * KIB)
#define SIZE (64 * SEG)
#define SEED 5
#define HINTS "storage_alloc_segsize", "16K", "storage_alloc_node_cache", "true"

static void get_from_next(MPI_Win win)
{
	uint8_t got[3 * SEG];

	check(MPI_Win_lock_all(0, win) == MPI_SUCCESS);
	check(MPI_Get(got, sizeof(got), MPI_BYTE, (rank + 1) % ranks, 7 * SEG + 8, sizeof(got),
		      MPI_BYTE, win) == MPI_SUCCESS);
	check(MPI_Win_unlock_all(win) == MPI_SUCCESS);
	check_bytes(got, sizeof(got), 7 * SEG + 8, SEED);
}

static void read_together(void)
{
	MPI_Info info = storage_hints("input", HINTS, NULL);
	unsigned long long bytes, sum;
	uint8_t *base;
	MPI_Win win;

	check(MPI_Win_allocate(SIZE, 1, info, MPI_COMM_WORLD, &base, &win) == MPI_SUCCESS);
	get_from_next(win);
	check_bytes(base, SIZE, 0, SEED);
	MPI_Barrier(MPI_COMM_WORLD);
	bytes = stat_of(base).read_bytes;
	MPI_Allreduce(&bytes, &sum, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
	check(sum == SIZE, "%llu", sum);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	MPI_Win_free(&win);
	MPI_Info_free(&info);
}

static void refuse(const char *name, const char *value)
{
	MPI_Info info = storage_hints("input", HINTS, name, value, NULL);
	void *base;
	MPI_Win win;

	check(MPI_Win_allocate(SIZE, 1, info, MPI_COMM_WORLD, &base, &win) != MPI_SUCCESS);
	MPI_Info_free(&info);
}

int main(int argc, char **argv)
{
	char path[400];
	int fd;

	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	snprintf(path, sizeof(path), "%s/input", folder);
	if (rank == 0) {
		fd = open(path, O_RDWR | O_CREAT, 0400);
		check(fd >= 0);
		file_fill(fd, 0, SIZE, 0, SEED);
		close(fd);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	read_together();
	refuse("storage_alloc_factor", "0.5");
	refuse("storage_alloc_writers", "true");
	refuse("storage_alloc_engine", "segv");
	MPI_Finalize();
	return 0;
}
