/* SPDX-License-Identifier: BSD-3-Clause */
#include "kit/common.h"

#include <limits.h>

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static uint64_t processor_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void spend_ns(uint64_t ns)
{
	static volatile uint64_t sink;
	uint64_t start = processor_ns(), state = 1;

	while (processor_ns() - start < ns)
		for (int i = 0; i < 1000; i++)
			sink += next_random(&state);
}

void remove_all(const char *path)
{
	char command[PATH_MAX + 16];

	snprintf(command, sizeof(command), "rm -rf -- '%s'", path);
	if (system(command))
		die("%s cannot be removed", path);
}

size_t parse_size(const char *option, const char *text)
{
	const char units[] = "KMGTkmgt";
	char *end;
	unsigned long long value;
	const char *unit;
	unsigned shift = 0;

	errno = 0;
	value = strtoull(text, &end, 10);
	unit = *end ? strchr(units, *end) : NULL;
	if (unit) {
		shift = 10 * (unsigned)((unit - units) % 4 + 1);
		end++;
	}
	if (errno || *end || text[0] < '0' || text[0] > '9' || !value || value > SIZE_MAX >> shift)
		die("--%s: '%s' is no size (bytes, or with K, M, G or T)", option, text);
	return (size_t)value << shift;
}

unsigned parse_count(const char *option, const char *text, unsigned max)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end || text[0] < '0' || text[0] > '9' || !value || value > max)
		die("--%s: '%s' is no number from 1 to %u", option, text, max);
	return (unsigned)value;
}

unsigned parse_sizes(const char *option, const char *text, size_t *sizes, unsigned max)
{
	char *copy = strdup(text), *rest = copy, *item;
	unsigned n = 0;

	while ((item = strsep(&rest, ","))) {
		if (n == max)
			die("--%s: more than %u entries", option, max);
		sizes[n++] = parse_size(option, item);
	}
	free(copy);
	return n;
}

void shuffle(uint32_t *index, size_t n, uint64_t seed)
{
	uint64_t state = seed * 2 + 1;
	uint32_t held;
	size_t i, j;

	for (i = 0; i < 8; i++)
		next_random(&state);
	for (i = n; i > 1; i--) {
		j = next_random(&state) % i;
		held = index[i - 1];
		index[i - 1] = index[j];
		index[j] = held;
	}
}

static int compare_ns(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

struct figure summarize(uint64_t *samples, size_t n, uint64_t cost)
{
	struct figure f = { .n = n };

	if (!n)
		return f;
	qsort(samples, n, sizeof(*samples), compare_ns);
	f.median = samples[(n - 1) / 2] > cost ? samples[(n - 1) / 2] - cost : 0;
	f.p99 = samples[(n - 1) * 99 / 100] > cost ? samples[(n - 1) * 99 / 100] - cost : 0;
	return f;
}

uint64_t clock_cost(void)
{
	uint64_t samples[1001], start;
	size_t i;

	for (i = 0; i < 1001; i++) {
		start = now_ns();
		samples[i] = now_ns() - start;
	}
	return summarize(samples, 1001, 0).median;
}

char *huge_memory(size_t len)
{
	size_t padded = (len + 2 * HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	char *p = mmap(NULL, padded, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		die("no memory for %zu bytes", len);
	p = (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
	/* Up to the end of the last huge page, because a part of one would have small pages. */
	madvise(p, (len + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1), MADV_HUGEPAGE);
	memset(p, 0x5a, len);
	return p;
}

double median(double *values, unsigned n)
{
	for (unsigned i = 1; i < n; i++) {
		for (unsigned k = i; k > 0 && values[k] < values[k - 1]; k--) {
			double held = values[k];

			values[k] = values[k - 1];
			values[k - 1] = held;
		}
	}
	return values[n / 2];
}
