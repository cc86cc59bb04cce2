/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * commit - ummpi_commit_begin and storage_alloc_winsync=async: the files get the contents of the
 * moment, errors of one rank reach all ranks, a checkpoint is one of all ranks, and handles may be
 * waited for late, never or twice.
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

/* Makes a copy of this rank's files, as they are after a crash at this moment. */
static void copy_part(const char *name)
{
	static const char *const suffixes[] = { "", ".wal", ".manifest" };
	char from[64], to[80], bytes[64 * KIB];

	for (size_t i = 0; i < 3; i++) {
		ssize_t n;
		int in, out;

		snprintf(from, sizeof(from), "%s.%d%s", name, rank, suffixes[i]);
		snprintf(to, sizeof(to), "copies/%s", from);
		in = open_in_folder(from);
		out = open_in_folder(to);
		while ((n = read(in, bytes, sizeof(bytes))) > 0)
			check(write(out, bytes, (size_t)n) == n);
		check(n == 0);
		close(in);
		close(out);
	}
}

/* A checkpoint that begins before the handle of an earlier one is waited for gets another number:
 * after a crash between two ranks, all ranks go back to the same checkpoint. */
static void test_unwaited_checkpoints(bool syncs)
{
	struct ummpi_commit *commit[2] = { NULL };
	const char *name = syncs ? "g" : "h";
	char path[400], file[20];
	uint64_t *base;
	MPI_Win win;

	snprintf(path, sizeof(path), "%s/copies", folder);
	check(mkdir(path, 0700) == 0 || errno == EEXIST);
	snprintf(file, sizeof(file), "%s.%%r", name);
	base = allocate(file, "storage_alloc_consistent", "true", &win);
	fill_words(base, 10);
	check(ummpi_commit_begin(&win, 1, MPI_COMM_WORLD, &commit[0]) == MPI_SUCCESS);
	fill_words(base, 20);
	if (syncs)
		check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
	else
		check(ummpi_commit_begin(&win, 1, MPI_COMM_WORLD, &commit[1]) == MPI_SUCCESS);
	check(ummpi_commit_wait(&commit[0]) == MPI_SUCCESS);
	check(ummpi_commit_wait(&commit[1]) == MPI_SUCCESS);
	if (rank > 0)
		copy_part(name);
	fill_words(base, 30);
	check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
	if (rank == 0)
		copy_part(name);
	/* The end of the window waits for a checkpoint, too. */
	fill_words(base, 40);
	check(ummpi_commit_begin(&win, 1, MPI_COMM_WORLD, &commit[0]) == MPI_SUCCESS);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	check(ummpi_commit_wait(&commit[0]) == MPI_SUCCESS);
	base = allocate(file, "storage_alloc_consistent", "true", &win);
	check_words(base, 40);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	snprintf(file, sizeof(file), "copies/%s.%%r", name);
	base = allocate(file, "storage_alloc_consistent", "true", &win);
	check_words(base, ranks > 1 ? 20 : 30);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

/* Handles that are waited for after the end of their windows, or twice. */
static void test_handles(void)
{
	struct ummpi_commit *commit = NULL;
	MPI_Win win;
	uint64_t *base = allocate("k.%r", NULL, NULL, &win);
	int done = 0;

	fill_words(base, 1);
	check(ummpi_commit_begin(&win, 1, MPI_COMM_WORLD, &commit) == MPI_SUCCESS);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	check(ummpi_commit_wait(&commit) == MPI_SUCCESS && !commit);
	check(ummpi_commit_wait(&commit) == MPI_SUCCESS && !commit);
	check(ummpi_commit_test(&commit, &done) == MPI_SUCCESS && done == 1);
	check_part('k', 1);
	check_error(ummpi_commit_begin(&win, -1, MPI_COMM_WORLD, &commit), MPI_ERR_ARG, "-1");
	check(ummpi_commit_begin(NULL, 0, MPI_COMM_WORLD, &commit) == MPI_SUCCESS);
	check(ummpi_commit_wait(&commit) == MPI_SUCCESS);
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
	test_unwaited_checkpoints(true);
	test_unwaited_checkpoints(false);
	test_handles();
	test_error();
	test_async_sync();
	test_refused();
	MPI_Finalize();
	return 0;
}
