/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-wordcount - counts the words of files and folders on all ranks of an MPI job:
 *
 *	mpirun -n 4 ummap-wordcount DIR -o counts.txt
 *
 * A word is a run of the letters A to Z, in lower case. See ummap-wordcount(1), and ummap-mapreduce(7) for how it works.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <ummap-mapreduce.h>

static const char usage[] =
"usage: %s [options] FILE|FOLDER ...\n"
"\n"
"Counts the words of files, and of all files in folders, on all ranks of an MPI job\n"
"(mpirun -n RANKS ummap-wordcount ...). A word is a run of the letters A to Z, in\n"
"lower case. Each line of the result has a count and a word, in order of words.\n"
"\n"
"  -o, --output FILE     where the result goes (default: standard output)\n"
"  -s, --storage FOLDER  keep the windows of the job in files there, and go on with\n"
"                        those of one that was interrupted\n"
"      --sync TASKS      with --storage: make them durable after so many tasks (default:\n"
"                        as often as that takes a 25th of the time)\n"
"  -t, --task SIZE       bytes of one task; K, M and G are known (default: a 16th\n"
"                        of a rank's part of the input, from 1M to 64M)\n"
"  -q, --quiet           show no progress\n"
"  -h, --help            show this\n"
"  -V, --version         show the version\n"
"\n"
"Exit status: 0, 1 if something failed, 2 if the options are wrong.\n";

struct options {
	const char *const *inputs;
	const char *output, *storage;
	size_t task;
	uint32_t sync;
	bool quiet;
};

/* ---- The job ---- */

static char fold[256]; /* letters in lower case, 0 for everything else */

static void fold_init(void)
{
	for (int c = 'a'; c <= 'z'; c++)
		fold[c] = fold[c - 'a' + 'A'] = (char)c;
}

/* A record begins behind whatever is no letter: no word is cut in two. */
static size_t find_word(const char *data, size_t size, void *arg)
{
	(void)arg;
	for (size_t i = 0; i < size; i++)
		if (!fold[(unsigned char)data[i]])
			return i + 1;
	return 0;
}

static int map(ummr_job *job, const struct ummr_task *task, void *arg)
{
	char *p = task->data, *end = p + task->size;
	uint64_t one = 1;

	(void)arg;
	while (p < end) {
		char *word = p, c;

		for (; p < end && (c = fold[(unsigned char)*p]); p++)
			*p = c;
		if (p == word)
			p++;
		else if (ummr_emit(job, word, (size_t)(p - word), &one, sizeof(one)) < 0)
			return -1;
	}
	return 0;
}

static int reduce(const struct ummr_bytes *key, struct ummr_value *value, const struct ummr_bytes *other, void *arg)
{
	(void)key, (void)arg;
	*(uint64_t *)value->data += *(const uint64_t *)other->data;
	return 0;
}

static int print(FILE *out, const struct ummr_bytes *word, const struct ummr_bytes *count, void *arg)
{
	(void)arg;
	return fprintf(out, "%7" PRIu64 " %.*s\n", *(const uint64_t *)count->data, (int)word->size,
		       (const char *)word->data) < 0;
}

/* ---- Progress, of rank 0 ---- */

static void show_progress(const struct ummr_progress *p, void *arg)
{
	static const char *const phases[] = { "map", "reduce", "combine", "done" };
	static double shown;
	static int phase = -1;
	struct timespec t;
	bool terminal = isatty(STDERR_FILENO);

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &t);
	double now = (double)t.tv_sec + (double)t.tv_nsec / 1e9;
	if (p->phase == phase && p->done < p->all && now - shown < (terminal ? 0.1 : 5))
		return;
	shown = now;
	phase = p->phase;
	fprintf(stderr, "%s%-7s  %" PRIu64 " of %" PRIu64 "%s", terminal ? "\r" : "", phases[p->phase], p->done, p->all,
		terminal && p->phase != UMMR_PHASE_DONE ? "      " : "\n");
}

/* ---- Options ---- */

static size_t parse_size(const char *text, bool *good)
{
	static const char units[] = "KMG";
	char *end;
	unsigned long long n;
	unsigned shift = 0;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*end && strchr(units, *end))
		shift = 10 * (unsigned)(strchr(units, *end++) - units + 1);
	*good = isdigit((unsigned char)*text) && !errno && !*end && n > 0 && n <= (SIZE_MAX >> 1) >> shift;
	return (size_t)n << shift;
}

/* -1: go on; else the exit status. Only one rank speaks. */
static int parse(struct options *o, int argc, char **argv, bool speaks)
{
	static const struct option known[] = {
		{ "output", required_argument, NULL, 'o' }, { "storage", required_argument, NULL, 's' },
		{ "sync", required_argument, NULL, 'S' },   { "task", required_argument, NULL, 't' },
		{ "quiet", no_argument, NULL, 'q' },        { "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },      { NULL, 0, NULL, 0 },
	};
	bool good = true;
	int c;

	opterr = speaks;
	while (good && (c = getopt_long(argc, argv, "o:s:t:qhV", known, NULL)) >= 0) {
		switch (c) {
		case 'o': o->output = optarg; break;
		case 's': o->storage = optarg; break;
		case 'S':
			o->sync = (uint32_t)parse_size(optarg, &good);
			good = good && parse_size(optarg, &good) < UINT32_MAX;
			break;
		case 't': o->task = parse_size(optarg, &good); break;
		case 'q': o->quiet = true; break;
		case 'h':
			if (speaks)
				printf(usage, basename(argv[0]));
			return 0;
		case 'V':
			if (speaks)
				printf("%s (libummap) %s\n", basename(argv[0]), UMMAP_VERSION);
			return 0;
		default:
			good = false;
		}
		if (!good && c != '?' && speaks)
			fprintf(stderr, "ummap-wordcount: \"%s\" is no size\n", optarg);
	}
	o->inputs = (const char *const *)&argv[optind];
	if (good && argv[optind])
		return -1;
	if (speaks)
		fprintf(stderr, usage, basename(argv[0]));
	return 2;
}

/* ---- The program ---- */

static int complain(bool speaks)
{
	if (speaks)
		fprintf(stderr, "ummap-wordcount: %s\n", ummr_error());
	return 1;
}

/* What rank 0 has: all of the result. */
static int print_all(ummr_job *job)
{
	struct ummr_bytes word, count;
	int there = 0;

	while ((there = ummr_next(job, &word, &count)) > 0)
		if (print(stdout, &word, &count, NULL))
			break;
	if (there == 0 && fflush(stdout) == 0)
		return 0;
	fprintf(stderr, "ummap-wordcount: %s\n", there < 0 ? ummr_error() : strerror(errno));
	return 1;
}

static int count(const struct options *o, int rank)
{
	struct ummr_config config = UMMR_CONFIG_INIT;
	ummr_job *job;
	int status = 0;

	config.inputs = o->inputs;
	config.split = UMMR_SPLIT_OWN;
	config.find_record = find_word;
	config.map = map;
	config.reduce = reduce;
	config.task_size = o->task;
	config.storage = o->storage;
	config.sync_tasks = o->sync;
	config.progress = rank == 0 && !o->quiet ? show_progress : NULL;
	if (ummr_create(MPI_COMM_WORLD, &config, &job) < 0)
		return complain(rank == 0);
	if (ummr_run(job) < 0 || (o->output && ummr_write(job, o->output, print) < 0))
		status = complain(rank == 0);
	else if (!o->output && rank == 0)
		status = print_all(job);
	ummr_end(job);
	return status;
}

int main(int argc, char **argv)
{
	struct options o = { 0 };
	int rank, status;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	fold_init();
	status = parse(&o, argc, argv, rank == 0);
	if (status < 0)
		status = count(&o, rank);
	MPI_Finalize();
	return status;
}
