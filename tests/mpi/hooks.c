/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hooks - MPIs intercept the calls of the C library that map memory. umunmap_onto(3) must work, and
 * processes must end normally. The program is not position-independent, and root may map address 0:
 * a wrong call would be noticed.
 */
#include "common.h"

#define SEG (64 * KIB)
#define SIZE (16 * SEG)

static void take_place(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	uint8_t *pages = mmap(NULL, SIZE, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char uri[400];
	void *m;

	snprintf(uri, sizeof(uri), "posix:%s/own.%d", folder, rank);
	attr.flags = UMMAP_CREATE;
	check(ummap_open(uri, SIZE, SEG, READ_WRITE, &attr, &m) == 0, "%s", umerrormsg());
	check(pages != MAP_FAILED);
	fill(m, SIZE, 0, 1);
	fill(pages, SIZE, 0, 2);
	check(umunmap_onto(m, 1, pages) == 0, "%s", umerrormsg());
	check_bytes(m, SIZE, 0, 2);
	check(munmap(m, SIZE) == 0);
}

static void use_window(void)
{
	char file[32];
	uint8_t *base;
	MPI_Info info;
	MPI_Win win;

	snprintf(file, sizeof(file), "window.%d", rank);
	info = storage_hints(file, NULL);
	check(MPI_Win_allocate(SIZE, 1, info, MPI_COMM_WORLD, &base, &win) == MPI_SUCCESS);
	MPI_Info_free(&info);
	fill(base, SIZE, 0, 3);
	check_bytes(base, SIZE, 0, 3);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

int main(int argc, char **argv)
{
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	take_place();
	use_window();
	MPI_Finalize();
	return 0;
}
