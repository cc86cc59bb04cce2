/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The overhead of the library: one thread reads a byte of each page of a mapping of the driver
 * null, which is much larger than its budget, in order. Compared, alternately, with the work of the
 * kernel for that: the signal, the accesses, and the system calls that map and unmap as many
 * frames.
 */

#include "kit/raw.h"
#include "kit/turns.h"
#include "ummap.h"

static const char help[] =
"usage: null [OPTION ...]\n"
"Reads a byte of each page of a mapping that has no store; CSV on stdout.\n"
"  --size SIZE      16G\n"
"  --budget BUDGET  256M\n"
"  --seg SIZE       2M\n"
"  --reps N         pairs (5)\n"
"  --help\n";

static void touch(const char *at, size_t len)
{
	for (size_t i = 0; i < len; i += 4 * KIB)
		*(const volatile char *)(at + i);
}

static double rate(const struct options *o, uint64_t ns)
{
	return (double)o->size / (double)GIB / ((double)ns * 1e-9);
}

static double on_library(const struct options *o, const char *keys)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	uint64_t start;
	char uri[64];
	void *addr = NULL;

	attr.seg_size = o->seg;
	snprintf(uri, sizeof(uri), "null:%zu%s", o->size, keys);
	if (ummap_open(uri, o->size, 0, PROT_READ, &attr, &addr))
		die("ummap_open: %s", umerrormsg());
	/* The pool gets its memory before the time is taken. */
	touch(addr, 2 * o->budget);
	start = now_ns();
	touch(addr, o->size);
	start = now_ns() - start;
	if (umunmap(addr, 0))
		die("umunmap: %s", umerrormsg());
	return rate(o, start);
}

static double on_kernel(const struct options *o)
{
	struct sigaction action = { .sa_sigaction = step_over, .sa_flags = SA_SIGINFO }, before;
	size_t frames = o->budget / o->seg, turns = o->size / o->seg;
	char *pool = huge_memory(o->budget), *view = reserve(NULL, o->size + HUGE_PAGE),
	     *start_of = view;
	uint64_t start;

	view = (char *)(((uintptr_t)view + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
	sigaction(SIGSEGV, &action, &before);
	start = now_ns();
	for (size_t i = 0; i < turns + frames; i++) {
		char *home = pool + i % frames * o->seg;

		if (i >= frames)
			raw_take_back(view + (i - frames) * o->seg, home, o->seg);
		if (i >= turns)
			continue;
		load_word(view + i * o->seg);
		if (i >= frames)
			must(!mprotect(home, o->seg, PROT_READ | PROT_WRITE), "mprotect");
		must(!mprotect(home, o->seg, PROT_READ), "mprotect");
		move(home, view + i * o->seg, o->seg);
		touch(view + i * o->seg, o->seg);
	}
	start = now_ns() - start;
	sigaction(SIGSEGV, &before, NULL);
	munmap(pool, o->budget);
	munmap(start_of, o->size + HUGE_PAGE);
	return rate(o, start);
}

static void check_budget(const struct options *o)
{
	if (o->budget < 8 * o->seg || o->budget % o->seg || o->size < 4 * o->budget)
		die("--budget must be a multiple of --seg, of 8 at least, and a quarter of --size "
		    "at most");
}

int main(int argc, char **argv)
{
	static const char *const keys[] = { "?fill=no", "" }, *const names[] = { "null?fill=no",
										 "null" };
	struct options o = { .size = 16 * GIB, .budget = 256 * MIB, .seg = 2 * MIB, .reps = 5 };
	char bytes[32];

	parse_options(&o, argc, argv, help);
	check_budget(&o);
	snprintf(bytes, sizeof(bytes), "%zu", o.budget);
	setenv("UMMAP_MEM_LIMIT", bytes, 1);
	puts("rep,uri,ummap_gib_per_s,raw_gib_per_s,ratio");
	for (unsigned rep = 1; rep <= o.reps; rep++) {
		for (size_t k = 0; k < 2; k++) {
			double ours = on_library(&o, keys[k]), raw = on_kernel(&o);

			printf("%u,%s,%.2f,%.2f,%.3f\n", rep, names[k], ours, raw, ours / raw);
			fflush(stdout);
		}
	}
	return 0;
}
