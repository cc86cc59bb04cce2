/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * consistent - windows with storage_alloc_consistent in one job. A later window has the contents of
 * the last checkpoint, also with parts of different sizes and without bytes. Files that do not
 * match are refused with a message at all ranks. If the storage of one rank is full, all ranks keep
 * the previous checkpoint.
 */
#include "common.h"

#include <signal.h>
#include <sys/resource.h>
#include <ummap-mpi.h>

#define WORDS 50000

static int allocate(const char *file, MPI_Aint words, MPI_Comm comm, const char *name,
		    const char *value, uint64_t **base, MPI_Win *win)
{
	MPI_Info info = storage_hints(file, "storage_alloc_consistent", "true", name, value, NULL);
	int code = MPI_Win_allocate(words * 8, 8, info, comm, base, win);

	MPI_Info_free(&info);
	return code;
}

static uint64_t *open_window(const char *file, MPI_Aint words, MPI_Win *win)
{
	uint64_t *base;

	check(allocate(file, words, MPI_COMM_WORLD, NULL, NULL, &base, win) == MPI_SUCCESS);
	return base;
}

static void fill_words(uint64_t *base, size_t words, uint64_t value)
{
	for (size_t i = 0; i < words; i++)
		base[i] = value + (uint64_t)rank;
}

static void check_words(const uint64_t *base, size_t words, uint64_t value)
{
	for (size_t i = 0; i < words; i++)
		check(base[i] == value + (uint64_t)rank, "word %zu is %" PRIu64, i, base[i]);
}

/*
 * A collective sync makes a checkpoint, and so does the end of a window. With
 * storage_alloc_discard, stores after the last checkpoint are dropped.
 */
static void test_contents(void)
{
	MPI_Win win;
	uint64_t *base = open_window("part.%r", WORDS, &win);
	MPI_Aint *size;
	int found;

	check(MPI_Win_get_attr(win, MPI_WIN_SIZE, &size, &found) == MPI_SUCCESS && found &&
	      *size == WORDS * 8);
	check_hint(win, "storage_alloc_consistent", "true");
	check_hint(win, "storage_alloc_winsync", "memory");
	fill_words(base, WORDS, 100);
	check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
	fill_words(base, WORDS, 200);
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	check(allocate("part.%r", WORDS, MPI_COMM_WORLD, "storage_alloc_discard", "true", &base,
		       &win) == MPI_SUCCESS);
	check_words(base, WORDS, 200);
	fill_words(base, WORDS, 300);
	check(ummpi_sync_all(MPI_COMM_WORLD, base + 5) == MPI_SUCCESS);
	fill_words(base, WORDS, 400);
	/* This is not a sync of all ranks, and makes nothing durable. */
	check(MPI_Win_sync(win) == MPI_SUCCESS);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	base = open_window("part.%r", WORDS, &win);
	check_words(base, WORDS, 300);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

/* The parts have different sizes; that of the first rank is empty. */
static void test_different_sizes(void)
{
	MPI_Win win;
	uint64_t *base;

	for (uint64_t run = 0; run < 2; run++) {
		base = open_window("own.%r", rank * 1001, &win);
		if (run)
			check_words(base, (size_t)rank * 1001, 7);
		fill_words(base, (size_t)rank * 1001, 7);
		check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
		check(MPI_Win_free(&win) == MPI_SUCCESS);
	}
}

/* A window can begin with a file without a manifest. */
static void test_plain_files(void)
{
	MPI_Info info = storage_hints("plain.%r", NULL);
	uint64_t *base;
	MPI_Win win;

	check(MPI_Win_allocate(WORDS * 8, 8, info, MPI_COMM_WORLD, &base, &win) == MPI_SUCCESS);
	MPI_Info_free(&info);
	fill_words(base, WORDS, 50);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	base = open_window("plain.%r", WORDS, &win);
	check_words(base, WORDS, 50);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

static void path_of(char path[400], const char *format)
{
	char name[60];

	snprintf(name, sizeof(name), format, rank);
	snprintf(path, 400, "%s/%s", folder, name);
}

static void test_refused_files(void)
{
	uint64_t *base;
	MPI_Comm some;
	MPI_Win win;
	char path[400], kept[400];

	check_error(allocate("part.%r", WORDS + (rank == ranks - 1), MPI_COMM_WORLD, NULL, NULL,
			     &base, &win),
		    MPI_ERR_ARG, "it was written with 400000 bytes");
	MPI_Comm_split(MPI_COMM_WORLD, rank == ranks - 1, rank, &some);
	MPI_Comm_set_errhandler(some, MPI_ERRORS_RETURN);
	if (rank < ranks - 1)
		check_error(allocate("part.%r", WORDS, some, NULL, NULL, &base, &win), MPI_ERR_ARG,
			    "it was written by a job of");
	MPI_Comm_free(&some);
	if (ranks > 1)
		check_error(allocate("all", WORDS, MPI_COMM_WORLD, NULL, NULL, &base, &win),
			    MPI_ERR_INFO_VALUE, "a file for each rank");
	/* The manifest of the last rank is missing, and then its file. */
	path_of(path, "part.%d.manifest");
	path_of(kept, "kept.%d");
	check(rank < ranks - 1 || rename(path, kept) == 0);
	check_error(allocate("part.%r", WORDS, MPI_COMM_WORLD, NULL, NULL, &base, &win), MPI_ERR_IO,
		    "has no manifest");
	check(rank < ranks - 1 || rename(kept, path) == 0);
	path_of(path, "part.%d");
	check(rank < ranks - 1 || rename(path, kept) == 0);
	if (ranks > 1)
		check_error(allocate("part.%r", WORDS, MPI_COMM_WORLD, NULL, NULL, &base, &win),
			    MPI_ERR_IO, "other ranks have checkpoint");
	check(rank < ranks - 1 || rename(kept, path) == 0);
	base = open_window("part.%r", WORDS, &win);
	check_words(base, WORDS, 300);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

static void test_conflicting_hints(void)
{
	static const char *const bad[][2] = {
		{ "storage_alloc_offset", "4096" },      { "storage_alloc_factor", "0.5" },
		{ "storage_alloc_unlink", "true" },      { "storage_alloc_writers", "true" },
		{ "storage_alloc_engine", "kernel" },    { "storage_alloc_driver", "mpiio" },
		{ "storage_alloc_driver", "wal+posix" }, { "storage_alloc_winsync", "storage" }
	};
	MPI_Info info = storage_hints("some.%r", "storage_alloc_consistent", "true", NULL);
	uint64_t *base;
	MPI_Win win;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check_error(allocate("some.%r", WORDS, MPI_COMM_WORLD, bad[i][0], bad[i][1], &base,
				     &win),
			    MPI_ERR_INFO_VALUE, "cannot use storage_alloc_consistent with");
	check_error(MPI_Alloc_mem(4096, info, &base), MPI_ERR_INFO_VALUE,
		    "it is for MPI_Win_allocate only");
	check_error(MPI_Win_allocate_shared(4096, 1, info, MPI_COMM_WORLD, &base, &win),
		    MPI_ERR_INFO_VALUE, "MPI_Win_allocate only");
	if (ranks > 1)
		check_error(MPI_Win_allocate(4096, 1, rank ? info : MPI_INFO_NULL, MPI_COMM_WORLD,
					     &base, &win),
			    MPI_ERR_INFO_VALUE, "at some ranks only");
	MPI_Info_free(&info);
	check(!has_file("some.0"));
}

/* A call makes a checkpoint only if all ranks of the window make it with their own parts. */
static void test_calls_without_checkpoint(void)
{
	MPI_Win win;
	uint64_t *base = open_window("part.%r", WORDS, &win);

	if (ranks > 1)
		check_error(ummpi_sync_all(MPI_COMM_WORLD, rank ? base : NULL), MPI_ERR_ARG,
			    "cannot make a checkpoint");
	if (ranks > 1)
		check_error(ummpi_sync_all(MPI_COMM_SELF, base), MPI_ERR_ARG,
			    "cannot make a checkpoint");
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

/* The log of the last rank cannot grow: no rank commits, and the same call succeeds later. */
static void test_full_disk(void)
{
	struct rlimit before, none = { 100000, RLIM_INFINITY };
	MPI_Win win;
	uint64_t *base = open_window("part.%r", WORDS, &win);

	signal(SIGXFSZ, SIG_IGN);
	check(getrlimit(RLIMIT_FSIZE, &before) == 0);
	none.rlim_max = before.rlim_max;
	fill_words(base, WORDS, 500);
	check(rank < ranks - 1 || setrlimit(RLIMIT_FSIZE, &none) == 0);
	for (int i = 0; i < 4; i++)
		check(ummpi_sync_all(MPI_COMM_WORLD, base) != MPI_SUCCESS);
	check(rank < ranks - 1 || setrlimit(RLIMIT_FSIZE, &before) == 0);
	check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	base = open_window("part.%r", WORDS, &win);
	check_words(base, WORDS, 500);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

static void copy_file(const char *from, const char *to)
{
	static char bytes[1 << 16];
	int in = open(from, O_RDONLY | O_CLOEXEC),
	    out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t n;

	check(in >= 0 && out >= 0, "%s", from);
	while ((n = read(in, bytes, sizeof(bytes))) > 0)
		check(write(out, bytes, (size_t)n) == n);
	check(n == 0);
	close(in);
	close(out);
}

/*
 * Copies a part as a process that dies now would leave it. The log is copied first: changes that
 * are applied meanwhile are then applied again.
 */
static void copy_part(const char *from, const char *to)
{
	char in[400], out[400], format[40];

	for (int i = 0; i < 2; i++) {
		snprintf(format, sizeof(format), "%s.%%d%s", from, i ? "" : ".wal");
		path_of(in, format);
		snprintf(format, sizeof(format), "%s.%%d%s", to, i ? "" : ".wal");
		path_of(out, format);
		copy_file(in, out);
	}
}

/* The last rank dies before its commit, and the others after theirs. */
static void test_rollback(void)
{
	MPI_Win win;
	uint64_t *base = open_window("back.%r", WORDS, &win);

	for (uint64_t moment = 1; moment < 4; moment++) {
		fill_words(base, WORDS, 10 * moment);
		check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
		if (moment == (rank == ranks - 1 ? 2 : 3))
			copy_part("back", "died");
		MPI_Barrier(MPI_COMM_WORLD);
	}
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	copy_part("died", "back");
	base = open_window("back.%r", WORDS, &win);
	check_words(base, WORDS, 20);
	/* Later checkpoints have new commit numbers. */
	fill_words(base, WORDS, 40);
	check(ummpi_sync_all(MPI_COMM_WORLD, base) == MPI_SUCCESS);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	base = open_window("back.%r", WORDS, &win);
	check_words(base, WORDS, 40);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
}

int main(int argc, char **argv)
{
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	test_contents();
	test_different_sizes();
	test_plain_files();
	test_refused_files();
	test_conflicting_hints();
	test_calls_without_checkpoint();
	test_full_disk();
	test_rollback();
	MPI_Finalize();
	return 0;
}
