/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Outputs during a computation: cycles that change a field, and whose fifth makes it durable, by
 * umsync_begin, by umsync or not at all, alternately; and the time of umsync_begin itself.
 */
#include <getopt.h>
#include <limits.h>
#include <sys/resource.h>

#include "kit/common.h"
#include "ummap.h"

static const char help[] =
"usage: commit [OPTION ...]\n"
"Milliseconds of a cycle without output, with umsync_begin, and with umsync; CSV on stdout.\n"
"  --uri URI        store of the field (posix:commit.data)\n"
"  --size SIZE      of the field (1G)\n"
"  --seg SIZE       of a segment (2M)\n"
"  --computing MS   of each cycle, in which the processor works (400)\n"
"  --cycles N       of a turn (10)\n"
"  --reps N         turns (3)\n"
"  --help\n";

enum { EACH = 5 };
enum method { NONE, ASYNC, SYNC, METHODS };
static const char *const names[METHODS] = { "none", "async", "sync" };

struct options {
	const char *uri;
	size_t size, seg;
	unsigned computing, cycles, reps;
};

struct took {
	double cycle, cycle_cpu, begin, begin_cpu; /* ms; cpu: processor time of the thread */
};

static double cpu_ms(void)
{
	struct rusage r;

	getrusage(RUSAGE_THREAD, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e3 +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-3;
}

static void check(int result, const char *call)
{
	if (result)
		die("%s: %s", call, umerrormsg());
}

/* Ends the output before this one, and begins it. */
static void output(char *field, enum method method, struct umsync_handle **handle, struct took *t)
{
	uint64_t start;
	double cpu;

	if (method == SYNC)
		check(umsync(field, 0), "umsync");
	if (method != ASYNC)
		return;
	if (*handle)
		check(umsync_wait(handle), "umsync_wait");
	start = now_ns();
	cpu = cpu_ms();
	check(umsync_begin(field, 0, handle), "umsync_begin");
	t->begin = (double)(now_ns() - start) * 1e-6;
	t->begin_cpu = cpu_ms() - cpu;
}

/* Computes, and passes through the field, as a stencil does: stores to each of its pages. */
static void compute(const struct options *o, char *field, unsigned cycle)
{
	for (size_t at = 0; at < o->size; at += o->seg) {
		for (size_t page = at; page < at + o->seg && page < o->size; page += 4 * KIB)
			field[page + cycle]++;
		spend_ns((uint64_t)o->computing * 1000000 / (o->size / o->seg));
	}
}

static struct took run(const struct options *o, char *field, enum method method)
{
	struct umsync_handle *handle = NULL;
	struct took t = { 0 };
	uint64_t start = now_ns();
	double cpu = cpu_ms();

	for (unsigned cycle = 0; cycle < o->cycles; cycle++) {
		compute(o, field, cycle);
		if (cycle % EACH == EACH - 1)
			output(field, method, &handle, &t);
	}
	t.cycle = (double)(now_ns() - start) * 1e-6 / o->cycles;
	t.cycle_cpu = (cpu_ms() - cpu) / o->cycles;
	if (handle)
		check(umsync_wait(&handle), "umsync_wait");
	check(umsync(field, 0), "umsync");
	return t;
}

static void measure(const struct options *o)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *field;

	attr.seg_size = o->seg;
	attr.flags = UMMAP_CREATE;
	check(ummap_open(o->uri, o->size, 0, PROT_READ | PROT_WRITE, &attr, &field), "ummap_open");
	run(o, field, SYNC);
	printf("method,turn,cycle_ms,cycle_cpu_ms,begin_ms,begin_cpu_ms\n");
	for (unsigned turn = 0; turn < o->reps; turn++) {
		for (enum method m = NONE; m < METHODS; m++) {
			struct took t = run(o, field, m);

			printf("%s,%u,%.2f,%.2f,%.2f,%.2f\n", names[m], turn, t.cycle,
			       t.cycle_cpu, t.begin, t.begin_cpu);
			fflush(stdout);
		}
	}
	check(umunmap(field, 0), "umunmap");
}

int main(int argc, char **argv)
{
	struct options o = { "posix:commit.data", GIB, 2 * MIB, 400, 10, 3 };
	static const struct option list[] = {
		{ "uri", required_argument, NULL, 'u' }, { "size", required_argument, NULL, 's' },
		{ "seg", required_argument, NULL, 'g' },
		{ "computing", required_argument, NULL, 'c' },
		{ "cycles", required_argument, NULL, 'n' },
		{ "reps", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 }
	};

	for (int c; (c = getopt_long(argc, argv, "", list, NULL)) != -1;) {
		switch (c) {
		case 'u': o.uri = optarg; break;
		case 's': o.size = parse_size("--size", optarg); break;
		case 'g': o.seg = parse_size("--seg", optarg); break;
		case 'c': o.computing = parse_count("--computing", optarg, 100000); break;
		case 'n': o.cycles = parse_count("--cycles", optarg, 10000); break;
		case 'r': o.reps = parse_count("--reps", optarg, 1000); break;
		case 'h': fputs(help, stdout); return 0;
		default: return 2;
		}
	}
	measure(&o);
	return 0;
}
