/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions of all benchmarks: clocks, sizes on the command line, random order, medians, huge
 * pages. */
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

/* Prints the message on standard error and ends the program. */
__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Uses this much time of a processor. Time of other threads does not count. */
void spend_ns(uint64_t ns);

/* Removes a file, or a folder with its contents, if it exists. */
void remove_all(const char *path);

/* Parses "64K", "2M", "3G", "1T" (or lower case) or a number of bytes; the value must exceed 0. */
size_t parse_size(const char *option, const char *text);

unsigned parse_count(const char *option, const char *text, unsigned max);

/* Parses a list of sizes with commas. Returns their number. */
unsigned parse_sizes(const char *option, const char *text, size_t *sizes, unsigned max);

/* Sorts the values and returns their median. */
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

/* Puts n indices into an order that only the seed determines. */
void shuffle(uint32_t *index, size_t n, uint64_t seed);

/* Summary of n samples in nanoseconds. */
struct figure {
	size_t n;
	uint64_t median, p99;
};

/* Sorts and summarizes samples. cost: time of a clock reading, which is subtracted. */
struct figure summarize(uint64_t *samples, size_t n, uint64_t cost);

/* Returns the time that a clock reading adds to a sample. */
uint64_t clock_cost(void);

/* Returns populated memory that begins at a huge page and is advised to use huge pages. */
char *huge_memory(size_t len);

#endif
