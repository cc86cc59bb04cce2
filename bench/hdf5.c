/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hdf5 - HDF5 files in stores of libummap, beside the default driver of HDF5 (sec2).
 *
 *	hdf5 URI PATH write [MIB]   writes a dataset in chunks of 1 MiB (1024), and closes the file
 *	hdf5 URI PATH flush [SETS]  creates small datasets (1000), and flushes after each of them
 *	hdf5 URI PATH read [READS]  reads rows of 4 KiB at random (10000) from the file of `write`
 *
 * URI is `sec2`, or one without a path, such as wal+posix:. A flush of sec2 ends with fsync(2), and
 * so does a close after the file was written. The output is a row: URI, task, number, seconds until
 * the file was written (before fsync), seconds in all, seconds of processor time.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <ummap-hdf5.h>

#define CHUNK_BYTES ((size_t)1 << 20)
#define CHUNK (CHUNK_BYTES / sizeof(double))
#define ROW 512
#define SMALL 100

static hid_t fapl;
static const char *path;
static int sec2_fd = -1;      /* descriptor for fsync, or -1 */
static double written;        /* time when the file was written */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double processor_time(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static hid_t must(hid_t id)
{
	if (id < 0)
		exit(EXIT_FAILURE);
	return id;
}

static void make_durable(void)
{
	written = now();
	if (sec2_fd >= 0 && fsync(sec2_fd) == -1)
		exit(EXIT_FAILURE);
}

static hid_t create_file(void)
{
	return must(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl));
}

/* ---- Tasks ---- */

static void write_chunks(long mib)
{
	hsize_t rows = (hsize_t)mib * CHUNK, chunk = CHUNK, start = 0;
	hid_t file = create_file(), space = H5Screate_simple(1, &rows, NULL);
	hid_t memory = H5Screate_simple(1, &chunk, NULL), how = H5Pcreate(H5P_DATASET_CREATE), set;
	double *data = malloc(CHUNK_BYTES);

	must(H5Pset_chunk(how, 1, &chunk));
	set = must(H5Dcreate2(file, "data", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, how,
			      H5P_DEFAULT));
	for (; start < rows; start += chunk) {
		for (size_t i = 0; i < CHUNK; i++)
			data[i] = (double)(start + i);
		must(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &chunk, NULL));
		must(H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, data));
	}
	must(H5Dclose(set));
	must(H5Fclose(file));
	make_durable();
	free(data);
}

static void flush_sets(long sets)
{
	hid_t file = create_file(), set, space;
	hsize_t count = SMALL;
	double data[SMALL];
	char name[32];

	space = H5Screate_simple(1, &count, NULL);
	for (long n = 0; n < sets; n++) {
		for (int i = 0; i < SMALL; i++)
			data[i] = (double)(n + i);
		snprintf(name, sizeof(name), "set%ld", n);
		set = must(H5Dcreate2(file, name, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT,
				      H5P_DEFAULT, H5P_DEFAULT));
		must(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
		must(H5Dclose(set));
		must(H5Fflush(file, H5F_SCOPE_GLOBAL));
		make_durable();
	}
	must(H5Fclose(file));
}

static void read_rows(long reads)
{
	hid_t file = must(H5Fopen(path, H5F_ACC_RDONLY, fapl)), set, space, memory;
	hsize_t rows, row = ROW;
	double data[ROW];
	uint64_t chance = 1;

	set = must(H5Dopen2(file, "data", H5P_DEFAULT));
	space = H5Dget_space(set);
	memory = H5Screate_simple(1, &row, NULL);
	H5Sget_simple_extent_dims(space, &rows, NULL);
	for (long n = 0; n < reads; n++) {
		hsize_t start;

		chance = chance * 6364136223846793005u + 1442695040888963407u;
		start = (chance >> 20) % (rows / ROW) * ROW;
		must(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &row, NULL));
		must(H5Dread(set, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, data));
		if (data[0] != (double)start)
			exit(EXIT_FAILURE);
	}
	must(H5Dclose(set));
	must(H5Fclose(file));
	written = now();
}

int main(int argc, char **argv)
{
	const char *task = argc > 3 ? argv[3] : "";
	long n = argc > 4 ? atol(argv[4]) : 0;
	double begin;

	if (argc < 4) {
		fprintf(stderr, "hdf5: usage: hdf5 URI PATH write|flush|read [NUMBER]\n");
		return EXIT_FAILURE;
	}
	path = argv[2];
	fapl = H5Pcreate(H5P_FILE_ACCESS);
	if (strcmp(argv[1], "sec2") != 0)
		must(H5Pset_fapl_ummap(fapl, argv[1], NULL));
	else if (strcmp(task, "read") != 0)
		sec2_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	begin = now();
	if (strcmp(task, "write") == 0)
		write_chunks(n ? n : (n = 1024));
	else if (strcmp(task, "flush") == 0)
		flush_sets(n ? n : (n = 1000));
	else
		read_rows(n ? n : (n = 10000));
	printf("%s,%s,%ld,%.3f,%.3f,%.3f\n", argv[1], task, n, written - begin, now() - begin,
	       processor_time());
	return 0;
}
