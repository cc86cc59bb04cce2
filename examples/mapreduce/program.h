/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * program.h - what the programs of this folder share: options, progress, errors, and where the result goes. What is left to a
 * program is its job: how records are found, and what is made of them.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* program_invocation_short_name */
#endif
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <ummap.h>
#include <ummap-mapreduce.h>

struct options {
	const char *const *inputs; /* NULL behind the last */
	const char *output, *storage, *timeline;
	const char *limit;         /* value for UMMAP_MEM_LIMIT */
	size_t task, table;
	uint32_t sync;
	int method, input;
	bool quiet;
};

struct program {
	const char *usage;   /* behind the name, all of it but the options that are here */
	const char *letters; /* of options of its own, as getopt(3) has them */
	/* One of these; false: this is no value for it. */
	bool (*set)(int letter, const char *value);
	/* Before the job is made, at all ranks: NULL, or what is wrong. */
	const char *(*prepare)(const struct options *o, struct ummr_config *config);
	/* Instead of one ummr_run. */
	int (*run)(ummr_job *job);
	/* As ummr_write has it. */
	int (*print)(FILE *out, const struct ummr_bytes *key, const struct ummr_bytes *value, void *arg);
};

static const char options_usage[] =
"  -o, --output FILE     where the result goes (default: standard output)\n"
"  -s, --storage FOLDER  keep the windows of the job in files there, and go on with\n"
"                        those of one that was interrupted\n"
"      --sync TASKS      with --storage: make them durable after so many tasks\n"
"                        (default: as often as takes a 25th of the time, or after\n"
"                        each round of --method 2s)\n"
"      --limit SIZE      with --storage or --input ummap: memory for windows and\n"
"                        mapped input, of all ranks of a machine together\n"
"      --table SIZE      bytes of pairs that a rank keeps before they go to its\n"
"                        windows (256M)\n"
"  -t, --task SIZE       bytes of one task; K, M and G are known (default: a 16th\n"
"                        of a rank's part of the input, from 1M to 64M)\n"
"      --input HOW       read files by posix (the default), mpiio, ahead (MPI-IO\n"
"                        while the task before is mapped), or ummap\n"
"      --method 1s|2s    one-sided (the default), or two-sided and collective\n"
"      --timeline FILE   what each rank did when, as CSV\n"
"  -q, --quiet           show no progress\n"
"  -h, --help            show this\n"
"  -V, --version         show the version\n"
"\n"
"Exit status: 0, 1 if something failed, 2 if the options are wrong.\n";

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

/* ---- Options: they are read before MPI begins, and one rank says then what is wrong with them ---- */

static char complaint[400];

static bool parse_size(const char *text, size_t *size)
{
	static const char units[] = "KMG";
	char *end;
	unsigned long long n;
	unsigned shift = 0;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (*end && strchr(units, *end))
		shift = 10 * (unsigned)(strchr(units, *end++) - units + 1);
	*size = (size_t)n << shift;
	return isdigit((unsigned char)*text) && !errno && !*end && n > 0 && n <= (SIZE_MAX >> 1) >> shift;
}

/* Which of these words, of which the last one is NULL. */
static bool parse_word(const char *text, const char *const *words, int *which)
{
	for (*which = 0; words[*which]; ++*which)
		if (strcmp(text, words[*which]) == 0)
			return true;
	return false;
}

/* false: optarg is no value for it. */
static bool take_option(struct options *o, const struct program *p, int letter)
{
	static const char *const methods[] = { "1s", "2s", NULL }, *const inputs[] = { "posix", "mpiio", "ahead", "ummap", NULL };
	size_t size;

	switch (letter) {
	case 'o': o->output = optarg; return true;
	case 's': o->storage = optarg; return true;
	case 'S':
		if (!parse_size(optarg, &size) || size >= UMMR_SYNC_NEVER)
			return false;
		o->sync = (uint32_t)size;
		return true;
	case 'M': o->limit = optarg; return parse_size(optarg, &size);
	case 'T': return parse_size(optarg, &o->table);
	case 't': return parse_size(optarg, &o->task);
	case 'I': return parse_word(optarg, inputs, &o->input);
	case 'W': return parse_word(optarg, methods, &o->method);
	case 'L': o->timeline = optarg; return true;
	case 'q': o->quiet = true; return true;
	default: return p->set(letter, optarg);
	}
}

enum { GO_ON = -1 };

/* Or the exit status. 'h' and 'V' in *show: that is asked for. */
static int parse(struct options *o, const struct program *p, int argc, char **argv, int *show)
{
	static const struct option known[] = {
		{ "output", required_argument, NULL, 'o' }, { "storage", required_argument, NULL, 's' },
		{ "sync", required_argument, NULL, 'S' },   { "limit", required_argument, NULL, 'M' },
		{ "table", required_argument, NULL, 'T' },  { "task", required_argument, NULL, 't' },
		{ "input", required_argument, NULL, 'I' },  { "method", required_argument, NULL, 'W' },
		{ "timeline", required_argument, NULL, 'L' }, { "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },         { "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	char letters[64];
	int c;

	snprintf(letters, sizeof(letters), "o:s:t:qhV%s", p->letters ? p->letters : "");
	opterr = 0;
	while ((c = getopt_long(argc, argv, letters, known, NULL)) >= 0) {
		const char *last = argv[optind - 1];

		if (c == 'h' || c == 'V') {
			*show = c;
			return 0;
		}
		if (c == '?')
			snprintf(complaint, sizeof(complaint), "\"%s\" is no option, or lacks its value", last);
		else if (!take_option(o, p, c))
			snprintf(complaint, sizeof(complaint), "\"%s\" is no value for %s", optarg,
				 last == optarg ? argv[optind - 2] : last);
		if (*complaint)
			return 2;
	}
	o->inputs = (const char *const *)&argv[optind];
	if (argv[optind])
		return GO_ON;
	snprintf(complaint, sizeof(complaint), "no input is named");
	return 2;
}

/* ---- The job ---- */

static int complain(int rank, const char *what)
{
	if (rank == 0)
		fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
	return 1;
}

/* Whether a file of that name is an input, or would be in one that is a folder. */
static bool is_input(const char *const *inputs, const char *folder, const struct stat *st)
{
	char within[PATH_MAX], real[PATH_MAX];
	struct stat input;

	if (!realpath(folder, within))
		return false;
	for (; *inputs; inputs++) {
		size_t length;

		if (!realpath(*inputs, real) || stat(real, &input) < 0)
			continue;
		length = strlen(real);
		if (S_ISDIR(input.st_mode) ? strncmp(within, real, length) == 0 && (within[length] == '/' || !within[length]) :
		    st && input.st_dev == st->st_dev && input.st_ino == st->st_ino)
			return true;
	}
	return false;
}

/* Of rank 0, before the job: it may take long, and its result would be lost. NULL, or what is wrong with the file. */
static const char *wrong_output(const char *output, const char *const *inputs)
{
	static char sentence[400];
	const char *slash = output ? strrchr(output, '/') : NULL;
	char folder[slash ? slash - output + 2 : 2];
	struct stat st;
	bool there = output && stat(output, &st) == 0;

	/* Pipes and devices are written as they are; a file is made anew in its folder. */
	snprintf(folder, sizeof(folder), "%s", slash ? output : ".");
	if (!output || (there && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
		return NULL;
	if (is_input(inputs, folder, there ? &st : NULL)) {
		snprintf(sentence, sizeof(sentence), "%.300s is an input, or in one: the result needs another place", output);
		return sentence;
	}
	if (there && S_ISDIR(st.st_mode))
		errno = EISDIR;
	else if (access(folder, W_OK | X_OK) == 0)
		return NULL;
	snprintf(sentence, sizeof(sentence), "%.300s cannot be written: %s", output, strerror(errno));
	return sentence;
}

static int run_job(const struct program *p, const struct options *o, struct ummr_config *config, int rank)
{
	const char *wrong = p->prepare ? p->prepare(o, config) : NULL;
	ummr_job *job;
	int status = 0, writes = 1;

	if (wrong)
		return complain(rank, wrong);
	if (rank == 0 && (wrong = wrong_output(o->output, o->inputs)))
		writes = 0;
	MPI_Bcast(&writes, 1, MPI_INT, 0, MPI_COMM_WORLD);
	if (!writes)
		return complain(rank, wrong);
	config->inputs = o->inputs;
	config->method = o->method;
	config->input = o->input;
	config->task_size = o->task;
	config->table_size = o->table;
	config->storage = o->storage;
	config->sync_tasks = o->sync;
	config->timeline = o->timeline;
	config->progress = rank == 0 && !o->quiet ? show_progress : NULL;
	if (ummr_create(MPI_COMM_WORLD, config, &job) < 0)
		return complain(rank, ummr_error());
	if ((p->run ? p->run(job) : ummr_run(job)) < 0 || ummr_write(job, o->output, p->print) < 0)
		status = complain(rank, ummr_error());
	ummr_end(job);
	return status;
}

/* What is closed stays so: MPI opens much, and would get what is meant for standard output. */
static void keep_closed(void)
{
	int fd;

	while ((fd = open("/dev/null", O_RDONLY)) >= 0 && fd <= STDERR_FILENO)
		;
	if (fd >= 0)
		close(fd);
}

static int show_help(const struct program *p, int what)
{
	const char *name = program_invocation_short_name;

	if (what == 'V')
		printf("%s (libummap) %d.%d.%d\n", name, UMMAP_VERSION_MAJOR, UMMAP_VERSION_MINOR, UMMAP_VERSION_PATCH);
	else
		printf("usage: %s %s%s", name, p->usage, options_usage);
	return fflush(stdout) == 0 && !ferror(stdout) ? 0 : complain(0, strerror(errno));
}

/* All of main. The job's functions, and how records are found, are in the config. */
static int run_program(const struct program *p, struct ummr_config *config, int argc, char **argv)
{
	struct options o = { 0 };
	int rank, show = 0, status = parse(&o, p, argc, argv, &show);
	const char *name = program_invocation_short_name;

	keep_closed();
	/* Before the first mapping, and before MPI starts threads. */
	if (o.limit)
		setenv("UMMAP_MEM_LIMIT", o.limit, 1);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (status == GO_ON)
		status = run_job(p, &o, config, rank);
	else if (rank == 0 && show)
		status = show_help(p, show);
	else if (rank == 0)
		fprintf(stderr, "usage: %s %s%s\n%s: %s\n", name, p->usage, options_usage, name, complaint);
	MPI_Finalize();
	return status;
}

#endif
