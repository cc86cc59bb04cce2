/* SPDX-License-Identifier: BSD-3-Clause */
/* mapsearch - looks for pixels in a two-dimensional map, of which each rank has rows. From each
 * pixel that it finds, it follows a line down the map, and looks at the pixels around it. */
#include "filepair.h"

#define FOUND 7                          /* values of bytes below are what is looked for: few */
#define RADIUS 64

static const char *const names[] = { "open (ms)", "search (s)", "close (ms)", "all of it (s)",
				     NULL };

static unsigned char pixel_at(MPI_File file, MPI_Offset at)
{
	unsigned char value = 0;

	MPI_File_read_at(file, at, &value, 1, MPI_BYTE, MPI_STATUS_IGNORE);
	return value;
}

/* Down the map, each time a pixel of the next row; what counts is found once in a while. */
static uint64_t follow(const struct filepair *p, MPI_File file, MPI_Offset at, MPI_Offset width)
{
	uint64_t found = 0;

	for (int i = 0; i < RADIUS && at + width + 1 < (MPI_Offset)p->size; i++) {
		at += width + i % 2;
		found += pixel_at(file, at) < 128;
	}
	return found;
}

static void run_search(const struct filepair *p, bool cached, double *steps)
{
	uint64_t begin = job_start(), start = begin, found = 0;
	MPI_File file = filepair_open(p, cached);
	MPI_Offset width = 1;
	static unsigned char block[MIB];

	while (width * width < (MPI_Offset)p->size)
		width *= 2;
	steps[0] = job_seconds(start) * 1e3;
	start = job_start();
	for (MPI_Offset at = job.rank * (MPI_Offset)p->block;
	     at + (MPI_Offset)p->block <= (MPI_Offset)p->size;
	     at += job.ranks * (MPI_Offset)p->block) {
		MPI_File_read_at(file, at, block, (int)p->block, MPI_BYTE, MPI_STATUS_IGNORE);
		for (size_t i = 0; i < p->block; i++) {
			if (block[i] == FOUND && (at + (MPI_Offset)i) % 16 == 1)
				found += follow(p, file, at + (MPI_Offset)i, width);
		}
	}
	found = job_total(found);
	steps[1] = job_seconds(start);
	start = job_start();
	MPI_File_close(&file);
	steps[2] = job_seconds(start) * 1e3;
	steps[3] = job_seconds(begin);
	if (found == 0)
		die("nothing was found");
}

int main(int argc, char **argv)
{
	struct filepair p;

	filepair_begin(
		&p, argc, argv,
		"usage: mpirun mapsearch [OPTION ...]\nSearches a map in a file of MPI-IO's.\n");
	if (p.block > MIB)
		die("--block: at most 1M");
	filepair_compare(&p, names, run_search);
	return 0;
}
