/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cachedthreads - the threads of each rank use one file, by its file pointer and in atomic mode. No
 * write is lost, and no write is there in part.
 */
#include "common.h"

#define THREADS 4
#define TURNS 50
#define WORDS 40

static MPI_File file;

/* Appends records, which have the rank and thread of the writer. */
static void *append(void *arg)
{
	int me = (int)(intptr_t)arg;

	for (int i = 0; i < TURNS; i++) {
		int record[WORDS];

		for (int w = 0; w < WORDS; w++)
			record[w] = me * TURNS + i;
		check(MPI_File_write(file, record, WORDS, MPI_INT, MPI_STATUS_IGNORE) ==
		      MPI_SUCCESS);
	}
	return NULL;
}

static void *overwrite(void *arg)
{
	int me = (int)(intptr_t)arg;

	for (int i = 0; i < TURNS; i++) {
		static const int n = 1000;
		int record[n];

		for (int w = 0; w < n; w++)
			record[w] = me * TURNS + i;
		check(MPI_File_write_at(file, 0, record, n, MPI_INT, MPI_STATUS_IGNORE) ==
		      MPI_SUCCESS);
		check(MPI_File_read_at(file, 0, record, n, MPI_INT, MPI_STATUS_IGNORE) ==
		      MPI_SUCCESS);
		for (int w = 1; w < n; w++)
			check(record[w] == record[0], "%d and %d", record[w], record[0]);
	}
	return NULL;
}

static void run_threads(void *(*body)(void *))
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		check(pthread_create(&threads[i], NULL, body,
				     (void *)(intptr_t)(rank * THREADS + i)) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* The file has each record of all threads once. */
static void check_records(void)
{
	bool seen[THREADS * TURNS] = { false };

	for (int i = 0; i < THREADS * TURNS; i++) {
		int record[WORDS], which;

		check(MPI_File_read_at(file, (MPI_Offset)i * sizeof(record), record, WORDS, MPI_INT,
				       MPI_STATUS_IGNORE) == MPI_SUCCESS);
		which = record[0] - rank * THREADS * TURNS;
		check(which >= 0 && which < THREADS * TURNS && !seen[which], "record %d is %d", i,
		      record[0]);
		seen[which] = true;
		for (int w = 1; w < WORDS; w++)
			check(record[w] == record[0]);
	}
}

int main(int argc, char **argv)
{
	char path[400];
	MPI_Info info;
	MPI_Offset at;

	start_mpi(&argc, &argv, MPI_THREAD_MULTIPLE);
	snprintf(path, sizeof(path), "%s/file", folder);
	MPI_Info_create(&info);
	MPI_Info_set(info, "pmem_path", folder);
	MPI_Info_set(info, "pmem_size", "4M");
	check(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE, info, &file) ==
	      MPI_SUCCESS);
	MPI_Info_free(&info);
	check(MPI_File_set_view(file, (MPI_Offset)rank * (THREADS * TURNS * WORDS * 4), MPI_BYTE,
				MPI_BYTE, "native", MPI_INFO_NULL) == MPI_SUCCESS);
	run_threads(append);
	check(MPI_File_get_position(file, &at) == MPI_SUCCESS && at == THREADS * TURNS * WORDS * 4,
	      "%lld", (long long)at);
	check_records();
	check(MPI_File_set_atomicity(file, 1) == MPI_SUCCESS);
	check(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL) ==
	      MPI_SUCCESS);
	run_threads(overwrite);
	check(MPI_File_close(&file) == MPI_SUCCESS);
	MPI_Finalize();
	return 0;
}
