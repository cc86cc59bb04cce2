/* SPDX-License-Identifier: BSD-3-Clause */
/* Parallel HDF5 with one shared file: a dataset of all outputs in the chunks of the ranks, whose
 * space is allocated at the beginning. Chunks are written whole, so no fill values are needed. */
#include <hdf5.h>

#include "kit/common.h"
#include "job.h"
#include "outputs.h"

static hid_t file = -1, dataset = -1, transfer = -1;

static hid_t checked(hid_t result, const char *call)
{
	if (result < 0)
		die("%s failed", call);
	return result;
}

static void begin(const struct outputs *o, H5FD_mpio_xfer_t how)
{
	hsize_t dims[] = { o->count, (uint64_t)job.ranks * o->side, o->side },
		chunk[] = { 1, o->side, o->side };
	hid_t access = checked(H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate"),
	      create = checked(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate");
	hid_t space = checked(H5Screate_simple(3, dims, NULL), "H5Screate_simple");

	checked(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL), "H5Pset_fapl_mpio");
	checked(H5Pset_alignment(access, 4096, 4096), "H5Pset_alignment");
	checked(H5Pset_coll_metadata_write(access, true), "H5Pset_coll_metadata_write");
	checked(H5Pset_chunk(create, 3, chunk), "H5Pset_chunk");
	checked(H5Pset_fill_time(create, H5D_FILL_TIME_NEVER), "H5Pset_fill_time");
	file = checked(H5Fcreate(o->path, H5F_ACC_TRUNC, H5P_DEFAULT, access), "H5Fcreate");
	dataset = checked(H5Dcreate2(file, "outputs", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, create,
				     H5P_DEFAULT),
			  "H5Dcreate2");
	transfer = checked(H5Pcreate(H5P_DATASET_XFER), "H5Pcreate");
	checked(H5Pset_dxpl_mpio(transfer, how), "H5Pset_dxpl_mpio");
	H5Sclose(space);
	H5Pclose(create);
	H5Pclose(access);
}

static void begin_independent(const struct outputs *o)
{
	begin(o, H5FD_MPIO_INDEPENDENT);
}

static void begin_collective(const struct outputs *o)
{
	begin(o, H5FD_MPIO_COLLECTIVE);
}

/* The place of a rank's chunk in the file, and one like it in memory. */
static hid_t select_chunk(const struct outputs *o, unsigned output, int of, hid_t *memory)
{
	hsize_t start[] = { output, (uint64_t)of * o->side, 0 }, count[] = { 1, o->side, o->side };
	hid_t space = checked(H5Dget_space(dataset), "H5Dget_space");

	checked(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL),
		"H5Sselect_hyperslab");
	*memory = checked(H5Screate_simple(3, count, NULL), "H5Screate_simple");
	return space;
}

static void write_chunk(const struct outputs *o, unsigned output, const double *chunk)
{
	hid_t memory, space = select_chunk(o, output, job.rank, &memory);

	checked(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, memory, space, transfer, chunk), "H5Dwrite");
	checked(H5Fflush(file, H5F_SCOPE_GLOBAL), "H5Fflush");
	H5Sclose(memory);
	H5Sclose(space);
}

static void read_chunk(const struct outputs *o, unsigned output, int of, double *chunk)
{
	hid_t memory, space = select_chunk(o, output, of, &memory);

	checked(H5Dread(dataset, H5T_NATIVE_DOUBLE, memory, space, transfer, chunk), "H5Dread");
	H5Sclose(memory);
	H5Sclose(space);
}

static void end(void)
{
	H5Pclose(transfer);
	checked(H5Dclose(dataset), "H5Dclose");
	checked(H5Fclose(file), "H5Fclose");
}

static const struct output_method independent = { "hdf5", begin_independent, write_chunk,
						  read_chunk, end, NULL };
static const struct output_method collective = { "hdf5-collective", begin_collective, write_chunk,
						 read_chunk, end, NULL };

const struct output_method *const outputs_hdf5[] = { &independent, &collective, NULL };
