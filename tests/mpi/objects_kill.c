/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * objects_kill - a job with an object window that dies at any time leaves a version with the
 * contents of all ranks, which is not older than the last acknowledged one. `objects_kill FOLDER
 * MILLISECONDS` commits versions until the last rank kills itself. `objects_kill FOLDER check`
 * checks the version. objects_kill.sh runs both.
 */
#include "object_window.h"

#include <ummap-mpi.h>

#define SIZE (256 * KIB)

static void *kill_later(void *ms)
{
	pause_ms((unsigned)atoi(ms));
	kill(getpid(), SIGKILL);
	return NULL;
}

/* Records the newest acknowledged version. */
static void note(uint64_t version)
{
	char path[400];
	int fd;

	snprintf(path, sizeof(path), "%s/heard", folder);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	check(fd >= 0 && pwrite(fd, &version, sizeof(version), 0) == sizeof(version));
	close(fd);
}

static uint64_t noted(void)
{
	uint64_t version = 0;
	int fd = open_part("heard");

	if (fd >= 0) {
		check(pread(fd, &version, sizeof(version), 0) == sizeof(version));
		close(fd);
	}
	return version;
}

static uint64_t check_version(const uint64_t *words)
{
	uint64_t version = words[0], first = version;

	for (size_t i = 0; i < SIZE / 8; i++)
		check(words[i] == version, "word %zu is %" PRIu64 " in version %" PRIu64, i,
		      words[i], version);
	MPI_Bcast(&first, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	check(first == version, "%" PRIu64 " here, and %" PRIu64 " at rank 0", version, first);
	check(version >= noted(), "%" PRIu64 ", and %" PRIu64 " had been committed", version,
	      noted());
	MPI_Barrier(MPI_COMM_WORLD);
	return version;
}

static void write_versions(MPI_Win win, uint64_t *words, uint64_t version, char *ms)
{
	pthread_t thread;

	for (bool first = true;; first = false) {
		version++;
		for (size_t i = 0; i < SIZE / 8; i++)
			words[i] = version;
		/* Staging does not commit. */
		if (version % 3 == 0)
			check(MPI_Win_sync(win) == MPI_SUCCESS);
		check(ummpi_sync_all(MPI_COMM_WORLD, words) == MPI_SUCCESS);
		if (rank == 0)
			note(version);
		MPI_Barrier(MPI_COMM_WORLD);
		if (first && rank == ranks - 1)
			check(pthread_create(&thread, NULL, kill_later, ms) == 0);
	}
}

int main(int argc, char **argv)
{
	uint64_t *words, version;
	MPI_Win win;

	check(argc == 3);
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	snprintf(folder, sizeof(folder), "%s", argv[1]);
	name_box(folder);
	words = object_window(SIZE, object_hints("65536", "16K"), &win);
	version = check_version(words);
	if (strcmp(argv[2], "check") != 0)
		write_versions(win, words, version, argv[2]);
	check(version > 0);
	check(MPI_Win_free(&win) == MPI_SUCCESS);
	MPI_Finalize();
	return 0;
}
