/* SPDX-License-Identifier: BSD-3-Clause */
/* randomwalk - reads a block, computes with it (steps of the Collatz sequence), writes it back, and
 * goes to a block that depends on the result. */
#include "filepair.h"

static const char *const names[] = { "open (ms)", "walk (s)", "close (ms)", "all of it (s)", NULL };

static uint64_t compute(uint64_t n, unsigned steps)
{
	uint64_t sum = 0;

	while (steps-- > 0) {
		n = n <= 1 ? sum | 3 : n % 2 ? 3 * n + 1 : n / 2;
		sum += n & 0xff;
	}
	return sum;
}

static void run_walk(const struct filepair *p, bool cached, double *steps)
{
	static uint64_t block[MIB / 8];
	uint64_t begin = job_start(), start = begin, at = (uint64_t)job.rank * 12345 + p->seed,
		 blocks = p->size / p->block;
	MPI_File file = filepair_open(p, cached);

	steps[0] = job_seconds(start) * 1e3;
	start = job_start();
	for (size_t i = 0; i < p->count; i++) {
		MPI_Offset place = (MPI_Offset)(at % blocks * p->block);

		MPI_File_read_at(file, place, block, (int)p->block, MPI_BYTE, MPI_STATUS_IGNORE);
		block[0] = compute(block[0] | 27, p->work);
		MPI_File_write_at(file, place, block, (int)p->block, MPI_BYTE, MPI_STATUS_IGNORE);
		at = at * 6364136223846793005u + (block[0] & 7) + 1442695040888963407u;
	}
	steps[1] = job_seconds(start);
	start = job_start();
	MPI_File_close(&file);
	steps[2] = job_seconds(start) * 1e3;
	steps[3] = job_seconds(begin);
}

int main(int argc, char **argv)
{
	struct filepair p;

	filepair_begin(
		&p, argc, argv,
		"usage: mpirun randomwalk [OPTION ...]\nWalks through a file of MPI-IO's.\n");
	if (p.block > MIB || p.block < 8)
		die("--block: from 8 to 1M");
	filepair_compare(&p, names, run_walk);
	return 0;
}
