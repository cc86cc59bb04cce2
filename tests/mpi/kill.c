/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kill - a job that dies at any time leaves the data that MPI_Win_sync has acknowledged, and the
 * next job continues. `kill FOLDER MILLISECONDS` puts versions into every word of the window of the
 * next rank, which is larger than the memory limit, until the last rank kills itself. `kill FOLDER
 * check` checks the windows. kill.sh runs both. With KILL_KERNEL, the kernel maps the windows, and
 * ranks access them without MPI.
 */
#include "common.h"

#define SEG (16 * KIB)
#define WORDS (16 * SEG / 8)
#define BUDGET (4 * SEG)

static uint64_t words[WORDS];

static uint64_t *map_part(MPI_Win *win)
{
	bool kernel = getenv("KILL_KERNEL");
	MPI_Info info = kernel ? storage_hints("part.%r", "storage_alloc_engine", "kernel", NULL) :
				 storage_hints("part.%r", "storage_alloc_segsize", "16K",
					       "storage_alloc_policy", "wiro-f", NULL);
	uint64_t *base;

	check(MPI_Win_allocate(sizeof(words), 8, info, MPI_COMM_WORLD, &base, win) == MPI_SUCCESS);
	MPI_Info_free(&info);
	return base;
}

static int open_acknowledged(void)
{
	char name[40];

	snprintf(name, sizeof(name), "acknowledged.%d", rank);
	return open_in_folder(name);
}

/*
 * No word is older than the acknowledged version or newer than the last one. Returns the newest
 * version of all ranks.
 */
static uint64_t check_part(const uint64_t *base, int fd)
{
	uint64_t acknowledged = 0, newest = 0;

	check(pread(fd, &acknowledged, sizeof(acknowledged), 0) >= 0);
	for (size_t i = 0; i < WORDS; i++) {
		check(base[i] >= acknowledged && base[i] <= acknowledged + 1,
		      "word %zu is %" PRIu64 ", but %" PRIu64 " was acknowledged", i, base[i],
		      acknowledged);
		newest = base[i] > newest ? base[i] : newest;
	}
	MPI_Allreduce(MPI_IN_PLACE, &newest, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
	return newest;
}

static void *kill_later(void *ms)
{
	pause_ms((unsigned)atoi(ms));
	kill(getpid(), SIGKILL);
	return NULL;
}

/* Starts the timer after all ranks have the first version. */
static void start_killer(char *ms)
{
	pthread_t thread;

	if (rank == ranks - 1)
		check(pthread_create(&thread, NULL, kill_later, ms) == 0);
}

static void write_versions(MPI_Win win, int fd, uint64_t version, char *ms)
{
	for (bool first = true;; first = false, version++) {
		for (size_t i = 0; i < WORDS; i++)
			words[i] = version;
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_lock(MPI_LOCK_SHARED, (rank + 1) % ranks, 0, win);
		MPI_Put(words, WORDS, MPI_UINT64_T, (rank + 1) % ranks, 0, WORDS, MPI_UINT64_T,
			win);
		MPI_Win_unlock((rank + 1) % ranks, win);
		MPI_Barrier(MPI_COMM_WORLD);
		check(MPI_Win_sync(win) == MPI_SUCCESS);
		check(pwrite(fd, &version, sizeof(version), 0) == sizeof(version));
		MPI_Barrier(MPI_COMM_WORLD);
		if (first)
			start_killer(ms);
	}
}

int main(int argc, char **argv)
{
	uint64_t newest, *base;
	MPI_Win win;
	int fd;

	set_budget(BUDGET);
	check(argc == 3, "kill.sh runs this");
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	snprintf(folder, sizeof(folder), "%s", argv[1]);  /* remains for the next job */
	fd = open_acknowledged();
	base = map_part(&win);
	newest = check_part(base, fd);
	if (strcmp(argv[2], "check") != 0)
		write_versions(win, fd, newest + 1, argv[2]);
	MPI_Win_free(&win);
	if (rank == 0)
		printf("version %" PRIu64 "\n", newest);
	MPI_Finalize();
	return newest < 3;
}
