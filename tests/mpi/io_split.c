/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * io_split - ummpi_io_split: I/O ranks write what the other ranks of their machine commit, until
 * these free their communicator or finalize MPI. The number of I/O ranks is IO_RANKS. One window
 * has an operation.
 */
#include "common.h"

#include <ummap-mpi.h>

#define WORDS 300000
#define ROUNDS 4

static int k; /* number of I/O ranks of each machine */

static uint64_t bytes_written(void)
{
	char text[500] = "";
	int fd = open("/proc/self/io", O_RDONLY | O_CLOEXEC);
	const char *at;

	check(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	at = strstr(text, "wchar: ");
	check(at);
	return strtoull(at + 7, NULL, 10);
}

static void check_words(const char *name, const uint64_t *words)
{
	uint64_t *stored = malloc(WORDS * 8);
	int fd = open_in_folder(name);

	check(stored && pread(fd, stored, WORDS * 8, 0) == WORDS * 8);
	check(memcmp(stored, words, WORDS * 8) == 0, "%s", name);
	close(fd);
	free(stored);
}

static void check_refused(int number)
{
	MPI_Comm compute = MPI_COMM_WORLD;

	check_error(ummpi_io_split(MPI_COMM_WORLD, number, &compute), MPI_ERR_ARG, "I/O ranks");
	check(compute == MPI_COMM_NULL);
}

/* Makes the hint for an operation of examples/ioranks. */
static void use_operation(char driver[500])
{
	char path[400];
	ssize_t len = readlink("/proc/self/exe", path, 320);

	check(len > 0 && len < 320);
	path[len] = '\0';
	snprintf(strrchr(path, '/'), 80, "/../../../examples/ioranks/minmax.so");
	snprintf(driver, 500, "ioranks+posix:?ioranks.operation=%s", path);
}

/* The operation has written a line for each commit. */
static void check_lines(const char *name)
{
	char path[64], text[4000] = "";
	unsigned lines = 0;
	int fd;

	snprintf(path, sizeof(path), "%s.minmax", name);
	fd = open_in_folder(path);
	check(read(fd, text, sizeof(text) - 1) > 0, "%s", path);
	close(fd);
	for (const char *c = text; *c; c++)
		lines += *c == '\n';
	check(lines >= ROUNDS, "%s: %u", path, lines);
}

/* Commits of a window, while the rank goes on. */
static void commit_window(MPI_Comm compute, const char *letter, const char *driver)
{
	uint64_t *base, *copy = malloc(WORDS * 8);
	struct ummpi_commit *commit;
	char file[20], name[32];
	MPI_Info info;
	MPI_Win win;
	int own;

	MPI_Comm_rank(compute, &own);
	snprintf(file, sizeof(file), "%s.%%r", letter);
	snprintf(name, sizeof(name), "%s.%d", letter, own);
	info = storage_hints(file, "storage_alloc_segsize", "65536", "storage_alloc_driver",
			     driver, NULL);
	check(copy && MPI_Win_allocate(WORDS * 8, 8, info, compute, &base, &win) == MPI_SUCCESS);
	MPI_Info_free(&info);
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		for (size_t i = 0; i < WORDS; i++)
			copy[i] = base[i] = round * 100 + (uint64_t)own + i;
		check(ummpi_commit_begin(&win, 1, compute, &commit) == MPI_SUCCESS);
		memset(base, 0, WORDS * 4);
		check(ummpi_commit_wait(&commit) == MPI_SUCCESS);
		check_words(name, copy);
	}
	memcpy(base, copy, WORDS * 8);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	check_words(name, copy);
	free(copy);
}

/* A mapping through an I/O rank that is open when the work ends. */
static uint64_t *map_private(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[400];
	void *m;

	snprintf(uri, sizeof(uri), "ioranks+posix:%s/private.%d", folder, rank);
	attr.flags = UMMAP_CREATE;
	check(ummap_open(uri, WORDS * 8, 0, READ_WRITE, &attr, &m) == 0);
	return m;
}

static void compute_until_free(MPI_Comm compute)
{
	uint64_t *words = map_private(), *copy = calloc(WORDS, 8);
	char name[32];

	commit_window(compute, "a", "ioranks+posix:");
	check(getenv("UMMAP_IO_RANKS") && copy);
	check(MPI_Comm_free(&compute) == MPI_SUCCESS);
	check(!getenv("UMMAP_IO_RANKS"));
	/* The I/O rank has closed the connection: this rank writes itself. */
	MPI_Barrier(MPI_COMM_WORLD);
	words[WORDS / 2] = copy[WORDS / 2] = 5;
	check(umsync(words, 0) == 0);
	snprintf(name, sizeof(name), "private.%d", rank);
	check_words(name, copy);
	check(umunmap(words, 1) == 0);
	free(copy);
}

int main(int argc, char **argv)
{
	uint64_t before, written, sum = 0;
	int io_ranks, serves;
	MPI_Comm compute;

	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	k = getenv("IO_RANKS") ? atoi(getenv("IO_RANKS")) : 1;
	check_refused(0);
	check_refused(ranks);
	before = bytes_written();
	check(ummpi_io_split(MPI_COMM_WORLD, k, &compute) == MPI_SUCCESS);
	serves = compute == MPI_COMM_NULL;
	written = serves ? bytes_written() - before : 0;
	if (serves)
		MPI_Barrier(MPI_COMM_WORLD);
	else
		compute_until_free(compute);
	MPI_Reduce(&written, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Allreduce(&serves, &io_ranks, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	check(io_ranks >= k && io_ranks % k == 0);
	check(rank > 0 || sum >= (uint64_t)(ranks - io_ranks) * ROUNDS * WORDS * 8, "%" PRIu64,
	      sum);
	/* MPI_Finalize ends the work, too. */
	check(ummpi_io_split(MPI_COMM_WORLD, k, &compute) == MPI_SUCCESS);
	if (compute != MPI_COMM_NULL) {
		char driver[500], name[32];
		int own;

		use_operation(driver);
		commit_window(compute, "b", driver);
		MPI_Comm_rank(compute, &own);
		snprintf(name, sizeof(name), "b.%d", own);
		check_lines(name);
		map_private();
	}
	MPI_Finalize();
	return 0;
}
