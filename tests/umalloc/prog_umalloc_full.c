/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_umalloc_full - a heap of 8 budgets keeps its contents. A store that refuses writes keeps a
 * heap from growing, loses no contents, and is asked again.
 */
#include "heap.h"

#define BUDGET (16 * MIB)

static void check_parts(char **part, size_t parts, size_t size, uint64_t seed)
{
	for (size_t i = 0; i < parts; i++)
		check_bytes(part[i], size, i * size, seed);
}

static void eight_budgets(void *arg)
{
	enum { PARTS = 2048 };
	static char *part[PARTS];
	size_t size = 8 * BUDGET / PARTS;
	umalloc_heap *heap = (set_budget(BUDGET), make_heap(16 * BUDGET));

	(void)arg;
	for (size_t i = 0; i < PARTS; i++) {
		part[i] = umalloc(heap, size);
		check(part[i], "%s", umalloc_errormsg());
		fill(part[i], size, i * size, 1);
	}
	check_parts(part, PARTS, size, 1);
	check(stat_of(NULL).over_budget_peak == 0, "%" PRIu64, stat_of(NULL).over_budget_peak);
	umalloc_destroy(heap);
}

/* Makes a heap whose writes fail: `how` has keys of the filter error+. */
static umalloc_heap *make_failing_heap(const char *how)
{
	char path[320], uri[500];
	umalloc_heap *heap;

	set_budget(BUDGET);
	close(temp_named("failing", 0, path));
	snprintf(uri, sizeof(uri), "error+posix:%s?error.op=write&error.errno=ENOSPC&%s", path,
		 how);
	heap = umalloc_create(uri, GIB, NULL);
	check(heap, "%s", umalloc_errormsg());
	return heap;
}

/* Allocates and fills parts until the heap refuses one. Returns their number, at most `most`. */
static size_t grow(umalloc_heap *heap, char **part, size_t most, size_t size)
{
	for (size_t i = 0; i < most; i++) {
		part[i] = umalloc(heap, size);
		if (!part[i]) {
			check(errno == ENOSPC, "%s", umalloc_errormsg());
			return i;
		}
		fill(part[i], size, i * size, 2);
	}
	return most;
}

/* A program that asks again and again must not wait each time until all writes are refused. */
static void check_refusals(umalloc_heap *heap)
{
	uint64_t before = stat_of(NULL).write_errors;

	for (int i = 0; i < 1000; i++)
		check_null(umalloc(heap, 100 * MIB), ENOSPC);
	check(stat_of(NULL).write_errors - before < 64000, "%" PRIu64,
	      stat_of(NULL).write_errors - before);
}

static void stops_growing(void *arg)
{
	static char *part[400];
	umalloc_heap *heap = make_failing_heap("error.nth=20&error.times=always");
	size_t n = grow(heap, part, 400, 2 * MIB);

	(void)arg;
	check(n > 2 && n < 400, "%zu", n);
	check_parts(part, n, 2 * MIB, 2);
	check_null(umalloc(heap, 100 * MIB), ENOSPC);
	check_refusals(heap);
	/* The heap can be used, and its parts freed. */
	for (size_t i = 0; i < n; i++)
		ufree(heap, part[i]);
	part[0] = umalloc(heap, MIB);
	check(part[0], "%s", umalloc_errormsg());
	umalloc_destroy(heap);
}

static void goes_on(void *arg)
{
	static char *part[400];
	umalloc_heap *heap = make_failing_heap("error.nth=20&error.times=30");
	size_t n = 0;

	(void)arg;
	/* A store that has just refused is not asked. */
	for (int tries = 0; tries < 3000 && n < 100; tries++) {
		if (grow(heap, part + n, 1, 2 * MIB))
			n++;
		else
			pause_ms(10);
	}
	check(n == 100, "%zu: %s", n, umalloc_errormsg());
	for (size_t i = 0; i < n; i++)
		check_bytes(part[i], 2 * MIB, 0, 2);
	umalloc_destroy(heap);
}

int main(void)
{
	check_exits(run_child(eight_budgets, NULL), 0);
	check_exits(run_child(stops_growing, NULL), 0);
	check_exits(run_child(goes_on, NULL), 0);
	return 0;
}
