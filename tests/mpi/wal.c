/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wal - ranks share one file of the driver mpiio, and each rank has the filter wal+ with its own
 * log. A job that dies at any time leaves commits that all ranks have; opened at the newest of
 * these, all parts are of one version. `wal FOLDER MILLISECONDS` syncs versions until the last rank
 * kills itself. `wal FOLDER check` checks the parts. wal.sh runs both.
 */
#include "common.h"

#include <ummap-mpi.h>

#define SEG (16 * KIB)
#define SIZE (16 * SEG)
#define BUDGET (4 * SEG)

static uint64_t *open_part_of_file(const char *commit)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[1000];
	void *addr;

	attr.seg_size = SEG;
	snprintf(uri, sizeof(uri),
		 "wal+mpiio:%s/share?stripe=%zu&rank=%d&ranks=%d&wal.path=%s/log.%d&wal.keep=4%s",
		 folder, SEG, rank, ranks, folder, rank, commit);
	check(ummpi_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0, "%s", uri);
	return addr;
}

/* Creates the file of all ranks if it does not exist. */
static void make_file(void)
{
	char path[400];
	int fd;

	snprintf(path, sizeof(path), "%s/share", folder);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	check(fd >= 0 && (rank || ftruncate(fd, (off_t)(SIZE * (size_t)ranks)) == 0));
	close(fd);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Returns the newest commit number that all ranks have. */
static uint64_t find_common_commit(void)
{
	uint64_t oldest, newest, least, *words = open_part_of_file("");

	check(umcommits(words, &oldest, &newest) == 0);
	MPI_Allreduce(&newest, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
	check(oldest <= least && newest <= least + 1, "%" PRIu64 " to %" PRIu64 ", and %" PRIu64,
	      oldest, newest, least);
	/* A read-only mapping adds no commit, so older commits remain. */
	check(umunmap(words, 0) == 0);
	return least;
}

static void check_version(const uint64_t *words, uint64_t version)
{
	for (size_t i = 0; i < SIZE / 8; i++)
		check(words[i] == version, "word %zu is %" PRIu64 " at epoch %" PRIu64, i, words[i],
		      version);
}

static void *kill_later(void *ms)
{
	pause_ms((unsigned)atoi(ms));
	kill(getpid(), SIGKILL);
	return NULL;
}

static void write_versions(uint64_t *words, uint64_t version, char *ms)
{
	pthread_t thread;

	for (bool first = true;; first = false, version++) {
		for (size_t i = 0; i < SIZE / 8; i++)
			words[i] = version;
		/* Every other sync is collective; wal+ commits in both cases. */
		if (version % 2)
			check(umsync(words, 0) == 0);
		else
			check(ummpi_sync_all(MPI_COMM_WORLD, words) == MPI_SUCCESS);
		MPI_Barrier(MPI_COMM_WORLD);
		if (first && rank == ranks - 1)
			check(pthread_create(&thread, NULL, kill_later, ms) == 0);
	}
}

int main(int argc, char **argv)
{
	char text[40];
	uint64_t commit, *words;

	set_budget(BUDGET);
	check(argc == 3, "wal.sh runs this");
	start_mpi(&argc, &argv, MPI_THREAD_MULTIPLE);
	snprintf(folder, sizeof(folder), "%s", argv[1]);  /* remains for the next job */
	make_file();
	commit = find_common_commit();
	snprintf(text, sizeof(text), "&wal.commit=%" PRIu64, commit);
	words = open_part_of_file(text);
	check_version(words, commit);
	if (strcmp(argv[2], "check") != 0)
		write_versions(words, commit + 1, argv[2]);
	/* After another sync, closing applies and removes the logs. */
	check(umsync(words, 0) == 0);
	check(umunmap(words, 0) == 0);
	if (rank == 0)
		printf("epoch %" PRIu64 "\n", commit);
	MPI_Finalize();
	return commit < 3;
}
