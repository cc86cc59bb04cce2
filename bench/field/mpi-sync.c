/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi-sync - windows whose segments alternate in one file, made durable by all ranks together
 * (ummpi_sync_all) and by each rank by itself (MPI_Win_sync). Both ways use the driver mpiio, write
 * the same segments, and take turns in being first. At the end, the file is read and compared.
 */
#include <getopt.h>
#include <limits.h>
#include <ummap-mpi.h>

#include "kit/data.h"
#include "job.h"

#define PAIRS_MAX 101

struct options {
	const char *dir, *label, *csv;
	size_t size, seg;
	unsigned pairs, dirty;
};

static const char help[] =
"usage: mpirun mpi-sync [OPTION ...]\n"
"Makes windows durable whose segments alternate in one file: all ranks together, and each rank\n"
"by itself.\n"
"  --dir DIR        where the file is made (.)\n"
"  --size SIZE      of each rank's window (64M)\n"
"  --seg SIZE       of segments, and of their turns in the file (64K)\n"
"  --dirty PERCENT  of the segments that have changed, spread evenly (100)\n"
"  --pairs N        medians of so many (5)\n"
"  --csv FILE       add a line to FILE\n"
"  --label NAME     what that line calls the storage (the folder's name)\n"
"  --help\n";

static struct options parse_options(int argc, char **argv)
{
	enum { DIR_ = 1, SIZE, SEG, DIRTY, PAIRS, CSV, LABEL, HELP };
	static const struct option options[] = {
		{ "dir", 1, 0, DIR_ }, { "size", 1, 0, SIZE }, { "seg", 1, 0, SEG },
		{ "dirty", 1, 0, DIRTY }, { "pairs", 1, 0, PAIRS }, { "csv", 1, 0, CSV },
		{ "label", 1, 0, LABEL }, { "help", 0, 0, HELP }, { 0 },
	};
	struct options o = { .dir = ".",
			     .size = 64 * MIB,
			     .seg = 64 * KIB,
			     .pairs = 5,
			     .dirty = 100 };
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case DIR_: o.dir = optarg; break;
		case SIZE: o.size = parse_size("size", optarg); break;
		case SEG: o.seg = parse_size("seg", optarg); break;
		case DIRTY: o.dirty = parse_count("dirty", optarg, 100); break;
		case PAIRS: o.pairs = parse_count("pairs", optarg, PAIRS_MAX); break;
		case CSV: o.csv = optarg; break;
		case LABEL: o.label = optarg; break;
		case HELP: fputs(help, stdout); exit(0);
		default: fputs(help, stderr); exit(1);
		}
	}
	if (optind < argc || o.size % o.seg)
		die("%s", optind < argc ? "too many arguments" :
					  "--size: it must be a multiple of --seg");
	if (!o.label)
		o.label = o.dir;
	return o;
}

static char *open_window(const struct options *o, const char *path, MPI_Win *win)
{
	char number[32];
	MPI_Info info;
	char *base;

	snprintf(number, sizeof(number), "%zu", o->seg);
	MPI_Info_create(&info);
	MPI_Info_set(info, "alloc_type", "storage");
	MPI_Info_set(info, "storage_alloc_filename", path);
	MPI_Info_set(info, "storage_alloc_driver", "mpiio");
	MPI_Info_set(info, "storage_alloc_stripe", number);
	MPI_Info_set(info, "storage_alloc_segsize", number);
	if (MPI_Win_allocate((MPI_Aint)o->size, 1, info, MPI_COMM_WORLD, &base, win) != MPI_SUCCESS)
		die("there is no window");
	MPI_Info_free(&info);
	return base;
}

static bool should_change(const struct options *o, size_t segment)
{
	return segment * o->dirty / 100 != (segment + 1) * o->dirty / 100;
}

static void change_segments(const struct options *o, char *base, uint64_t salt)
{
	for (size_t i = 0; i < o->size / o->seg; i++) {
		if (should_change(o, i))
			fill_words(base + i * o->seg, o->seg, i * o->seg, salt);
	}
}

static double time_call(const struct options *o, char *base, MPI_Win win, bool together,
			uint64_t salt)
{
	uint64_t start;
	int code;

	change_segments(o, base, salt);
	start = job_start();
	code = together ? ummpi_sync_all(MPI_COMM_WORLD, base) : MPI_Win_sync(win);
	if (code != MPI_SUCCESS)
		die("a sync failed");
	return job_seconds(start);
}

/* Checks that the file has the last changes. */
static void verify_file(const struct options *o, const char *path, uint64_t salt)
{
	char *want = malloc(o->seg), *got = malloc(o->seg);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || !want || !got)
		die("%s cannot be read again: %s", path, strerror(errno));
	for (size_t i = 0; i < o->size / o->seg; i++) {
		off_t at = (off_t)((i * (size_t)job.ranks + (size_t)job.rank) * o->seg);

		if (!should_change(o, i))
			continue;
		fill_words(want, o->seg, i * o->seg, salt);
		if (pread(fd, got, o->seg, at) != (ssize_t)o->seg || memcmp(want, got, o->seg) != 0)
			die("%s: wrong data at %lld", path, (long long)at);
	}
	free(want);
	free(got);
	close(fd);
}

static const char *mpi_name(void)
{
	static char name[MPI_MAX_LIBRARY_VERSION_STRING];
	const char *io = getenv("OMPI_MCA_io");
	int len;

	MPI_Get_library_version(name, &len);
	if (strncmp(name, "MPICH", 5) == 0)
		return "MPICH";
	return io && strstr(io, "romio") ? "OpenMPI (ROMIO)" : "OpenMPI (OMPIO)";
}

static void report_figure(const struct options *o, double together, double alone)
{
	double mib = (double)o->size * o->dirty / 100 * job.ranks / (double)MIB;
	FILE *f;

	printf("%s, %s, %d ranks, %zu KiB segments, %.0f MiB: together %.4f s (%.0f MiB/s), each "
	       "for itself %.4f s (%.0f MiB/s): "
	       "%.2f times as fast\nthe file is right\n",
	       o->label, mpi_name(), job.ranks, o->seg / KIB, mib, together, mib / together, alone,
	       mib / alone, alone / together);
	if (!o->csv)
		return;
	f = fopen(o->csv, "ae");
	if (!f)
		die("%s: %s", o->csv, strerror(errno));
	fprintf(f, "%s,%s,%d,%zu,%u,%.0f,%u,%.4f,%.4f,%.2f\n", o->label, mpi_name(), job.ranks,
		o->seg, o->dirty, mib, o->pairs, together, alone, alone / together);
	fclose(f);
}

int main(int argc, char **argv)
{
	struct options o = parse_options(argc, argv);
	double together[PAIRS_MAX], alone[PAIRS_MAX];
	char path[PATH_MAX];
	uint64_t salt = 1;
	MPI_Win win;
	char *base;
	int level;

	MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &job.ranks);
	snprintf(path, sizeof(path), "%s/mpi-sync.data", o.dir);
	base = open_window(&o, path, &win);
	/* Once each way for nothing: the file has its blocks then. */
	time_call(&o, base, win, false, salt++);
	time_call(&o, base, win, true, salt++);
	for (unsigned i = 0; i < o.pairs; i++) {
		for (unsigned k = 0; k < 2; k++) {
			bool first = (i + k) % 2;

			*(first ? &together[i] : &alone[i]) =
				time_call(&o, base, win, first, salt++);
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);
	verify_file(&o, path, salt - 1);
	MPI_Win_free(&win);
	if (!job.rank) {
		unlink(path);
		report_figure(&o, median(together, o.pairs), median(alone, o.pairs));
	}
	MPI_Finalize();
	return 0;
}
