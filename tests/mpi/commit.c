/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * commit - ummpi_commit_begin and storage_alloc_winsync=async: the files get the contents of the
 * moment, errors of one rank reach all ranks, and a checkpoint is one of all ranks.
 */
#include "common.h"

#include <ummap-mpi.h>

#define WORDS 300000

static uint64_t *allocate(const char *file, const char *name, const char *value, MPI_Win *win)
{
	MPI_Info info = storage_hints(file, "storage_alloc_segsize", "65536", name, value, NULL);
	uint64_t *base;

	check(MPI_Win_allocate(WORDS * 8, 8, info, MPI_COMM_WORLD, &base, win) == MPI_SUCCESS);
	MPI_Info_free(&info);
	return base;
}

static void fill_words(uint64_t *base, uint64_t value)
{
	for (size_t i = 0; i < WORDS; i++)
		base[i] = value + (uint64_t)rank;
}

static void check_words(const uint64_t *words, uint64_t value)
{
	for (size_t i = 0; i < WORDS; i++)
		check(words[i] == value + (uint64_t)rank, "word %zu is %" PRIu64, i, words[i]);
}

/* Checks this rank's part of the window whose file name begins with the letter. */
static void check_part(char letter, uint64_t value)
{
	uint64_t *words = malloc(WORDS * 8);
	char file[32];
	int fd;

	snprintf(file, sizeof(file), "%c.%d", letter, rank);
	fd = open_part(file);
	check(words && pread(fd, words, WORDS * 8, 0) == WORDS * 8);
	check_words(words, value);
	close(fd);
	free(words);
}

/* Two windows in one commit, which ends by polling at some ranks. */
static void test_windows(void)
{
	struct ummpi_commit *commit;
	uint64_t *base[2];
	MPI_Win win[2];
	int done = 0;

	base[0] = allocate("a.%r", NULL, NULL, &win[0]);
	base[1] = allocate("b.%r", NULL, NULL, &win[1]);
	for (uint64_t round = 1; round < 5; round++) {
		fill_words(base[0], 100 * round);
		fill_words(base[1], 1000 * round);
		check(ummpi_commit_begin(win, 2, MPI_COMM_WORLD, &commit) == MPI_SUCCESS);
		fill_words(base[0], 7);
		base[1][WORDS / 2] = 8;
		for (done = (rank + (int)round) % 2; !done;)
			check(ummpi_commit_test(&commit, &done) == MPI_SUCCESS);
		check(!commit || ummpi_commit_wait(&commit) == MPI_SUCCESS);
		check(!commit);
		check_part('a', 100 * round);
		check_part('b', 1000 * round);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	check(MPI_Win_free(&win[0]) == MPI_SUCCESS);
	check(MPI_Win_free(&win[1]) == MPI_SUCCESS);
}

static void test_checkpoints(void)
{
	struct ummpi_commit *commit;
	MPI_Win win;
	uint64_t *base = allocate("c.%r", "storage_alloc_consistent", "true", &win);

	fill_words(base, 10);
	check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
	fill_words(base, 20);
	check(ummpi_commit_begin(&win, 1, MPI_COMM_WORLD, &commit) == MPI_SUCCESS);
	fill_words(base, 30);
	check(ummpi_commit_wait(&commit) == MPI_SUCCESS);
	fill_words(base, 40);
	check(ummpi_commit_begin(&win, 1, MPI_COMM_WORLD, &commit) == MPI_SUCCESS);
	check(ummpi_commit_wait(&commit) == MPI_SUCCESS);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	base = allocate("c.%r", "storage_alloc_consistent", "true", &win);
	check_words(base, 40);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

/* The write of the last rank fails once. */
static void test_error(void)
{
	const char *driver = rank == ranks - 1 ?
		"error+posix:?error.op=write&error.errno=ENOSPC" : "posix:";
	struct ummpi_commit *commit;
	MPI_Win win;
	uint64_t *base = allocate("d.%r", "storage_alloc_driver", driver, &win);

	base[0] = 1;
	check(ummpi_commit_begin(&win, 1, MPI_COMM_WORLD, &commit) == MPI_SUCCESS);
	check_error(ummpi_commit_wait(&commit), MPI_ERR_NO_SPACE, "cannot commit");
	check(ummpi_commit_begin(&win, 1, MPI_COMM_WORLD, &commit) == MPI_SUCCESS);
	check(ummpi_commit_wait(&commit) == MPI_SUCCESS);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

static void test_async_sync(void)
{
	MPI_Win win;
	uint64_t *base = allocate("e.%r", "storage_alloc_winsync", "async", &win);

	check_hint(win, "storage_alloc_winsync", "async");
	fill_words(base, 10);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	fill_words(base, 20);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	base[0] = 0;
	check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
	base[0] = 20 + (uint64_t)rank;
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	check_part('e', 20);
}

static void test_refused(void)
{
	struct ummpi_commit *commit;
	MPI_Info info = storage_hints("f", NULL);
	uint64_t *base;
	MPI_Win win;

	check(MPI_Win_allocate_shared(4096, 8, info, MPI_COMM_WORLD, &base, &win) == MPI_SUCCESS);
	MPI_Info_free(&info);
	check_error(ummpi_commit_begin(&win, 1, MPI_COMM_WORLD, &commit), MPI_ERR_WIN, "shared");
	check(!commit);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

int main(int argc, char **argv)
{
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	test_windows();
	test_checkpoints();
	test_error();
	test_async_sync();
	test_refused();
	MPI_Finalize();
	return 0;
}
