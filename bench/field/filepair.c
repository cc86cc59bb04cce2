/* SPDX-License-Identifier: BSD-3-Clause */
/* The file is made anew before each run. Opening and deleting it removes its cache. */
#include "filepair.h"

#include <getopt.h>
#include <unistd.h>

static const char help[] =
"  --file FILE      on the storage that is far; it is overwritten (filepair.data)\n"
"  --cache FOLDER   for the caches (.)\n"
"  --size SIZE      of the file (16M)\n"
"  --block SIZE     of one read or write (64)\n"
"  --count N        calls of each rank (2000)\n"
"  --work N         steps of Collatz's between two calls (1000000)\n"
"  --runs N         of each kind, of which the medians count (5)\n"
"  --help\n";

void filepair_begin(struct filepair *p, int argc, char **argv, const char *what)
{
	enum { FILE_ = 1, CACHE, SIZE, BLOCK, COUNT_, WORK, RUNS, HELP };
	static const struct option options[] = {
		{ "file", 1, 0, FILE_ }, { "cache", 1, 0, CACHE }, { "size", 1, 0, SIZE },
		{ "block", 1, 0, BLOCK }, { "count", 1, 0, COUNT_ }, { "work", 1, 0, WORK },
		{ "runs", 1, 0, RUNS }, { "help", 0, 0, HELP }, { 0 },
	};
	struct alloc none = { 0 };
	int c;

	*p = (struct filepair){ "filepair.data", ".", 16 * MIB, 64, 5, 2000, 1000000, 0 };
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case FILE_: p->file = optarg; break;
		case CACHE: p->cache = optarg; break;
		case SIZE: p->size = parse_size("size", optarg); break;
		case BLOCK: p->block = parse_size("block", optarg); break;
		case COUNT_: p->count = parse_count("count", optarg, 1000000000); break;
		case WORK: p->work = parse_count("work", optarg, 1000000000); break;
		case RUNS: p->runs = parse_count("runs", optarg, FILEPAIR_RUNS); break;
		case HELP: printf("%s%s", what, help); exit(0);
		default: fprintf(stderr, "%s%s", what, help); exit(1);
		}
	}
	job_begin(&none);
	if (p->block == 0 || p->size / p->block < (size_t)job.ranks)
		die("--size: each rank has to have a block");
}

MPI_File filepair_open(const struct filepair *p, bool cached)
{
	MPI_Info info;
	MPI_File file;

	MPI_Info_create(&info);
	if (cached)
		MPI_Info_set(info, "pmem_path", p->cache);
	job_check(MPI_File_open(MPI_COMM_WORLD, p->file, MPI_MODE_RDWR, info, &file), p->file);
	MPI_Info_free(&info);
	return file;
}

/* With bytes all over, and nothing of it in a cache. */
static void renew_file(const struct filepair *p)
{
	static char block[MIB];
	MPI_File file;
	MPI_Info info;

	MPI_Info_create(&info);
	MPI_Info_set(info, "pmem_path", p->cache);
	job_check(MPI_File_open(MPI_COMM_WORLD, p->file,
				MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE, info,
				&file),
		  p->file);
	MPI_Info_free(&info);
	job_check(MPI_File_close(&file), p->file);
	job_check(MPI_File_open(MPI_COMM_WORLD, p->file, MPI_MODE_RDWR | MPI_MODE_CREATE,
				MPI_INFO_NULL, &file),
		  p->file);
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (char)(i * 31 + i / 256);
	for (size_t at = (size_t)job.rank * MIB; at < p->size; at += (size_t)job.ranks * MIB) {
		size_t len = p->size - at < MIB ? p->size - at : MIB;

		job_check(MPI_File_write_at(file, (MPI_Offset)at, block, (int)len, MPI_BYTE,
					    MPI_STATUS_IGNORE),
			  p->file);
	}
	job_check(MPI_File_sync(file), p->file);
	job_check(MPI_File_close(&file), p->file);
	MPI_Barrier(MPI_COMM_WORLD);
}

void filepair_compare(const struct filepair *p, const char *const *names,
		      void (*run)(const struct filepair *p, bool cached, double *steps))
{
	static double found[2][FILEPAIR_STEPS][FILEPAIR_RUNS];

	for (unsigned i = 0; i < p->runs; i++) {
		for (unsigned turn = 0; turn < 2; turn++) {
			struct filepair q = *p;
			bool cached = (i + turn) % 2;
			double steps[FILEPAIR_STEPS] = { 0 };

			q.seed = i;
			renew_file(p);
			run(&q, cached, steps);
			for (int s = 0; names[s]; s++)
				found[cached][s][i] = steps[s];
		}
	}
	for (int s = 0; names[s] && job.rank == 0; s++) {
		double far = median(found[0][s], p->runs), near = median(found[1][s], p->runs);

		printf("%-26s MPI-IO %12.3f  cache %12.3f  %8.2f times\n", names[s], far, near,
		       far / near);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (job.rank == 0)
		unlink(p->file);
	job_end();
}
