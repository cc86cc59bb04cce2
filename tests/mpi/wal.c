/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wal - ranks that share one file of MPI-IO's, each behind wal+ with a log of its own: a job that dies at any moment leaves
 * epochs that all ranks have, and opened at the newest of these, all shares are of one version. `wal FOLDER MILLISECONDS` syncs
 * version after version until the last rank kills itself; `wal FOLDER check` looks at what is there, and ends. wal.sh runs it.
 */
#include "common.h"

#include <ummap-mpi.h>

#define SEG (16 * KIB)
#define SIZE (16 * SEG)
#define BUDGET (4 * SEG)

static uint64_t *open_share(const char *epoch)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[1000];
	void *addr;

	attr.seg_size = SEG;
	snprintf(uri, sizeof(uri), "wal+mpiio:%s/share?stripe=%zu&rank=%d&ranks=%d&wal.path=%s/log.%d&wal.keep=4%s", folder, SEG,
		 rank, ranks, folder, rank, epoch);
	check(ummpi_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0, "%s", uri);
	return addr;
}

/* One file for all, the first time. */
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

/* The newest that all ranks have. */
static uint64_t agree(void)
{
	uint64_t oldest, newest, least, *words = open_share("");

	check(umcommits(words, &oldest, &newest) == 0);
	MPI_Allreduce(&newest, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
	check(oldest <= least && newest <= least + 1, "%" PRIu64 " to %" PRIu64 ", and %" PRIu64, oldest, newest, least);
	/* Nothing is added: what can be gone back to stays. */
	check(umunmap(words, 0) == 0);
	return least;
}

static void check_version(const uint64_t *words, uint64_t version)
{
	for (size_t i = 0; i < SIZE / 8; i++)
		check(words[i] == version, "word %zu is %" PRIu64 " at epoch %" PRIu64, i, words[i], version);
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
		/* Every other one by all ranks together: the same to wal+. */
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
	uint64_t epoch, *words;

	set_budget(BUDGET);
	check(argc == 3, "wal.sh runs this");
	start_mpi(&argc, &argv, MPI_THREAD_MULTIPLE);
	snprintf(folder, sizeof(folder), "%s", argv[1]);  /* kept for the next job */
	make_file();
	epoch = agree();
	snprintf(text, sizeof(text), "&wal.commit=%" PRIu64, epoch);
	words = open_share(text);
	check_version(words, epoch);
	if (strcmp(argv[2], "check") != 0)
		write_versions(words, epoch + 1, argv[2]);
	/* With one more, the end is one for which all goes home. */
	check(umsync(words, 0) == 0);
	check(umunmap(words, 0) == 0);
	if (rank == 0)
		printf("epoch %" PRIu64 "\n", epoch);
	MPI_Finalize();
	return epoch < 3;
}
