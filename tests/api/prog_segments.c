/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 2^18 segments of 4 KiB, or 2^20 with `prog_segments 20`, are in memory at the same time: more
 * than a process may have VMAs by default. Each segment holds its number, and all are accessed
 * again.
 */
#include "common.h"
#include "uffd.h"

#define SEG (4 * KIB)
#define THREADS 2

static uint8_t *m;
static size_t segs = (size_t)1 << 18;

struct part {
	size_t first, step;   /* the thread accesses each step-th segment, beginning with first */
	bool store;
};

static void *visit(void *arg)
{
	struct part *p = arg;

	for (size_t i = p->first; i < segs; i += p->step) {
		volatile uint64_t *word = (uint64_t *)(m + (i * 7919 % segs) * SEG);
		uint64_t value = i * 7919 % segs + 1;

		if (p->store)
			*word = value;
		check(*word == value, "segment %zu holds %" PRIu64, i * 7919 % segs, *word);
	}
	return NULL;
}

static void visit_all(bool store)
{
	struct part parts[THREADS];
	pthread_t threads[THREADS];

	for (unsigned t = 0; t < THREADS; t++) {
		parts[t] = (struct part){ t, THREADS, store };
		check(pthread_create(&threads[t], NULL, visit, &parts[t]) == 0);
	}
	for (unsigned t = 0; t < THREADS; t++)
		check(pthread_join(threads[t], NULL) == 0);
}

static void fill_memory(int fd)
{
	void *addr;
	int maps;

	set_env("UMMAP_ENGINE", "uffd");
	set_budget(segs * SEG + GIB);
	check(ummap(segs * SEG, SEG, READ_WRITE, fd, 0, -1, 0, UMMAP_PTYPE_FIFO, &addr) == 0);
	check(umadvise(addr, segs * SEG, UMMAP_ADV_RANDOM) == 0);
	m = addr;
	maps = count_maps();
	visit_all(true);
	check(stat_of(m).resident_bytes == segs * SEG, "%" PRIu64, stat_of(m).resident_bytes);
	check(count_maps() - maps < 1000, "%d", count_maps() - maps);
	visit_all(false);
	check(stat_of(m).evictions == 0);
	check(umunmap(m, 0) == 0);
}

static size_t available(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];
	size_t kib = 0;

	while (f && fgets(line, sizeof(line), f) && sscanf(line, "MemAvailable: %zu", &kib) != 1)
		;
	if (f)
		fclose(f);
	return kib * KIB;
}

int main(int argc, char **argv)
{
	size_t needed;

	if (argc > 1)
		segs = (size_t)1 << strtoul(argv[1], NULL, 10);
	needed = segs * SEG + 2 * GIB;
	if (!has_uffd()) {
		puts(NO_UFFD);
		return 77;
	}
	if (available() < needed) {
		printf("%zu GiB of memory are not available\n", needed / GIB);
		return 77;
	}
	fill_memory(temp_file(segs * SEG));
	return 0;
}
