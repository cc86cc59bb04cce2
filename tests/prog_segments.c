/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_segments - a million segments of 4 KiB, all in memory at once, which is more than the kernel has mappings for.
 * Each holds its number, and all are visited again.
 */
#include "common.h"

#define SEG (4 * KIB)
#define SEGS ((size_t)1 << 20)
#define THREADS 2
#define NEEDED 6  /* GiB of memory */

static uint8_t *m;

struct part {
	size_t first, step;   /* every step-th from first on */
	bool store;
};

static void *visit(void *arg)
{
	struct part *p = arg;

	for (size_t i = p->first; i < SEGS; i += p->step) {
		volatile uint64_t *word = (uint64_t *)(m + (i * 7919 % SEGS) * SEG);
		uint64_t value = i * 7919 % SEGS + 1;

		if (p->store)
			*word = value;
		check(*word == value, "segment %zu holds %" PRIu64, i * 7919 % SEGS, *word);
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
	set_budget(SEGS * SEG + GIB);
	check(ummap(SEGS * SEG, SEG, READ_WRITE, fd, 0, -1, 0, UMMAP_PTYPE_FIFO, &addr) == 0);
	check(umadvise(addr, SEGS * SEG, UMMAP_ADV_RANDOM) == 0);
	m = addr;
	maps = count_maps();
	visit_all(true);
	check(stat_of(m).resident_bytes == SEGS * SEG, "%" PRIu64, stat_of(m).resident_bytes);
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

int main(void)
{
	if (available() < NEEDED * GIB) {
		printf("%d GiB of memory are not available\n", NEEDED);
		return 77;
	}
	fill_memory(temp_file(SEGS * SEG));
	return 0;
}
