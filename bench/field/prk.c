/* SPDX-License-Identifier: BSD-3-Clause */
/* The time is that of the slowest rank, from the end of the first iteration, which warms up, to the
 * end of the last one, with all checkpoints. */
#include "prk.h"

#include "kit/common.h"

static uint64_t started;

static void parse_options(struct prk *k, int argc, char **argv, const char *help)
{
	static const struct option known[] = {
		ALLOC_OPTIONS, ALLOC_PART, { "dir", 1, 0, 'd' }, { "sync", 1, 0, 's' },
		{ "tile", 1, 0, 't' },
		{ "json", 1, 0, 'j' }, { "help", 0, 0, 'h' }, { 0, 0, 0, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'd': k->dir = optarg; break;
		case 's': k->sync = parse_count("sync", optarg, 1000000000); break;
		case 't': k->tile = parse_count("tile", optarg, 1 << 20); break;
		case 'j': k->json = optarg; break;
		case 'h': printf(help, alloc_names()); exit(0);
		default:
			if (!alloc_option(&k->alloc, c, optarg))
				die("see --help");
		}
	}
	if (argc - optind != 2)
		die("say how many ITERATIONS, and the ORDER; see --help");
	k->iterations = parse_count("ITERATIONS", argv[optind], 1000000000);
	k->order = parse_count("ORDER", argv[optind + 1], 1 << 24);
}

void prk_begin(struct prk *k, int argc, char **argv, const char *help)
{
	k->alloc.kind = alloc_find("memory");
	k->dir = ".";
	k->tile = 32;
	parse_options(k, argc, argv, help);
	job_begin(&k->alloc);
}

void prk_arrays(struct prk *k, size_t first, size_t second)
{
	if (k->alloc.kind->paged)
		job_limit(&k->alloc);
	k->array[0] = memory_scratch(&k->alloc, k->dir, first);
	k->array[1] = memory_scratch(&k->alloc, k->dir, second);
}

void prk_iterated(struct prk *k, unsigned iteration)
{
	uint64_t begun;

	if (k->sync && iteration && iteration % k->sync == 0) {
		begun = now_ns();
		memory_sync(k->array[0]);
		memory_sync(k->array[1]);
		k->synced_s += (double)(now_ns() - begun) * 1e-9;
	}
	if (!iteration)
		started = job_start();
	if (iteration == k->iterations) {
		k->seconds = job_seconds(started);
		k->synced_s = job_max(k->synced_s);
	}
}

void prk_end(struct prk *k, double work, const char *unit)
{
	double seconds = k->seconds / k->iterations, rate = 1e-6 * work / seconds;
	struct report r;

	if (!job.rank) {
		puts("Solution validates");
		printf("Rate (%s): %f  Avg time (s): %f  Checkpoints (s): %f\n", unit, rate,
		       seconds, k->synced_s);
		r = report_begin(k->json, k->name);
		report_text(&r, "alloc", k->alloc.kind->name);
		report_number(&r, "tasks", job.ranks);
		report_number(&r, "order", k->order);
		report_number(&r, "iterations", k->iterations);
		report_number(&r, "sync", k->sync);
		report_number(&r, "seg", (double)k->alloc.seg);
		report_number(&r, "budget", (double)k->alloc.budget);
		report_number(&r, "memory", (double)(k->array[0]->size + k->array[1]->size));
		report_number(&r, "seconds", k->seconds);
		report_number(&r, "checkpoint_s", k->synced_s);
		report_number(&r, "rate", rate);
		report_end(&r);
	}
	memory_close(k->array[0]);
	memory_close(k->array[1]);
	job_end();
	exit(0);
}
