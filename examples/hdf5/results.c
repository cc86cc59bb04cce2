/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * results.c - a computation that appends its results to an HDF5 file, and continues after a crash.
 *
 *	results FILE STEPS
 *
 * Each flush is one commit of the filter wal+. Whenever the program is killed, the file has the
 * results up to the last flush, and the next run computes the rest.
 */
#include <stdio.h>
#include <stdlib.h>
#include <ummap-hdf5.h>

#define STEPS_PER_FLUSH 1000

static void stop(const char *what)
{
	fprintf(stderr, "results: cannot %s\n", what);
	exit(EXIT_FAILURE);
}

/* Opens the dataset of a file, or creates both. */
static hid_t open_results(const char *path, hid_t *file)
{
	hsize_t none = 0, most = H5S_UNLIMITED, chunk = 4096;
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), dcpl = H5Pcreate(H5P_DATASET_CREATE), space, set;

	if (H5Pset_fapl_ummap(fapl, "wal+posix:", NULL) < 0)
		stop("use the driver");
	H5E_BEGIN_TRY {
		*file = H5Fopen(path, H5F_ACC_RDWR, fapl);
	} H5E_END_TRY;
	if (*file < 0)
		*file = H5Fcreate(path, H5F_ACC_EXCL, H5P_DEFAULT, fapl);
	if (*file < 0)
		stop("open the file");
	if (H5Lexists(*file, "results", H5P_DEFAULT) > 0) {
		set = H5Dopen2(*file, "results", H5P_DEFAULT);
	} else {
		H5Pset_chunk(dcpl, 1, &chunk);
		space = H5Screate_simple(1, &none, &most);
		set = H5Dcreate2(*file, "results", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, dcpl,
				 H5P_DEFAULT);
		H5Sclose(space);
	}
	if (set < 0)
		stop("open the dataset");
	H5Pclose(dcpl);
	H5Pclose(fapl);
	return set;
}

static hsize_t count_results(hid_t set)
{
	hid_t space = H5Dget_space(set);
	hsize_t rows = 0;

	H5Sget_simple_extent_dims(space, &rows, NULL);
	H5Sclose(space);
	return rows;
}

static void append(hid_t set, hsize_t at, double result)
{
	hsize_t rows = at + 1, one = 1;
	hid_t memory = H5Screate_simple(1, &one, NULL), space;

	if (H5Dset_extent(set, &rows) < 0)
		stop("extend the dataset");
	space = H5Dget_space(set);
	H5Sselect_hyperslab(space, H5S_SELECT_SET, &at, NULL, &one, NULL);
	if (H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, &result) < 0)
		stop("write a result");
	H5Sclose(space);
	H5Sclose(memory);
}

int main(int argc, char **argv)
{
	hsize_t steps = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000, at;
	hid_t file, set;

	if (argc < 2)
		stop("start: the file is missing. Usage: results FILE [STEPS]");
	set = open_results(argv[1], &file);
	at = count_results(set);
	printf("%llu results are in the file\n", (unsigned long long)at);
	fflush(stdout);
	for (; at < steps; at++) {
		append(set, at, (double)at * (double)at);
		if (at % STEPS_PER_FLUSH == STEPS_PER_FLUSH - 1 &&
		    H5Fflush(file, H5F_SCOPE_GLOBAL) < 0)
			stop("flush the file");
	}
	H5Dclose(set);
	if (H5Fclose(file) < 0)
		stop("close the file");
	return 0;
}
