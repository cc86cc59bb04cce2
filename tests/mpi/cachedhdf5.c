/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cachedhdf5 - parallel HDF5 through the MPI-IO cache. cachedhdf5.sh runs it, with the variable
 * UMMAP_IOCACHE_PATH, by which the cache takes the calls of HDF5's driver mpio:
 *
 *	cachedhdf5 FOLDER VERSIONS
 *		creates or opens the file, checks it, and adds versions; each version is a dataset
 *		that all ranks write, followed by H5Fflush. The ranks then write another dataset
 *		without a flush, and kill themselves
 *	cachedhdf5 FOLDER check
 *		checks that the file has all versions that were flushed, and closes it
 *
 * The folder's file `acknowledged` has the number of the last version that was flushed.
 */
#include "common.h"

#include <hdf5.h>
#include <stdlib.h>

#define ROWS 3000 /* elements of a rank */

static hid_t transfer;

static hid_t open_file(bool is_new)
{
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), file;
	char path[400];

	snprintf(path, sizeof(path), "%s/run.h5", folder);
	check(H5Pset_fapl_mpio(fapl, MPI_COMM_WORLD, MPI_INFO_NULL) >= 0);
	if (is_new)
		file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
	else
		file = H5Fopen(path, H5F_ACC_RDWR, fapl);
	check(file >= 0, "%s", path);
	H5Pclose(fapl);
	return file;
}

/* Selects the elements of this rank: every rank writes a share of each version. */
static hid_t select_share(hid_t set, unsigned first, unsigned end, hid_t *memory)
{
	hid_t space = H5Dget_space(set);
	hsize_t start = first, count = end - first;

	*memory = H5Screate_simple(1, &count, NULL);
	check(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL) >= 0);
	return space;
}

static int value_of(unsigned version, unsigned row)
{
	return (int)(mix((uint64_t)version << 32 | row) >> 34);
}

/* Writes a dataset, which the next flush makes durable. */
static void add_version(hid_t file, unsigned version)
{
	hsize_t rows = ROWS, chunk = 512;
	unsigned first = ROWS * (unsigned)rank / (unsigned)ranks;
	unsigned end = ROWS * (unsigned)(rank + 1) / (unsigned)ranks;
	hid_t all = H5Screate_simple(1, &rows, NULL), how = H5Pcreate(H5P_DATASET_CREATE);
	hid_t set, space, memory;
	static int data[ROWS];
	char name[32];

	snprintf(name, sizeof(name), "v%u", version);
	/* Contiguous and chunked datasets take turns. */
	if (version % 2)
		check(H5Pset_chunk(how, 1, &chunk) >= 0);
	set = H5Dcreate2(file, name, H5T_NATIVE_INT, all, H5P_DEFAULT, how, H5P_DEFAULT);
	check(set >= 0);
	space = select_share(set, first, end, &memory);
	for (unsigned i = first; i < end; i++)
		data[i - first] = value_of(version, i);
	check(H5Dwrite(set, H5T_NATIVE_INT, memory, space, transfer, data) >= 0);
	H5Sclose(memory);
	H5Sclose(space);
	H5Pclose(how);
	H5Sclose(all);
	check(H5Dclose(set) >= 0);
}

static void check_version(hid_t file, unsigned version)
{
	static int data[ROWS];
	char name[32];
	hid_t set;

	snprintf(name, sizeof(name), "v%u", version);
	set = H5Dopen2(file, name, H5P_DEFAULT);
	check(set >= 0, "%s is missing", name);
	check(H5Dread(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, transfer, data) >= 0);
	for (unsigned i = 0; i < ROWS; i++)
		check(data[i] == value_of(version, i), "%s: element %u is %d", name, i, data[i]);
	check(H5Dclose(set) >= 0);
}

int main(int argc, char **argv)
{
	unsigned flushed = 0, more = 0, last;
	hid_t file;
	int fd;

	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	check(argc == 3);
	snprintf(folder, sizeof(folder), "%s", argv[1]);
	fd = open_in_folder("acknowledged");
	if (read(fd, &flushed, sizeof(flushed)) != sizeof(flushed))
		flushed = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	transfer = H5Pcreate(H5P_DATASET_XFER);
	check(H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE) >= 0);
	file = open_file(flushed == 0);
	for (unsigned version = 1; version <= flushed; version++)
		check_version(file, version);
	more = strcmp(argv[2], "check") == 0 ? 0 : (unsigned)atoi(argv[2]);
	last = flushed + more;
	for (unsigned version = flushed + 1; version <= last; version++) {
		add_version(file, version);
		check(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0)
			check(pwrite(fd, &version, sizeof(version), 0) == sizeof(version));
	}
	if (more) {
		add_version(file, last + 1);
		MPI_Barrier(MPI_COMM_WORLD);
		kill(getpid(), SIGKILL);
	}
	H5Pclose(transfer);
	check(H5Fclose(file) >= 0);
	if (rank == 0)
		printf("%u versions\n", flushed);
	MPI_Finalize();
	return flushed == 0;
}
