/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * threads - MPI_THREAD_MULTIPLE: each thread of a rank creates its own windows, writes to those of
 * other ranks, syncs and frees them, concurrently with the other threads, while segments are
 * evicted and loaded.
 */
#include "common.h"

#define THREADS 3
#define SEG (4 * KIB)
#define SIZE (64 * KIB)
#define ROUNDS 2

struct worker {
	pthread_t thread;
	MPI_Comm comm;
	int number;
};

static void check_sum(const struct worker *w, const int64_t *base, int round)
{
	for (size_t i = 0; i < SIZE / 8; i++)
		check(base[i] == (int64_t)ranks * (round + 1) * (w->number + 1),
		      "word %zu is %" PRId64, i, base[i]);
}

/* All ranks add to all words of all ranks, in pieces. */
static void add_everywhere(const struct worker *w, MPI_Win win, const int64_t *ones)
{
	for (int r = 0; r < ranks; r++) {
		for (size_t at = 0; at < SIZE / 8; at += SEG / 8) {
			MPI_Win_lock(MPI_LOCK_SHARED, r, 0, win);
			MPI_Accumulate(ones, SEG / 8, MPI_INT64_T, r, (MPI_Aint)at, SEG / 8,
				       MPI_INT64_T, MPI_SUM, win);
			MPI_Win_unlock(r, win);
		}
	}
	MPI_Barrier(w->comm);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	int64_t ones[SEG / 8], *base;
	char file[32];
	MPI_Info info;
	MPI_Win win;

	for (size_t i = 0; i < SEG / 8; i++)
		ones[i] = w->number + 1;
	snprintf(file, sizeof(file), "%d.%%r", w->number);
	info = storage_hints(file, "storage_alloc_segsize", "4096", NULL);
	for (int round = 0; round < ROUNDS; round++) {
		check(MPI_Win_allocate(SIZE, 8, info, w->comm, &base, &win) == MPI_SUCCESS);
		add_everywhere(w, win, ones);
		check_sum(w, base, round);
		check(MPI_Win_sync(win) == MPI_SUCCESS);
		check(MPI_Win_free(&win) == MPI_SUCCESS);
	}
	MPI_Info_free(&info);
	return NULL;
}

int main(int argc, char **argv)
{
	struct worker workers[THREADS];

	set_budget(THREADS * SIZE / 4);
	start_mpi(&argc, &argv, MPI_THREAD_MULTIPLE);
	for (int i = 0; i < THREADS; i++) {
		workers[i].number = i;
		MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].comm);
	}
	for (int i = 0; i < THREADS; i++)
		check(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		MPI_Comm_free(&workers[i].comm);
	}
	MPI_Finalize();
	return 0;
}
