/* SPDX-License-Identifier: BSD-3-Clause */
/* rompio - small reads and writes of a file: in order, with a chunk for each rank, and at random in
 * the whole file. Opening and closing are timed separately. */
#include "filepair.h"

static const char *const names[] = {
	"open (ms)",
	"write in order (us)",
	"read in order (us)",
	"first write at random (us)",
	"write at random (us)",
	"read at random (us)",
	"close (ms)",
	NULL,
};

static uint64_t state;

static MPI_Offset place(const struct filepair *p, size_t i, bool random)
{
	size_t blocks = p->size / p->block, each = blocks / (size_t)job.ranks;

	if (!random)
		return (MPI_Offset)(((size_t)job.rank * each + i % each) * p->block);
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (MPI_Offset)((state >> 20) % blocks * p->block);
}

/* Microseconds of one. */
static double time_calls(const struct filepair *p, MPI_File file, bool writing, bool random)
{
	static char block[MIB];
	uint64_t start;

	state = (uint64_t)job.rank + 1 + p->seed * 1000u;
	start = job_start();
	for (size_t i = 0; i < p->count; i++) {
		MPI_Offset at = place(p, i, random);

		if (writing)
			MPI_File_write_at(file, at, block, (int)p->block, MPI_BYTE,
					  MPI_STATUS_IGNORE);
		else
			MPI_File_read_at(file, at, block, (int)p->block, MPI_BYTE,
					 MPI_STATUS_IGNORE);
	}
	return job_seconds(start) / p->count * 1e6;
}

static void run_calls(const struct filepair *p, bool cached, double *steps)
{
	uint64_t start = job_start();
	MPI_File file = filepair_open(p, cached);

	steps[0] = job_seconds(start) * 1e3;
	steps[1] = time_calls(p, file, true, false);
	steps[2] = time_calls(p, file, false, false);
	/* Once before it counts: what is touched is near. */
	time_calls(p, file, false, true);
	steps[3] = time_calls(p, file, true, true);
	steps[4] = time_calls(p, file, true, true);
	steps[5] = time_calls(p, file, false, true);
	start = job_start();
	MPI_File_close(&file);
	steps[6] = job_seconds(start) * 1e3;
}

int main(int argc, char **argv)
{
	struct filepair p;

	filepair_begin(&p, argc, argv,
		       "usage: mpirun rompio [OPTION ...]\nReads and writes a file of MPI-IO's in "
		       "blocks.\n");
	if (p.block > MIB)
		die("--block: at most 1M");
	filepair_compare(&p, names, run_calls);
	return 0;
}
