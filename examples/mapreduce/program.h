/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * program.h - the common part of the programs in this folder: options, progress, errors, and the
 * output. A program adds its job: the way to find records, and the map and reduce functions.
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
	const char *const *inputs; /* files and folders; NULL after the last */
	const char *output;        /* file of the result; NULL: the standard output */
	const char *storage;       /* folder for windows; NULL: memory */
	const char *timeline;      /* file of events; NULL: none */
	const char *limit;         /* value for UMMAP_MEM_LIMIT; NULL: unchanged */
	size_t task, table;        /* bytes of a task and of a table; 0: the default */
	uint32_t sync;             /* tasks between syncs; 0: the default */
	bool quiet;                /* show no progress */
};

struct program {
	const char *usage;   /* text after the name, without the common options */
	const char *letters; /* letters of the program's own options, as for getopt(3) */
	/* Sets one of these options. Returns false if the value is invalid. */
	bool (*set)(int letter, const char *value);
	/* Completes the configuration at all ranks. Returns an error message, or NULL. */
	const char *(*prepare)(const struct options *o, struct ummr_config *config);
	/* Runs the job; NULL: one ummr_run. */
	int (*run)(ummr_job *job);
	/* Prints one pair, for ummr_write. */
	int (*print)(FILE *out, const struct ummr_bytes *key, const struct ummr_bytes *value,
		     void *arg);
};

static const char options_usage[] =
"  -o, --output FILE     write the result to FILE (default: standard output)\n"
"  -s, --storage FOLDER  keep the windows of the job in files of FOLDER, and\n"
"                        continue a job that was interrupted\n"
"      --sync TASKS      with --storage: tasks of a rank between syncs (default:\n"
"                        syncs take a 25th of the time)\n"
"      --limit SIZE      with --storage: memory for windows, for all ranks of a\n"
"                        machine together\n"
"      --table SIZE      bytes of pairs in the hash table of a rank (256M)\n"
"  -t, --task SIZE       bytes of one task, with K, M or G (default: a 16th of a\n"
"                        rank's part of the input, from 1M to 64M)\n"
"      --timeline FILE   write the events of all ranks to FILE, as CSV\n"
"  -q, --quiet           show no progress\n"
"  -h, --help            show this help\n"
"  -V, --version         show the version\n"
"\n"
"Exit status: 0 on success, 1 on failure, 2 if the options are wrong.\n";

/* ---- Progress of rank 0 ---- */

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
	fprintf(stderr, "%s%-7s  %" PRIu64 " of %" PRIu64 "%s", terminal ? "\r" : "",
		phases[p->phase], p->done, p->all,
		terminal && p->phase != UMMR_PHASE_DONE ? "      " : "\n");
}

/* ---- Options: they are parsed before MPI_Init; rank 0 prints the error message afterwards ---- */

static char error_message[400];

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
	return isdigit((unsigned char)*text) && !errno && !*end && n > 0 &&
	       n <= (SIZE_MAX >> 1) >> shift;
}

/* Sets an option to optarg. Returns false if the value is invalid. */
static bool set_option(struct options *o, const struct program *p, int letter)
{
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
	case 'L': o->timeline = optarg; return true;
	case 'q': o->quiet = true; return true;
	default: return p->set(letter, optarg);
	}
}

enum { RUN_JOB = -1 };

/* Parses the command line. Returns RUN_JOB, or the exit status; *show is 'h' for --help and 'V' for
 * --version. */
static int parse_options(struct options *o, const struct program *p, int argc, char **argv,
			 int *show)
{
	static const struct option known[] = {
		{ "output", required_argument, NULL, 'o' },
		{ "storage", required_argument, NULL, 's' },
		{ "sync", required_argument, NULL, 'S' },
		{ "limit", required_argument, NULL, 'M' },
		{ "table", required_argument, NULL, 'T' },
		{ "task", required_argument, NULL, 't' },
		{ "timeline", required_argument, NULL, 'L' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	char letters[64];
	int c;

	snprintf(letters, sizeof(letters), ":o:s:t:qhV%s", p->letters ? p->letters : "");
	opterr = 0;
	while ((c = getopt_long(argc, argv, letters, known, NULL)) >= 0) {
		const char *last = argv[optind - 1];

		if (c == 'h' || c == 'V') {
			*show = c;
			return 0;
		}
		if (c == '?' || c == ':')
			snprintf(error_message, sizeof(error_message),
				 "cannot use '%s': %s. Try '%s --help'", last,
				 c == ':' ? "it needs a value" :
				 optopt && last[1] == '-' ? "it takes no value" :
				 "there is no such option",
				 program_invocation_short_name);
		else if (!set_option(o, p, c))
			snprintf(error_message, sizeof(error_message),
				 "cannot use '%s' for %s: the value is invalid", optarg,
				 last == optarg ? argv[optind - 2] : last);
		if (*error_message)
			return 2;
	}
	o->inputs = (const char *const *)&argv[optind];
	if (argv[optind])
		return RUN_JOB;
	snprintf(error_message, sizeof(error_message),
		 "cannot run: there is no input. Try '%s FILE', or '%s --help'",
		 program_invocation_short_name, program_invocation_short_name);
	return 2;
}

/* ---- The job ---- */

static int print_error(int rank, const char *message)
{
	if (rank == 0)
		fprintf(stderr, "%s: %s\n", program_invocation_short_name, message);
	return 1;
}

/* Returns whether the output, a file in `folder`, is an input, or in a folder that is one. st: the
 * existing file, or NULL. */
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
		if (S_ISDIR(input.st_mode)
			    ? strncmp(within, real, length) == 0 &&
				      (within[length] == '/' || !within[length])
			    : st && input.st_dev == st->st_dev && input.st_ino == st->st_ino)
			return true;
	}
	return false;
}

/* Checks the output at rank 0 before the job, whose result would otherwise be lost. Returns an
 * error message, or NULL. */
static const char *check_output(const char *output, const char *const *inputs)
{
	static char message[400];
	const char *slash = output ? strrchr(output, '/') : NULL;
	char folder[slash ? slash - output + 2 : 2];
	struct stat st;
	bool exists = output && stat(output, &st) == 0;

	/* Pipes and devices are written directly; a file is made in its folder and renamed. */
	snprintf(folder, sizeof(folder), "%s", slash ? output : ".");
	if (!output || (exists && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
		return NULL;
	if (is_input(inputs, folder, exists ? &st : NULL)) {
		snprintf(message, sizeof(message),
			 "cannot write '%.300s': it is an input, or in one. Try another folder",
			 output);
		return message;
	}
	if (exists && S_ISDIR(st.st_mode))
		errno = EISDIR;
	else if (access(folder, W_OK | X_OK) == 0)
		return NULL;
	snprintf(message, sizeof(message), "cannot write '%.300s': %s", output, strerror(errno));
	return message;
}

static int run_job(const struct program *p, const struct options *o, struct ummr_config *config,
		   int rank)
{
	const char *message = p->prepare ? p->prepare(o, config) : NULL;
	ummr_job *job;
	int status = 0, can_write = 1;

	if (message)
		return print_error(rank, message);
	if (rank == 0 && (message = check_output(o->output, o->inputs)))
		can_write = 0;
	MPI_Bcast(&can_write, 1, MPI_INT, 0, MPI_COMM_WORLD);
	if (!can_write)
		return print_error(rank, message);
	config->inputs = o->inputs;
	config->task_size = o->task;
	config->table_size = o->table;
	config->storage = o->storage;
	config->sync_tasks = o->sync;
	config->timeline = o->timeline;
	config->progress = rank == 0 && !o->quiet ? show_progress : NULL;
	if (ummr_create(MPI_COMM_WORLD, config, &job) < 0)
		return print_error(rank, ummr_error());
	if ((p->run ? p->run(job) : ummr_run(job)) < 0 || ummr_write(job, o->output, p->print) < 0)
		status = print_error(rank, ummr_error());
	ummr_end(job);
	return status;
}

/* Opens /dev/null in place of closed standard descriptors. Otherwise a file that MPI opens could
 * get the number of the standard output. */
static void fill_standard_descriptors(void)
{
	int fd;

	while ((fd = open("/dev/null", O_RDONLY)) >= 0 && fd <= STDERR_FILENO)
		;
	if (fd >= 0)
		close(fd);
}

/* show: 'h' or 'V'. Returns the exit status. */
static int show_text(const struct program *p, int show)
{
	const char *name = program_invocation_short_name;

	if (show == 'V')
		printf("%s (libummap) %d.%d.%d\n", name, UMMAP_VERSION_MAJOR,
		       UMMAP_VERSION_MINOR, UMMAP_VERSION_PATCH);
	else
		printf("usage: %s %s%s", name, p->usage, options_usage);
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	fprintf(stderr, "%s: cannot write the output: %s\n", name, strerror(errno));
	return 1;
}

/* Does the work of main. The configuration has the job's functions, and the way to find records. */
static int run_program(const struct program *p, struct ummr_config *config, int argc, char **argv)
{
	struct options o = { 0 };
	int rank, show = 0, status = parse_options(&o, p, argc, argv, &show);

	fill_standard_descriptors();
	/* The variable must be set before the first mapping, and before MPI starts threads. */
	if (o.limit)
		setenv("UMMAP_MEM_LIMIT", o.limit, 1);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (status == RUN_JOB)
		status = run_job(p, &o, config, rank);
	else if (rank == 0 && show)
		status = show_text(p, show);
	else if (rank == 0)
		print_error(rank, error_message);
	MPI_Finalize();
	return status;
}

#endif
