/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wordcount - counts the words of a text that is far larger than the memory limit.
 *
 * The program uses two mappings: the text, which it reads sequentially, and a hash table in another
 * file, which it reads and writes in random order. The program accesses both as ordinary memory: a
 * word may cross a boundary of segments, and entries are reached by pointers. The table remains
 * after the run and answers queries later (--query).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* basename, asprintf */
#endif
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
#define PROGRESS_STEP_BYTES (4 << 20)

struct ranked_word {
	uint64_t count;
	uint64_t length;
	const char *word; /* pointer into the table */
};

struct options {
	const char *text;      /* path of the text */
	const char *table;     /* path of the table */
	const char *query;     /* word to look up; NULL: count the text */
	const char *list;      /* path for the counts of all words; NULL: none */
	size_t seg_size;       /* bytes of the text's segments; 0: the library's default */
	size_t table_seg_size; /* bytes of the table's segments */
	uint64_t entries;      /* initial capacity of the table */
	size_t top;            /* number of words to print */
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
	if (unfinished_path)
		unlink(unfinished_path);
	exit(2);
}

/* Writes a message, and ignores errors, because SIGBUS ends the program anyway. */
static void write_message(const char *text)
{
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return;
}

/* Reports that storage cannot satisfy a load. The library calls this function in a signal handler,
 * so it calls only write(2). */
static void report_load_error(void *addr, int error)
{
	char number[16] = "", *digit = number + sizeof(number) - 1;

	(void)addr;
	for (; error > 0; error /= 10)
		*--digit = (char)('0' + error % 10);
	write_message("\nwordcount: cannot load the text or the table: error ");
	write_message(digit);
	write_message(" (see errno(3))\n");
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- Counting ---- */

static void show_progress(uint64_t done, uint64_t size, double start)
{
	static double last_time;
	bool terminal = isatty(STDERR_FILENO), last = done == size;
	double t = now();

	if (last_time == 0)
		last_time = start;
	if (!last && t - last_time < (terminal ? 0.25 : 5))
		return;
	last_time = t;
	fprintf(stderr, "%s%5.1f%%  %.0f of %.0f MiB  %.1f MiB/s%s", terminal ? "\r" : "",
		100.0 * (double)done / (double)size, (double)done / MIB, (double)size / MIB,
		(double)done / MIB / (t - start), terminal && !last ? "  " : "\n");
}

static void count_text(struct table *t, const unsigned char *text, size_t size, bool quiet,
		       double start)
{
	const unsigned char *p = text, *end = text + size;
	size_t next_report = 0;

	while (p < end) {
		const unsigned char *word = p;
		uint64_t hash = hash_seed;
		while (p < end && fold[*p])
			hash = add_to_hash(hash, fold[*p++]);
		if (p > word)
			count_word(t, word, (size_t)(p - word), finish_hash(hash));
		else
			p++;
		if ((size_t)(p - text) >= next_report && p < end && !quiet) {
			show_progress((uint64_t)(p - text), size, start);
			next_report = (size_t)(p - text) + PROGRESS_STEP_BYTES;
		}
	}
	t->state.bytes = size;
	if (!quiet && size > 0)
		show_progress(size, size, start);
}

/* Creates the table t, and counts the words of the text in it. An empty text cannot be mapped. */
static void count_file(struct table *t, const struct options *o, double start)
{
	void *text;
	struct stat a, b;
	int fd = open(o->text, O_RDONLY | O_CLOEXEC);
	off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END); /* works for block devices, too */

	if (fd < 0 || size < 0 || fstat(fd, &a) < 0)
		die("cannot open '%s': %s", o->text, strerror(errno));
	if (stat(o->table, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
		die("cannot use '%s': it is both the text and the table. Try another --table",
		    o->text);
	create_table(t, o->table, capacity_for(o->entries), o->table_seg_size);
	if (size == 0)
		return;
	if (ummap((size_t)size, o->seg_size, PROT_READ, fd, 0, -1, 1, UMMAP_PTYPE_FIFO,
		  &text) < 0)
		die("cannot map '%s': %s", o->text, umerrormsg());
	close(fd);
	if (umadvise(text, (size_t)size, UMMAP_ADV_SEQUENTIAL) < 0)
		die("cannot set advice for '%s': %s", o->text, umerrormsg());
	count_text(t, text, (size_t)size, o->quiet, start);
	if (umunmap(text, 0) < 0)
		die("cannot end the mapping of '%s': %s", o->text, umerrormsg());
}

/* ---- Results ---- */

/* Writes a word letter by letter. stdio may pass a whole word to write(2), which fails with EFAULT
 * if its segment is absent. */
static void write_word(uint64_t count, const char *word, uint64_t length, FILE *out)
{
	fprintf(out, "%7" PRIu64 " ", count);
	for (uint64_t i = 0; i < length; i++)
		putc(word[i], out);
	putc('\n', out);
}

/* Sorts words by falling count, and words of equal count alphabetically. */
static bool is_before(const struct ranked_word *a, const struct ranked_word *b)
{
	if (a->count != b->count)
		return a->count > b->count;
	int order = memcmp(a->word, b->word, a->length < b->length ? a->length : b->length);
	return order < 0 || (order == 0 && a->length < b->length);
}

/* Inserts a word into the sorted array `best` of n words, which holds at most `max`. Returns the
 * new number of words. */
static size_t insert_ranked(struct ranked_word *best, size_t n, size_t max, struct ranked_word word)
{
	size_t i;

	if (n == max && (max == 0 || !is_before(&word, &best[n - 1])))
		return n;
	if (n < max)
		n++;
	for (i = n - 1; i > 0 && is_before(&word, &best[i - 1]); i--)
		best[i] = best[i - 1];
	best[i] = word;
	return n;
}

/* Reads the whole table once, writes all words to the list if there is one, and prints the most
 * frequent words. */
static void report_words(const struct table *t, const struct options *o)
{
	struct ranked_word *best = calloc(o->top + 1, sizeof(*best));
	FILE *list = o->list ? fopen(o->list, "we") : NULL;
	size_t n = 0;

	if (!best)
		die("cannot allocate memory");
	if (o->list && !list)
		die("cannot create '%s': %s", o->list, strerror(errno));
	if (umadvise(t->header, t->size, UMMAP_ADV_SEQUENTIAL) < 0)
		die("cannot set advice for '%s': %s", t->path, umerrormsg());
	for (uint64_t i = 0; i < t->state.capacity; i++) {
		const struct entry *e = &t->entries[i];
		if (e->count == 0)
			continue;
		const char *word = entry_word(t, e);
		n = insert_ranked(best, n, o->top,
				  (struct ranked_word){ e->count, e->length, word });
		if (list)
			write_word(e->count, word, e->length, list);
	}
	if (list && (ferror(list) | fclose(list)))
		die("cannot write '%s'", o->list);
	for (size_t i = 0; i < n; i++)
		write_word(best[i].count, best[i].word, best[i].length, stdout);
	free(best);
	printf("bytes     %" PRIu64 "\nwords     %" PRIu64 "\ndistinct  %" PRIu64 "\n",
	       t->state.bytes, t->state.words, t->state.distinct);
}

/* Returns the largest resident set of this process so far, in bytes. */
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
		die("cannot read the counters: %s", umerrormsg());
	printf("memory    budget %.1f MiB, exceeded by at most %.1f MiB\n",
	       (double)s.budget_bytes / MIB, (double)s.over_budget_peak / MIB);
	printf("          peak of the process %.1f MiB (VmHWM), including the program itself\n",
	       peak_memory() / MIB);
	printf("faults    %" PRIu64 " loads, %" PRIu64 " stores, %" PRIu64
	       " first stores to loaded segments\n",
	       s.read_faults, s.write_faults, s.upgrade_faults);
	printf("          %" PRIu64 " of inactive segments, %" PRIu64 " of segments read ahead"
	       " (%" PRIu64 " read ahead, %" PRIu64 " of them unused)\n",
	       s.inactive_hits, s.readahead_hits, s.readahead_loads, s.readahead_waste);
	printf("evicted   %" PRIu64 " segments\n", s.evictions);
	printf("read      %.1f MiB in %" PRIu64 " requests, %" PRIu64 " failed\n",
	       (double)s.read_bytes / MIB, s.read_requests, s.read_errors);
	printf("written   %.1f MiB in %" PRIu64 " requests and %" PRIu64 " flushes, %" PRIu64
	       " failed\n",
	       (double)s.write_bytes / MIB, s.write_requests, s.flushes, s.write_errors);
}

static int count_words(const struct options *o)
{
	struct table t;
	double start = now(), counted, reported;

	count_file(&t, o, start);
	counted = now();
	report_words(&t, o);
	reported = now();
	save_table(&t);
	printf("time      %.2f s, %.1f MiB/s; %.2f s to rank words, %.2f s to save the table\n",
	       counted - start, (double)t.state.bytes / MIB / (counted - start),
	       reported - counted, now() - reported);
	report_counters();
	return fflush(stdout) == 0 ? 0 : 2;
}

/* Prints the count of a word. Returns 0 if the word is in the table, and 1 if it is not. */
static int query_word(const struct options *o)
{
	struct table t;
	const unsigned char *word = (const unsigned char *)o->query;
	size_t length = strlen(o->query);
	uint64_t hash = hash_seed;

	for (size_t i = 0; i < length; i++) {
		if (!fold[word[i]])
			die("cannot look up '%s': it is not a word of letters A to Z", o->query);
		hash = add_to_hash(hash, fold[word[i]]);
	}
	if (length == 0)
		die("cannot use --query '': it must be a word");
	open_table(&t, o->table, o->table_seg_size);
	uint64_t count = find_entry(&t, word, length, finish_hash(hash))->count;
	printf("%" PRIu64 "\n", count);
	if (umunmap(t.header, 0) < 0)
		die("cannot end the mapping of '%s': %s", o->table, umerrormsg());
	return count > 0 ? 0 : 1;
}

static const char usage[] =
"usage: wordcount [options] TEXT\n"
"       wordcount --query WORD [options] [TEXT]\n"
"\n"
"Counts the words of TEXT, a file of any size, in limited memory.\n"
"A word is a longest sequence of letters A to Z, in lower case. The result is that of\n"
"    LC_ALL=C tr -cs A-Za-z '\\n' < TEXT | tr A-Z a-z | sort | uniq -c\n"
"\n"
"  --budget SIZE     memory limit of both mappings (UMMAP_MEM_LIMIT)\n"
"  --seg SIZE        segment size of the text (the library's default)\n"
"  --table FILE      file of the table, which remains (name of TEXT plus\n"
"                    \".counts\", in the current folder)\n"
"  --table-seg SIZE  segment size of the table (16K)\n"
"  --entries N       initial number of entries of the table, of 72 bytes each;\n"
"                    the table grows as needed (4M)\n"
"  --top N           number of most frequent words to print (20)\n"
"  --list FILE       also write the counts of all words to FILE, unsorted\n"
"  --query WORD      count nothing; print the count of WORD from the table of an\n"
"                    earlier run\n"
"  --quiet           show no progress\n"
"  --help            print this text\n"
"\n"
"SIZE and N may end in K, M or G. Exit status: 0; 1 if WORD is not in the table;\n"
"2 on error.\n";

/* Parses a number with an optional unit, such as "64K". */
static uint64_t parse_size(const char *option, const char *text, uint64_t min, uint64_t max)
{
	static const char units[] = "KMG";
	char *end;
	const char *unit;

	errno = 0;
	uint64_t n = strtoull(text, &end, 10);
	if (errno || end == text || *text == '-')
		die("cannot use --%s '%s': it is not a number", option, text);
	if (*end && (unit = strchr(units, *end))) {
		unsigned shift = 10 * (unsigned)(unit - units + 1);
		n = n > max >> shift ? max + 1 : n << shift;
		end++;
	}
	if (*end || n < min || n > max)
		die("cannot use --%s '%s': it must be %" PRIu64 " to %" PRIu64, option, text, min,
		    max);
	return n;
}

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		{ "budget", required_argument, NULL, 'b' },
		{ "seg", required_argument, NULL, 's' },
		{ "table", required_argument, NULL, 't' },
		{ "table-seg", required_argument, NULL, 'T' },
		{ "entries", required_argument, NULL, 'e' },
		{ "top", required_argument, NULL, 'n' },
		{ "list", required_argument, NULL, 'l' },
		{ "query", required_argument, NULL, 'q' },
		{ "quiet", no_argument, NULL, 'Q' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c, which;

	while ((c = getopt_long(argc, argv, "", known, &which)) >= 0) {
		switch (c) {
		case 'b': setenv("UMMAP_MEM_LIMIT", optarg, 1); break;
		case 's': o->seg_size = parse_size("seg", optarg, 0, SIZE_MAX >> 1); break;
		case 't': o->table = optarg; break;
		case 'T':
			o->table_seg_size = parse_size("table-seg", optarg, 0, SIZE_MAX >> 1);
			break;
		case 'e':
			o->entries = parse_size("entries", optarg, 1, TABLE_MAX_ENTRIES);
			break;
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

	init_fold();
	parse_options(&o, argc, argv);
	if (!o.table) {
		if (asprintf(&table, "%s.counts", basename(o.text)) < 0)
			die("cannot allocate memory");
		o.table = table;
	}
	umonerror(report_load_error);
	int rc = o.query ? query_word(&o) : count_words(&o);
	free(table);
	return rc;
}
