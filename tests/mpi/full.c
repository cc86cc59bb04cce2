/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * full - full storage: MPI_Win_sync and MPI_Win_free fail with the class MPI_ERR_NO_SPACE, at all
 * ranks if the call is collective. The data remains in the window, and the calls succeed after
 * space is freed.
 */
#include "small_fs.h"

#define SEG (64 * KIB)
#define NEW 2
#define ROOM (4 * MIB) /* free space: two thirds of the written data */

static uint8_t *allocate(const char *path, size_t size, MPI_Win *win)
{
	MPI_Info info = storage_hints("unused", "storage_alloc_segsize", "64K", NULL);
	char name[100];
	uint8_t *base;

	snprintf(name, sizeof(name), "%s/part.%%r", path);
	MPI_Info_set(info, "storage_alloc_filename", name);
	check(MPI_Win_allocate((MPI_Aint)size, 1, info, MPI_COMM_WORLD, &base, win) == MPI_SUCCESS);
	MPI_Info_free(&info);
	return base;
}

static void put_to_all(MPI_Win win, size_t size)
{
	uint8_t *bytes = malloc(size);

	fill(bytes, size, 0, NEW + (uint64_t)rank);
	for (int r = 0; r < ranks; r++) {
		size_t share = size / (size_t)ranks, from = share * (size_t)rank;

		MPI_Win_lock(MPI_LOCK_SHARED, r, 0, win);
		MPI_Put(bytes + from, (int)share, MPI_BYTE, r, (MPI_Aint)from, (int)share, MPI_BYTE,
			win);
		MPI_Win_unlock(r, win);
	}
	free(bytes);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void check_puts(const uint8_t *base, size_t size)
{
	size_t share = size / (size_t)ranks;

	for (int r = 0; r < ranks; r++)
		check_bytes(base + share * (size_t)r, share, share * (size_t)r, NEW + (uint64_t)r);
}

/* Syncs twice if needed: the first call may report the error of an earlier eviction. */
static void sync_after_error(MPI_Win win)
{
	if (MPI_Win_sync(win) != MPI_SUCCESS)
		check(MPI_Win_sync(win) == MPI_SUCCESS);
}

int main(int argc, char **argv)
{
	uint64_t available;
	char path[64] = "", name[100];
	size_t size;
	uint8_t *base;
	MPI_Win win;
	int root = -1, fd;

	set_budget(MIB);
	set_env("UMMAP_OVER_BUDGET", "64M");
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	mount_small(&root, path);
	available = rank == 0 ? space(root) : 0;
	MPI_Bcast(&available, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	size = ROOM * 3 / 2 / (size_t)ranks / SEG * SEG;
	if (rank == 0)
		fill_up(root, available - ROOM);
	MPI_Barrier(MPI_COMM_WORLD);
	base = allocate(path, size, &win);
	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	put_to_all(win, size);
	/* The sync of an early rank may succeed: it syncs until the storage is full. */
	while (MPI_Win_sync(win) == MPI_SUCCESS)
		memset(base, 0, 1);
	check_error(MPI_Win_sync(win), MPI_ERR_NO_SPACE, "part");
	MPI_Barrier(MPI_COMM_WORLD);
	put_to_all(win, size);
	check_puts(base, size);
	check_error(MPI_Win_free(&win), MPI_ERR_NO_SPACE, "rank");
	check(win != MPI_WIN_NULL);
	check_puts(base, size);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		make_space(root);
	MPI_Barrier(MPI_COMM_WORLD);
	sync_after_error(win);
	check_puts(base, size);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	snprintf(name, sizeof(name), "%s/part.%d", path, rank);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	check(fd >= 0 && file_size(fd) == size);
	base = file_read(fd, 0, size, __FILE__, __LINE__);
	check_puts(base, size);
	free(base);
	close(fd);
	MPI_Finalize();
	return 0;
}
