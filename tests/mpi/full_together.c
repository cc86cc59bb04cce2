/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * full_together - a disk that is full when all ranks write together: every rank has the error, none loses a byte, neither
 * what changes after that; and once there is room, the same call succeeds.
 */
#include "small_fs.h"

#include <ummap-mpi.h>

#define SEG (64 * KIB)
#define OLD 1
#define NEW 2
#define ROOM (4 * MIB)  /* for two thirds of what is written */

/* MPI-IO of Open MPI 4 does not tell the reason of an error, unless it is ROMIO. */
static int full_class(void)
{
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
	const char *io = getenv("OMPI_MCA_io");

	return io && strstr(io, "romio") ? MPI_ERR_NO_SPACE : MPI_ERR_IO;
#else
	return MPI_ERR_NO_SPACE;
#endif
}

static uint8_t *allocate(const char *path, size_t size, MPI_Win *win)
{
	MPI_Info info = storage_hints("unused", "storage_alloc_segsize", "64K", "storage_alloc_stripe", "64K",
				      "storage_alloc_driver", "mpiio", "cb_buffer_size", "262144", NULL);
	char name[100];
	uint8_t *base;

	snprintf(name, sizeof(name), "%s/parts", path);
	MPI_Info_set(info, "storage_alloc_filename", name);
	check(MPI_Win_allocate((MPI_Aint)size, 1, info, MPI_COMM_WORLD, &base, win) == MPI_SUCCESS);
	MPI_Info_free(&info);
	return base;
}

static void check_parts(const char *path, size_t size, uint64_t seed)
{
	char name[100];
	int fd;

	snprintf(name, sizeof(name), "%s/parts", path);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	check(fd >= 0);
	for (size_t at = 0; at < size; at += SEG)
		check_file(fd, (at / SEG * (size_t)ranks + (size_t)rank) * SEG, SEG, at, seed);
	close(fd);
}

int main(int argc, char **argv)
{
	char path[64] = "";
	size_t size;
	uint8_t *base;
	MPI_Win win;
	int root = -1;

	set_budget(MIB);
	set_env("UMMAP_OVER_BUDGET", "64M");
	start_mpi(&argc, &argv, MPI_THREAD_MULTIPLE);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	mount_small(&root, path);
	size = ROOM * 3 / 2 / (size_t)ranks / SEG * SEG;
	if (rank == 0)
		fill_up(root, space(root) - ROOM);
	MPI_Barrier(MPI_COMM_WORLD);
	base = allocate(path, size, &win);
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	fill(base, size, 0, OLD + 10 * (uint64_t)rank);
	check_error(ummpi_sync_all(MPI_COMM_WORLD, base), full_class(), "parts");
	check_bytes(base, size, 0, OLD + 10 * (uint64_t)rank);
	check_error(ummpi_sync_all(MPI_COMM_WORLD, base), full_class(), "rank");
	fill(base, size, 0, NEW + 10 * (uint64_t)rank);
	check_error(MPI_Win_free(&win), full_class(), "parts");
	check(win != MPI_WIN_NULL);
	check_bytes(base, size, 0, NEW + 10 * (uint64_t)rank);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		make_space(root);
	MPI_Barrier(MPI_COMM_WORLD);
	/* An error of an eviction in the meantime is still to be told, once. */
	if (ummpi_sync_all(MPI_COMM_WORLD, base) != MPI_SUCCESS)
		check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
	check_bytes(base, size, 0, NEW + 10 * (uint64_t)rank);
	check_parts(path, size, NEW + 10 * (uint64_t)rank);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	check_parts(path, size, NEW + 10 * (uint64_t)rank);
	MPI_Finalize();
	return 0;
}
