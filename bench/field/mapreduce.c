/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mapreduce - word count by libummap-mapreduce, and by what it is compared with: MapReduce-2S, a hash table by
 * hand, and Sandia's MapReduce-MPI. Time is taken from all ranks having begun to all having what they get of the result. What
 * each way has found is compared with a sum over the text.
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
	struct alloc group;     /* its budget is that of the cgroup */
	const struct way *way;
	const char *json;
};

static const char help[] =
"usage: mpirun mapreduce [OPTION ...] FILE\n"
"Counts the words of FILE, and says how long that took.\n"
"  -m WAY           1s: libummap-mapreduce, one-sided; 2s: MapReduce-2S, collective; table: a hash table by hand and one\n"
"                   exchange; sandia: Sandia's MapReduce-MPI with compress, where it is installed (1s)\n"
"  -t SIZE          bytes of a task (4M)\n"
"  --pairs          count pairs of words that follow each other: many more of them are different\n"
"  --work MS        so many milliseconds that each task takes besides its words (0)\n"
"  --times N        a quarter of the tasks takes N times as long (1)\n"
"  --sleep          they sleep in that time; else they compute, for so much of a processor's time\n"
"  --storage DIR    1s: windows in files there, 2s: checkpoints there\n"
"  --sync N         with --storage: checkpoints after so many tasks of a rank; never (the library's default)\n"
"  --table SIZE     bytes of pairs in a table, or of a page of MapReduce-MPI (the library's default, 256M)\n"
"  --timeline FILE  what each rank did when, as CSV\n"
ALLOC_KNOBS_HELP
"                   also kernel: windows that the kernel maps\n"
"  --cgroup SIZE    hold all ranks together to so much memory for each, by a memory cgroup\n"
"  --json FILE      append the results to FILE, a line each\n"
"  --help\n";

/* ---- The command line ---- */

static const struct way *find_way(const char *name)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		if (strcmp(ways[i]->name, name) != 0)
			continue;
		if (!ways[i]->count)
			die("-m %s: it was built without %s", name, ways[i]->what);
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

static void parse(struct options *o, int argc, char **argv)
{
	enum { PAIRS = 1, WORK, TIMES, SLEEP, STORAGE, SYNC, TABLE, TIMELINE, CGROUP, JSON, HELP };
	static const struct option known[] = {
		{ "pairs", 0, 0, PAIRS }, { "work", 1, 0, WORK }, { "times", 1, 0, TIMES }, { "sleep", 0, 0, SLEEP },
		{ "storage", 1, 0, STORAGE }, { "sync", 1, 0, SYNC }, { "table", 1, 0, TABLE },
		{ "timeline", 1, 0, TIMELINE }, { "cgroup", 1, 0, CGROUP }, { "json", 1, 0, JSON }, { "help", 0, 0, HELP },
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

/* ---- What is right ---- */

static bool see_word(const char *word, size_t size, void *arg)
{
	struct counted *c = arg;

	c->words++;
	c->sum += word_hash(word, size);
	return true;
}

/* All words of the text, of which each rank looks at a part. The page cache has it afterwards. */
static struct counted scan(const struct words_options *o)
{
	uint64_t tasks = tasks_of(o), ranks = (uint64_t)job.ranks;
	struct counted c = { 0 };
	char *buffer = NULL;
	size_t room = 0;
	int fd = open_file(o->path, O_RDONLY);

	for (uint64_t task = tasks * (uint64_t)job.rank / ranks; task < tasks * (uint64_t)(job.rank + 1) / ranks; task++)
		words_each(buffer, task_read(o, fd, task, &buffer, &room), o->pairs, see_word, &c);
	close(fd);
	free(buffer);
	return (struct counted){ .words = job_total(c.words), .sum = job_total(c.sum) };
}

static struct counted found(const struct options *o)
{
	struct counted c = { .ordered = true };

	o->way->result(&o->words, &c);
	return (struct counted){ job_total(c.words), job_total(c.different), job_total(c.sum), job_total(!c.ordered) == 0 };
}

static void compare(const struct counted *want, const struct counted *got)
{
	if (!got->ordered)
		die("the result is wrong: words are not in order");
	if (got->words != want->words || got->sum != want->sum)
		die("the result is wrong: %llu words, of %llu", (unsigned long long)got->words, (unsigned long long)want->words);
}

/* ---- The program ---- */

/* From here on counts for most_mib. */
static void forget_most(void)
{
	int fd = open_file("/proc/self/clear_refs", O_WRONLY);

	write_whole(fd, "5", 1, 0);
	close(fd);
}

static double most_mib(void)
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

static void report(const struct options *o, const struct counted *c, double seconds, double mib)
{
	struct report r;

	if (job.rank > 0)
		return;
	printf("%s, %d ranks: %.3f s, %.0f MiB each at most; %llu words, %llu different; the result is right\n", o->way->name,
	       job.ranks, seconds, mib, (unsigned long long)c->words, (unsigned long long)c->different);
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

	parse(&o, argc, argv);
	job_reach_windows();
	job_begin(&o.words.alloc);
	want = scan(&o.words);
	job_limit(&o.group);
	job_warm(&o.group, (size_t)o.words.size / (size_t)job.ranks);
	forget_most();
	start = job_start();
	o.way->count(&o.words);
	seconds = job_seconds(start);
	mib = most_mib();
	got = found(&o);
	compare(&want, &got);
	report(&o, &got, seconds, mib);
	job_end();
	return 0;
}
