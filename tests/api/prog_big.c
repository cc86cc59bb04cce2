/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Large numbers: a mapping of 1 TiB takes memory for its used part only, and a process may use more
 * segments than it may have VMAs (vm.max_map_count).
 */
#include "common.h"

#define SLACK (16 * MIB)  /* bytes for headers of used segments, tables, and the program itself */

static size_t grown(size_t from, size_t to)
{
	return to > from ? to - from : 0;
}

static void check_time(double start, double limit, const char *what)
{
	double took = now() - start;

	printf("%s: %.3f ms\n", what, took * 1e3);
	check(SANITIZED || took < limit, "%s took %.3f s", what, took);
}

static void check_memory(size_t before, size_t now, size_t limit, const char *what)
{
	printf("%s: %zu KiB\n", what, grown(before, now) / KIB);
	check(SANITIZED || grown(before, now) <= limit, "%s: %zu KiB", what,
	      grown(before, now) / KIB);
}

#define TOUCHES 2000
#ifdef __SANITIZE_THREAD__
#define BIG (256 * GIB)  /* TSan leaves 1.5 TiB of addresses, which are not contiguous */
#else
#define BIG (1024 * GIB)
#endif
#define BIG_SEG (64 * KIB)
#define BIG_BUDGET (64 * MIB)

/* Returns the number of a random segment; all are different. */
static size_t big_segment(uint64_t i)
{
	return (i * 0x9e3779b1u + 12345) % (BIG / BIG_SEG);
}

static void map_a_tebibyte(void *unused)
{
	const size_t size = BIG;
	int fd = temp_file(size);
	size_t rss;
	uint64_t before;
	double start;
	uint64_t *words;

	(void)unused;
	set_budget(BIG_BUDGET);
	check(umunmap(map_file(fd, MIB, 0, READ_WRITE, 0), 0) == 0);  /* start the library */
	rss = status_bytes("VmRSS");
	start = now();
	words = (uint64_t *)map_file(fd, size, BIG_SEG, READ_WRITE, 0);
	check_time(start, 0.05, "ummap of 1 TiB");
	check_memory(rss, status_bytes("VmRSS"), 4 * MIB, "memory for it");

	reset_peak();
	start = now();
	for (uint64_t i = 0; i < TOUCHES; i++)
		words[(big_segment(i) * BIG_SEG + i % 8192 * 8) / 8] = i + 1;
	check_time(start, 60, "2000 stores");
	start = now();
	check(umsync(words, 0) == 0);
	check_time(start, 30, "umsync");
	for (uint64_t i = 0; i < TOUCHES; i++)
		check(words[(big_segment(i) * BIG_SEG + i % 8192 * 8) / 8] == i + 1);
	check_memory(rss, status_bytes("VmHWM"), BIG_BUDGET + BIG_SEG + SLACK,
		     "peak of stores and loads");
	before = stat_of(words).write_requests;
	start = now();
	check(umsync(words, 1) == 0);
	check_time(start, 30, "umsync of nothing");
	check(stat_of(words).write_requests == before, "nothing is left to write");
	check(stat_of(words).resident_bytes == 0);
	start = now();
	check(umunmap(words, 1) == 0);
	check_time(start, 5, "umunmap");
	for (uint64_t i = 0; i < TOUCHES; i++) {
		uint64_t value;

		check(pread(fd, &value, 8, big_segment(i) * BIG_SEG + i % 8192 * 8) == 8 &&
		      value == i + 1);
	}
	check(file_size(fd) == size);
}

/* ---- Every second segment of 4 KiB, of which each could take two VMAs ---- */

#define SMALL_SEG (4 * KIB)
#define SMALL_TOUCHES ((size_t)40000)

static int max_map_count(void)
{
	FILE *f = fopen("/proc/sys/vm/max_map_count", "re");
	int n = 0;

	check(f && fscanf(f, "%d", &n) == 1);
	fclose(f);
	return n;
}

static void touch_alternately(void *store)
{
	const size_t size = 2 * SMALL_TOUCHES * SMALL_SEG;
	int fd = temp_file(size), limit = max_map_count(), max_vmas = 0;
	double start = now();
	uint8_t *m;

	set_budget(GIB);
	m = map_file(fd, size, SMALL_SEG, READ_WRITE, 0);
	check(umadvise(m, size, UMMAP_ADV_RANDOM) == 0);
	for (size_t i = 0; i < SMALL_TOUCHES; i++) {
		volatile uint8_t *at = m + i * 2 * SMALL_SEG + i % SMALL_SEG;

		if (store)
			*at = pattern(i, 1);
		else
			check(*at == 0);
		if (i % 2000 == 1999) {
			int vmas = count_maps();

			max_vmas = vmas > max_vmas ? vmas : max_vmas;
			check(vmas < limit, "%d of %d", vmas, limit);
		}
	}
	printf("%s: %d VMAs of %d, %" PRIu64 " evictions, %.1f s\n", store ? "stores" : "loads",
	       max_vmas, limit, stat_of(m).evictions, now() - start);
	for (size_t i = 0; store && i < SMALL_TOUCHES; i += 7)
		check(m[i * 2 * SMALL_SEG + i % SMALL_SEG] == pattern(i, 1), "%zu", i);
	start = now();
	/* The process itself still gets memory. */
	check(mmap(NULL, MIB, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
	check(umsync(m, 1) == 0);
	check_time(start, 60, "umsync of them");
	check(count_maps() < 1000, "VMAs are freed with their segments: %d", count_maps());
	check(umunmap(m, 1) == 0);
	for (size_t i = 0; store && i < SMALL_TOUCHES; i += 97) {
		uint8_t byte;

		check(pread(fd, &byte, 1, i * 2 * SMALL_SEG + i % SMALL_SEG) == 1 &&
		      byte == pattern(i, 1));
	}
}

int main(void)
{
	static int store;

	setvbuf(stdout, NULL, _IOLBF, 0);
	check_exits(run_child(map_a_tebibyte, NULL), 0);
	check_exits(run_child(touch_alternately, NULL), 0);
	check_exits(run_child(touch_alternately, &store), 0);
	return 0;
}
