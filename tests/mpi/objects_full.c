/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * objects_full - an object window whose container is full, or full for one rank. The commit fails
 * at all ranks, the previous version is unchanged, and the window keeps the stored data. After
 * space is freed, the same call commits it.
 */
#include "small_fs.h"

#include "object_window.h"

#include <ummap-mpi.h>

#define PART (2 * MIB)
#define CHUNK "262144"
#define OLD 1
#define NEW 2

static void make_box(void)
{
	struct umobject_attr attr = UMOBJECT_ATTR_INIT;
	umobject_container *c;

	attr.flags = UMOBJECT_CREATE;
	if (rank == 0) {
		check(umobject_open(box, &attr, &c) == 0, "%s", umobject_errormsg());
		umobject_close(c);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

static uint8_t *open_window(MPI_Win *win)
{
	return object_window(PART, object_hints(CHUNK, "64K"), win);
}

static uint64_t seed_of(int version)
{
	return (uint64_t)(version * 100 + rank);
}

/* All ranks must have the same code. */
static void check_alike(int code)
{
	int most = code, least = code;

	MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	check(most == least, "%d", code);
}

static void commit_without_room(void *base, uint64_t before)
{
	int code = ummpi_sync_all(MPI_COMM_WORLD, base), class;
	char text[MPI_MAX_ERROR_STRING];

	check(code != MPI_SUCCESS);
	check_alike(code);
	MPI_Error_class(code, &class);
	MPI_Error_string(code, text, &(int){ 0 });
	check(class == MPI_ERR_NO_SPACE, "class %d: %s", class, text);
	check(strstr(text, "No space"), "%s", text);
	check(newest_version() == before);
}

int main(int argc, char **argv)
{
	char path[64] = "";
	uint64_t first;
	uint8_t *base;
	MPI_Win win;
	int root = -1, version = NEW;

	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	mount_small(&root, path);
	name_box(path);
	make_box();
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	base = open_window(&win);
	fill(base, PART, 0, seed_of(OLD));
	check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
	first = newest_version();
	/* There is no space for the chunks of any rank, and then only for those of one rank. */
	for (int alone = 0; alone < 2; alone++, version++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0)
			fill_up(root, space(root) - 128 * KIB);
		MPI_Barrier(MPI_COMM_WORLD);
		if (!alone || rank == ranks - 1)
			fill(base, PART, 0, seed_of(version));
		commit_without_room(base, first + (uint64_t)alone);
		commit_without_room(base, first + (uint64_t)alone);
		check_bytes(base, PART, 0,
			    seed_of(alone && rank < ranks - 1 ? version - 1 : version));
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0)
			make_space(root);
		MPI_Barrier(MPI_COMM_WORLD);
		check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
		check(newest_version() == first + 1 + (uint64_t)alone);
	}
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	base = open_window(&win);
	check_bytes(base, PART, 0, seed_of(rank == ranks - 1 ? version - 1 : version - 2));
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	MPI_Finalize();
	return 0;
}
