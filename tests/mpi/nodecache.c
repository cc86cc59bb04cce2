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

/* Checks that an operation that changes bytes has an error of the window, and a sentence. */
static void check_refused(int code)
{
	char text[MPI_MAX_ERROR_STRING];
	int class, len;

	MPI_Error_class(code, &class);
	check(class == MPI_ERR_RMA_CONFLICT, "class %d", class);
	MPI_Error_string(code, text, &len);
	check(strstr(text, "read-only"), "%s", text);
}

/* A store would end the process of the target: operations that store are refused, whatever their
 * size, and others are made. */
static void change_next(MPI_Win win)
{
	static uint64_t words[SIZE / 8];
	uint64_t one = 1, old, expected;
	int next = (rank + 1) % ranks;
	MPI_Request request;

	MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
	check(MPI_Win_lock_all(0, win) == MPI_SUCCESS);
	for (int target = 0; target < ranks; target++) {
		check_refused(MPI_Put(words, 1, MPI_UINT64_T, target, 0, 1, MPI_UINT64_T, win));
		check_refused(MPI_Put(words, SIZE / 8, MPI_UINT64_T, target, 0, SIZE / 8,
				      MPI_UINT64_T, win));
		check_refused(MPI_Accumulate(words, SIZE / 8, MPI_UINT64_T, target, 0, SIZE / 8,
					     MPI_UINT64_T, MPI_SUM, win));
	}
	check_refused(MPI_Rput(words, 1, MPI_UINT64_T, next, 0, 1, MPI_UINT64_T, win, &request));
	check_refused(MPI_Fetch_and_op(&one, &old, MPI_UINT64_T, next, 0, MPI_SUM, win));
	check_refused(MPI_Compare_and_swap(&one, &one, &old, MPI_UINT64_T, next, 0, win));
	check_refused(MPI_Get_accumulate(&one, 1, MPI_UINT64_T, &old, 1, MPI_UINT64_T, next, 0, 1,
					 MPI_UINT64_T, MPI_REPLACE, win));
	check(MPI_Get(&expected, 8, MPI_BYTE, next, 16, 8, MPI_BYTE, win) == MPI_SUCCESS);
	check(MPI_Get_accumulate(NULL, 0, MPI_UINT64_T, &old, 1, MPI_UINT64_T, next, 16, 1,
				 MPI_UINT64_T, MPI_NO_OP, win) == MPI_SUCCESS);
	check(MPI_Win_unlock_all(win) == MPI_SUCCESS);
	check_bytes((uint8_t *)&expected, 8, 16, SEED);
	check(old == expected);
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
	change_next(win);
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
