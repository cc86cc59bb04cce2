/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wordcount - counts the words of a text far larger than the memory that it may use.
 *
 * Two mappings at once: the text, read from front to back, and a hash table in a file of its own, read and
 * written all over. Both are plain memory to this program: a word may lie across any boundary of segments,
 * an entry is a pointer, and the table that is left behind answers questions later (--query).
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <ummap.h>

#include "wordtable.h"

#define MAX_TOP 10000
#define MIB (1024.0 * 1024.0)

struct ranked {
	uint64_t count;
	uint64_t length;
	const char *word; /* in the table */
};

struct options {
	const char *text, *table, *query, *list;
	size_t seg_size, table_seg_size;
	uint64_t entries;
	size_t top;
	bool quiet;
};

static void die(const char *format, ...)
{
	va_list args;

	fputs("wordcount: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	if (unfinished)
		unlink(unfinished);
	exit(2);
}

static void say(const char *text)
{
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return; /* nobody listens: SIGBUS says the rest */
}

/* Storage failed a load. This runs inside the library's signal handler, so it calls nothing but
 * write(2). */
static void load_failed(void *addr, int error)
{
	char number[16] = "", *digit = number + sizeof(number) - 1;

	(void)addr;
	for (; error > 0; error /= 10)
		*--digit = (char)('0' + error % 10);
	say("\nwordcount: cannot load the text or the table: error ");
	say(digit);
	say(" (see errno(3))\n");
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- Counting. ---- */

static void show_progress(uint64_t done, uint64_t size, double started)
{
	static double shown;
	bool terminal = isatty(STDERR_FILENO), last = done == size;
	double t = now();

	if (shown == 0)
		shown = started;
	if (!last && t - shown < (terminal ? 0.25 : 5))
		return;
	shown = t;
	fprintf(stderr, "%s%5.1f%%  %.0f of %.0f MiB  %.1f MiB/s%s", terminal ? "\r" : "",
		100.0 * (double)done / (double)size, (double)done / MIB, (double)size / MIB,
		(double)done / MIB / (t - started), terminal && !last ? "  " : "\n");
}

static void count_text(struct table *t, const unsigned char *text, size_t size, bool quiet, double started)
{
	const unsigned char *p = text, *end = text + size;
	size_t mark = 0;

	while (p < end) {
		const unsigned char *word = p;
		uint64_t hash = hash_seed;
		while (p < end && fold[*p])
			hash = hash_add(hash, fold[*p++]);
		if (p > word)
			table_count(t, word, (size_t)(p - word), hash_end(hash));
		else
			p++;
		if ((size_t)(p - text) >= mark && p < end && !quiet) {
			show_progress((uint64_t)(p - text), size, started);
			mark = (size_t)(p - text) + (4 << 20);
		}
	}
	t->now.bytes = size;
	if (!quiet && size > 0)
		show_progress(size, size, started);
}

/* Maps the text and counts it into t. An empty text has nothing to map. */
static void count_file(struct table *t, const struct options *o, double started)
{
	void *text;
	struct stat a, b;
	int fd = open(o->text, O_RDONLY | O_CLOEXEC);
	off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END); /* also right for block devices */

	if (fd < 0 || size < 0 || fstat(fd, &a) < 0)
		die("%s: %s", o->text, strerror(errno));
	if (stat(o->table, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
		die("%s: is both the text and the table", o->text);
	table_create(t, o->table, capacity_for(o->entries), o->table_seg_size);
	if (size == 0)
		return;
	if (ummap((size_t)size, o->seg_size, PROT_READ, fd, 0, -1, 1, UMMAP_PTYPE_FIFO, &text) < 0)
		die("%s: cannot be mapped: %s", o->text, umerrormsg());
	close(fd);
	if (umadvise(text, (size_t)size, UMMAP_ADV_SEQUENTIAL) < 0)
		die("%s: %s", o->text, umerrormsg());
	count_text(t, text, (size_t)size, o->quiet, started);
	if (umunmap(text, 0) < 0)
		die("%s: %s", o->text, umerrormsg());
}

/* ---- What was found. ---- */

/* Letter by letter: given the whole word, stdio may hand it to write(2), which cannot see absent segments. */
static void put_word(uint64_t count, const char *word, uint64_t length, FILE *out)
{
	fprintf(out, "%7" PRIu64 " ", count);
	for (uint64_t i = 0; i < length; i++)
		putc(word[i], out);
	putc('\n', out);
}

/* Frequent words come first, words of one count in the order of the alphabet. */
static bool comes_before(const struct ranked *a, const struct ranked *b)
{
	if (a->count != b->count)
		return a->count > b->count;
	int order = memcmp(a->word, b->word, a->length < b->length ? a->length : b->length);
	return order < 0 || (order == 0 && a->length < b->length);
}

/* Keeps the best `max` of the words seen, in order. Returns how many there are now. */
static size_t rank(struct ranked *best, size_t n, size_t max, struct ranked word)
{
	size_t i;

	if (n == max && (max == 0 || !comes_before(&word, &best[n - 1])))
		return n;
	if (n < max)
		n++;
	for (i = n - 1; i > 0 && comes_before(&word, &best[i - 1]); i--)
		best[i] = best[i - 1];
	best[i] = word;
	return n;
}

/* One walk over the whole table: every word into the list, if one is wanted, and the best are printed. */
static void report_words(const struct table *t, const struct options *o)
{
	struct ranked *best = calloc(o->top + 1, sizeof(*best));
	FILE *list = o->list ? fopen(o->list, "we") : NULL;
	size_t n = 0;

	if (!best)
		die("no memory");
	if (o->list && !list)
		die("%s: %s", o->list, strerror(errno));
	if (umadvise(t->head, t->size, UMMAP_ADV_SEQUENTIAL) < 0)
		die("%s: %s", t->path, umerrormsg());
	for (uint64_t i = 0; i < t->now.capacity; i++) {
		const struct entry *e = &t->entries[i];
		if (e->count == 0)
			continue;
		const char *word = entry_word(t, e);
		n = rank(best, n, o->top, (struct ranked){ e->count, e->length, word });
		if (list)
			put_word(e->count, word, e->length, list);
	}
	if (list && (ferror(list) | fclose(list)))
		die("%s: could not be written", o->list);
	for (size_t i = 0; i < n; i++)
		put_word(best[i].count, best[i].word, best[i].length, stdout);
	free(best);
	printf("bytes     %" PRIu64 "\nwords     %" PRIu64 "\ndistinct  %" PRIu64 "\n",
	       t->now.bytes, t->now.words, t->now.distinct);
}

/* The most memory that this process ever had, in bytes. */
static double peak_memory(void)
{
	char line[256];
	unsigned long kib = 0;
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmHWM: %lu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return (double)kib * 1024;
}

static void report_counters(void)
{
	struct umstat s = { .struct_size = sizeof(s) };

	if (umstat(NULL, &s) < 0)
		die("no statistics: %s", umerrormsg());
	printf("memory    budget %.1f MiB, exceeded by at most %.1f MiB\n", (double)s.budget_bytes / MIB,
	       (double)s.over_budget_peak / MIB);
	printf("          peak of the process %.1f MiB (VmHWM), which includes the program itself\n",
	       peak_memory() / MIB);
	printf("faults    %" PRIu64 " loads, %" PRIu64 " stores, %" PRIu64 " first stores to loaded segments\n",
	       s.read_faults, s.write_faults, s.upgrade_faults);
	printf("          %" PRIu64 " of them found on standby, %" PRIu64 " read ahead (of %" PRIu64 ", %" PRIu64
	       " in vain)\n", s.inactive_hits, s.readahead_hits, s.readahead_loads, s.readahead_waste);
	printf("evicted   %" PRIu64 " segments\n", s.evictions);
	printf("read      %.1f MiB in %" PRIu64 " requests, %" PRIu64 " failed\n",
	       (double)s.read_bytes / MIB, s.read_requests, s.read_errors);
	printf("written   %.1f MiB in %" PRIu64 " requests and %" PRIu64 " flushes, %" PRIu64 " failed\n",
	       (double)s.write_bytes / MIB, s.write_requests, s.flushes, s.write_errors);
}

static int count(const struct options *o)
{
	struct table t;
	double started = now(), counted, saved;

	count_file(&t, o, started);
	counted = now();
	report_words(&t, o);
	saved = now();
	table_save(&t);
	printf("time      %.2f s, %.1f MiB/s; then %.2f s to find the first and %.2f s to save the table\n",
	       counted - started, (double)t.now.bytes / MIB / (counted - started), saved - counted, now() - saved);
	report_counters();
	return fflush(stdout) == 0 ? 0 : 2;
}

/* 0 if the word was in the text, 1 if not. */
static int query(const struct options *o)
{
	struct table t;
	const unsigned char *word = (const unsigned char *)o->query;
	size_t length = strlen(o->query);
	uint64_t hash = hash_seed;

	for (size_t i = 0; i < length; i++) {
		if (!fold[word[i]])
			die("\"%s\" is no word: a word is letters from A to Z only", o->query);
		hash = hash_add(hash, fold[word[i]]);
	}
	if (length == 0)
		die("--query wants a word");
	table_open(&t, o->table, o->table_seg_size);
	uint64_t count = table_find(&t, word, length, hash_end(hash))->count;
	printf("%" PRIu64 "\n", count);
	if (umunmap(t.head, 0) < 0)
		die("%s: %s", o->table, umerrormsg());
	return count > 0 ? 0 : 1;
}

static const char usage[] =
"usage: wordcount [options] TEXT\n"
"       wordcount --query WORD [options] [TEXT]\n"
"\n"
"Counts the words of TEXT, a file of any size, in a bounded amount of memory.\n"
"A word is a run of the letters A to Z, as long as possible, in lower case; as in\n"
"    LC_ALL=C tr -cs A-Za-z '\\n' < TEXT | tr A-Z a-z | sort | uniq -c\n"
"\n"
"  --budget SIZE     memory for both mappings: sets UMMAP_MEM_LIMIT\n"
"  --seg SIZE        segments of the text (default: the library's)\n"
"  --table FILE      where the counts go and stay (default: TEXT's name without\n"
"                    its folders, plus \".counts\", in this folder)\n"
"  --table-seg SIZE  segments of the table (16K)\n"
"  --entries N       words that the table has room for at first, 72 bytes each;\n"
"                    it grows as needed (4M)\n"
"  --top N           how many of the most frequent words to print (20)\n"
"  --list FILE       also write the counts of all words to FILE, in no order\n"
"  --query WORD      count nothing: print how often WORD came, from the table\n"
"                    of an earlier run\n"
"  --quiet           show no progress\n"
"  --help            show this\n"
"\n"
"SIZE and N take K, M and G. Exit status: 0; 1 if WORD is not in the table;\n"
"2 if something failed.\n";

/* "64K" and the like. */
static uint64_t parse_size(const char *option, const char *text, uint64_t min, uint64_t max)
{
	static const char units[] = "KMG";
	char *end;
	const char *unit;

	errno = 0;
	uint64_t n = strtoull(text, &end, 10);
	if (errno || end == text || *text == '-')
		die("--%s %s: is no number", option, text);
	if (*end && (unit = strchr(units, *end))) {
		unsigned shift = 10 * (unsigned)(unit - units + 1);
		n = n > max >> shift ? max + 1 : n << shift;
		end++;
	}
	if (*end || n < min || n > max)
		die("--%s %s: should be %" PRIu64 " to %" PRIu64, option, text, min, max);
	return n;
}

static void parse(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		{ "budget", required_argument, NULL, 'b' },    { "seg", required_argument, NULL, 's' },
		{ "table", required_argument, NULL, 't' },     { "table-seg", required_argument, NULL, 'T' },
		{ "entries", required_argument, NULL, 'e' },   { "top", required_argument, NULL, 'n' },
		{ "list", required_argument, NULL, 'l' },      { "query", required_argument, NULL, 'q' },
		{ "quiet", no_argument, NULL, 'Q' },           { "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c, which;

	while ((c = getopt_long(argc, argv, "", known, &which)) >= 0) {
		switch (c) {
		case 'b': setenv("UMMAP_MEM_LIMIT", optarg, 1); break;
		case 's': o->seg_size = parse_size("seg", optarg, 0, SIZE_MAX >> 1); break;
		case 't': o->table = optarg; break;
		case 'T': o->table_seg_size = parse_size("table-seg", optarg, 0, SIZE_MAX >> 1); break;
		case 'e': o->entries = parse_size("entries", optarg, 1, TABLE_MAX_ENTRIES); break;
		case 'n': o->top = parse_size("top", optarg, 0, MAX_TOP); break;
		case 'l': o->list = optarg; break;
		case 'q': o->query = optarg; break;
		case 'Q': o->quiet = true; break;
		case 'h': fputs(usage, stdout); exit(0);
		default: fputs(usage, stderr); exit(2);
		}
	}
	o->text = optind < argc ? argv[optind++] : NULL;
	if (optind < argc || (!o->text && !(o->query && o->table))) {
		fputs(usage, stderr);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct options o = { .table_seg_size = 16 << 10, .entries = 4 << 20, .top = 20 };
	char *table = NULL;

	fold_init();
	parse(&o, argc, argv);
	if (!o.table) {
		if (asprintf(&table, "%s.counts", basename(o.text)) < 0)
			die("no memory");
		o.table = table;
	}
	umonerror(load_failed);
	int rc = o.query ? query(&o) : count(&o);
	free(table);
	return rc;
}
