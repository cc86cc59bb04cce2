/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mapreduce - word count by libummap-mapreduce and by other ways: MapReduce-2S, a hand-written
 * hash table, and Sandia's MapReduce-MPI. The time is that from the common start of all ranks
 * until all of them have their results. The result is compared with a sum over the text.
 */
#include <getopt.h>
#include <limits.h>
#include <sys/stat.h>

#include "kit/common.h"
#include "kit/data.h"
#include "mapreduce.h"
#include "report.h"

static const struct way *const ways[] = { &way_1s, &way_2s, &way_table, &way_sandia };

struct options {
	struct words_options words;
	struct alloc group;     /* limit of the memory cgroup */
	const struct way *way;
	const char *json;
};

static const char help[] =
"usage: mpirun mapreduce [OPTION ...] FILE\n"
"Counts the words of FILE, and prints the time that this takes.\n"
"  -m WAY           1s: libummap-mapreduce; 2s: MapReduce-2S; table: a hand-written hash table\n"
"                   with one exchange; sandia: MapReduce-MPI with compress, if installed (1s)\n"
"  -t SIZE          bytes of a task (4M)\n"
"  --pairs          count pairs of consecutive words\n"
"  --work MS        additional milliseconds of each task (0)\n"
"  --times N        factor of this time, for a quarter of the tasks (1)\n"
"  --sleep          sleep in this time instead of computing\n"
"  --storage DIR    folder for windows of 1s, or checkpoints of 2s\n"
"  --sync N         with --storage: tasks of a rank between checkpoints, or never (the\n"
"                   default of the way)\n"
"  --table SIZE     bytes of pairs in a table, or of a page of MapReduce-MPI (256M)\n"
"  --timeline FILE  write the events of each rank to FILE, as CSV\n"
ALLOC_KNOBS_HELP
"                   also kernel: windows that the kernel maps\n"
"  --cgroup SIZE    limit all ranks together to SIZE for each rank, by a memory cgroup\n"
"  --json FILE      append the results to FILE, as JSON lines\n"
"  --help\n";

/* ---- The command line ---- */

static const struct way *find_way(const char *name)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		if (strcmp(ways[i]->name, name) != 0)
			continue;
		if (!ways[i]->count)
			die("-m %s: it was built without %s", name, ways[i]->description);
		return ways[i];
	}
	die("-m: there is no way '%s'; see --help", name);
}

static uint32_t parse_sync(const char *text)
{
	return strcmp(text, "never") == 0 ? UINT32_MAX : parse_count("sync", text, UINT32_MAX - 1);
}

static void set_text(struct words_options *o, char **argv, int at)
{
	struct stat st;

	o->path = argv[at];
	if (!o->path || argv[at + 1])
		die("one text at a time; see --help");
	if (stat(o->path, &st) < 0 || st.st_size == 0)
		die("%s: %s", o->path, st.st_size == 0 ? "it is empty" : strerror(errno));
	o->size = (uint64_t)st.st_size;
}

static void parse_options(struct options *o, int argc, char **argv)
{
	enum { PAIRS = 1, WORK, TIMES, SLEEP, STORAGE, SYNC, TABLE, TIMELINE, CGROUP, JSON, HELP };
	static const struct option known[] = {
		{ "pairs", 0, 0, PAIRS }, { "work", 1, 0, WORK }, { "times", 1, 0, TIMES },
			{ "sleep", 0, 0, SLEEP },
		{ "storage", 1, 0, STORAGE }, { "sync", 1, 0, SYNC }, { "table", 1, 0, TABLE },
		{ "timeline", 1, 0, TIMELINE }, { "cgroup", 1, 0, CGROUP }, { "json", 1, 0, JSON },
			{ "help", 0, 0, HELP },
		ALLOC_KNOBS, { 0 },
	};
	struct words_options *w = &o->words;
	int c;

	while ((c = getopt_long(argc, argv, "m:t:", known, NULL)) != -1) {
		switch (c) {
		case 'm': o->way = find_way(optarg); break;
		case 't': w->task = parse_size("t", optarg); break;
		case PAIRS: w->pairs = true; break;
		case WORK: w->work = parse_count("work", optarg, 100000); break;
		case TIMES: w->times = parse_count("times", optarg, 1000); break;
		case SLEEP: w->sleeps = true; break;
		case STORAGE: w->storage = optarg; break;
		case SYNC: w->sync = parse_sync(optarg); break;
		case TABLE: w->table = parse_size("table", optarg); break;
		case TIMELINE: w->timeline = optarg; break;
		case CGROUP: o->group.budget = parse_size("cgroup", optarg); break;
		case JSON: o->json = optarg; break;
		case HELP: fputs(help, stdout); exit(0);
		default:
			if (!alloc_option(&w->alloc, c, optarg))
				die("see --help");
		}
	}
	set_text(w, argv, optind);
}

/* ---- The right result ---- */

static bool add_word(const char *word, size_t size, void *arg)
{
	struct counted *c = arg;

	c->words++;
	c->sum += word_hash(word, size);
	return true;
}

/* Counts the words of the text, of which each rank reads a part. This also brings the text into the
 * page cache. */
static struct counted scan_text(const struct words_options *o)
{
	uint64_t tasks = tasks_of(o), ranks = (uint64_t)job.ranks;
	struct counted c = { 0 };
	char *buffer = NULL;
	size_t capacity = 0;
	int fd = open_file(o->path, O_RDONLY);

	for (uint64_t task =
		tasks * (uint64_t)job.rank / ranks; task < tasks * (uint64_t)(job.rank +
									      1) / ranks; task++)
		words_each(buffer, task_read(o, fd, task, &buffer, &capacity), o->pairs, add_word,
			   &c);
	close(fd);
	free(buffer);
	return (struct counted){ .words = job_total(c.words), .sum = job_total(c.sum) };
}

static struct counted read_result(const struct options *o)
{
	struct counted c = { .ordered = true };

	o->way->result(&o->words, &c);
	return (struct counted){ job_total(c.words), job_total(c.different), job_total(c.sum),
				 job_total(!c.ordered) == 0 };
}

static void compare_results(const struct counted *want, const struct counted *got)
{
	if (!got->ordered)
		die("the result is wrong: words are not in order");
	if (got->words != want->words || got->sum != want->sum)
		die("the result is wrong: %llu words, of %llu", (unsigned long long)got->words,
		    (unsigned long long)want->words);
}

/* ---- The program ---- */

/* Begins the measurement of peak_mib. */
static void reset_peak(void)
{
	int fd = open_file("/proc/self/clear_refs", O_WRONLY);

	write_whole(fd, "5", 1, 0);
	close(fd);
}

static double peak_mib(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	double kib = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmHWM: %lf", &kib) == 1)
			break;
	if (!f || kib == 0)
		die("/proc/self/status cannot be read");
	fclose(f);
	return job_max(kib / 1024);
}

static void report_result(const struct options *o, const struct counted *c, double seconds,
			  double mib)
{
	struct report r;

	if (job.rank > 0)
		return;
	printf("%s, %d ranks: %.3f s, %.0f MiB each at most; %llu words, %llu different; "
	       "the result is right\n", o->way->name, job.ranks, seconds, mib,
	       (unsigned long long)c->words, (unsigned long long)c->different);
	r = report_begin(o->json, "mapreduce");
	report_text(&r, "way", o->way->name);
	report_text(&r, "text", o->words.path);
	report_number(&r, "ranks", job.ranks);
	report_number(&r, "seconds", seconds);
	report_number(&r, "most_mib", mib);
	report_number(&r, "words", (double)c->words);
	report_number(&r, "different", (double)c->different);
	report_end(&r);
}

int main(int argc, char **argv)
{
	struct options o = { .words = { .task = 4 * MIB, .times = 1 }, .way = &way_1s };
	struct counted want, got;
	double seconds, mib;
	uint64_t start;

	parse_options(&o, argc, argv);
	job_reach_windows();
	job_begin(&o.words.alloc);
	want = scan_text(&o.words);
	job_limit(&o.group);
	job_warm(&o.group, (size_t)o.words.size / (size_t)job.ranks);
	reset_peak();
	start = job_start();
	o.way->count(&o.words);
	seconds = job_seconds(start);
	mib = peak_mib();
	got = read_result(&o);
	compare_results(&want, &got);
	report_result(&o, &got, seconds, mib);
	job_end();
	return 0;
}
