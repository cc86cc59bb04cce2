/* SPDX-License-Identifier: BSD-3-Clause */
/* What the benchmarks share: clocks, sizes on the command line, random order, medians, huge pages. */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define HUGE_PAGE (2 * MIB)

/* Says why on stderr and ends the program. */
__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* So much of a processor's time, however many share it. */
void spend_ns(uint64_t ns);

/* A file, or a folder with all that is in it, if it is there. */
void remove_all(const char *path);

/* "64K", "2M", "3G", "1T", in small letters too, or plain bytes; greater than 0. */
size_t parse_size(const char *option, const char *text);

unsigned parse_count(const char *option, const char *text, unsigned max);

/* A list of sizes with commas between them; returns how many. */
unsigned parse_sizes(const char *option, const char *text, size_t *sizes, unsigned max);

/* Sorts them. */
double median(double *values, unsigned n);

/* xorshift64*; *state must not be 0. */
static inline uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * 0x2545F4914F6CDD1Dull;
}

/* Puts n indices in an order that seed alone decides. */
void shuffle(uint32_t *index, size_t n, uint64_t seed);

/* What n samples of nanoseconds come to. */
struct figure {
	size_t n;
	uint64_t median, p99;
};

/* Sorts the samples; `cost` is what reading the clock adds to each. */
struct figure summarise(uint64_t *samples, size_t n, uint64_t cost);

/* What reading the clock adds to a sample. */
uint64_t clock_cost(void);

/* Memory that starts on a huge page, is asked to be made of them, and is all there. Never unmapped. */
char *huge_memory(size_t len);

#endif
