/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory that a process holds. Its peak stays within the budget plus a frame for each thread
 * that loads a segment, for mappings of any segment size. The mapping that is used less gives up
 * its memory first. The budget of a single mapping holds. The minimum budget suffices for an
 * instruction that needs four segments.
 */
#include "common.h"

#define BUDGET (32 * MIB)
#define SLACK (6 * MIB)  /* bytes for the program, headers, tables and stacks */
#define BUFFERS (4 * MIB) /* on huge pages: one for short and one for long requests */
#define WORKERS 4        /* threads of the library that load segments */
#define MAPPINGS 3
#define SIZE (96 * MIB)

static const size_t seg_sizes[MAPPINGS] = { 4 * KIB, 64 * KIB, 2 * MIB };
static const int visits[MAPPINGS] = { 1000, 60, 6 };  /* per round: some MiB of each mapping */

struct user {
	uint8_t *maps[MAPPINGS];
	uint64_t random;
	bool store;
};

/* Accesses each mapping in turn, at some random places. */
static void *visit(void *arg)
{
	struct user *u = arg;

	for (unsigned turn = 0; turn < by_time(9, 30); turn++) {
		uint8_t *m = u->maps[turn % MAPPINGS];

		for (int i = 0; i < visits[turn % MAPPINGS]; i++) {
			uint64_t at = next_random(&u->random) % SIZE;

			if (u->store && i % 4 == 0)
				__atomic_store_n(m + at, 1, __ATOMIC_RELAXED);
			else
				check(__atomic_load_n(m + at, __ATOMIC_RELAXED) <= 1);
		}
	}
	return NULL;
}

struct load {
	int threads;
	bool store;
};

/* Returns how many segments may have memory twice: userfaultfd may copy a segment that moves. */
static int movers(int threads)
{
	const char *engine = getenv("UMMAP_ENGINE");

	return threads + (engine && strcmp(engine, "uffd") == 0 ? WORKERS : 0);
}

/* Prints how long each test took. */
static void in_child(void (*body)(void *), void *arg, const char *name)
{
	double start = now();

	check_exits(run_child(body, arg), 0);
	printf("%s: %.1f s\n", name, now() - start);
}

static void several_mappings(void *arg)
{
	const struct load *l = arg;
	struct user users[8];
	pthread_t threads[8];
	uint8_t *maps[MAPPINGS];
	size_t rss, peak, limit = BUDGET + movers(l->threads) * 2 * MIB + BUFFERS + SLACK;
	struct umstat st;

	set_budget(BUDGET);
	check(umunmap(map_file(temp_file(MIB), MIB, 0, READ_WRITE, 0), 0) == 0);
	rss = status_bytes("VmRSS");
	reset_peak();
	for (int i = 0; i < MAPPINGS; i++)
		maps[i] = map_file(temp_file(SIZE), SIZE, seg_sizes[i], READ_WRITE, 0);
	for (int t = 0; t < l->threads; t++) {
		memcpy(users[t].maps, maps, sizeof(maps));
		users[t].random = t, users[t].store = l->store;
		check(pthread_create(&threads[t], NULL, visit, &users[t]) == 0);
	}
	for (int t = 0; t < l->threads; t++)
		check(pthread_join(threads[t], NULL) == 0);
	peak = status_bytes("VmHWM") - rss;
	st = stat_of(NULL);
	printf("%d threads %s: peak %zu KiB, limit %zu, over the budget by %" PRIu64
	       ", held %" PRIu64 "\n",
	       l->threads, l->store ? "store" : "load", peak / KIB, limit / KIB,
	       st.over_budget_peak / KIB, st.held_bytes / KIB);
	check(SANITIZED || peak <= limit, "%zu of %zu KiB", peak / KIB, limit / KIB);
	check(st.budget_bytes <= BUDGET && st.mappings == MAPPINGS);
	check(st.over_budget_peak <= (uint64_t)l->threads * 2 * MIB, "%" PRIu64,
	      st.over_budget_peak);
	check(st.resident_bytes + st.inactive_bytes <= st.held_bytes);
	for (int i = 0; i < MAPPINGS; i++)
		check(umunmap(maps[i], l->store) == 0);
	check(stat_of(NULL).resident_bytes == 0 && stat_of(NULL).inactive_bytes == 0);
}

static void use_all(const uint8_t *m, size_t from, size_t to)
{
	for (size_t at = from; at < to; at += 4 * KIB)
		check(*(const volatile uint8_t *)(m + at) == 0);
}

/* The mapping that was used before makes room for the one that is used now, in both directions. */
static void colder_gives_first(void *unused)
{
	uint8_t *maps[2];
	uint64_t left;

	(void)unused;
	set_budget(BUDGET);
	for (int i = 0; i < 2; i++)
		maps[i] = map_file(temp_file(SIZE), SIZE, i ? 128 * KIB : 256 * KIB, READ_WRITE, 0);
	for (int turn = 0; turn < 4; turn++) {
		uint8_t *hot = maps[turn % 2], *cold = maps[(turn + 1) % 2];

		use_all(hot, 0, SIZE);
		use_all(cold, 0, SIZE);
		use_all(cold, 0, SIZE);
		left = stat_of(hot).resident_bytes;
		check(left <= BUDGET / 8, "%" PRIu64 " KiB are left", left / KIB);
	}
	for (int i = 0; i < 2; i++)
		check(umunmap(maps[i], 0) == 0);
}

static void own_budget(void *unused)
{
	const size_t seg = 256 * KIB, own = 4 * MIB;
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char path[320], uri[512];
	size_t rss;
	void *addr;

	(void)unused;
	set_budget(BUDGET);
	close(temp_named("own", SIZE, path));
	snprintf(uri, sizeof(uri), "posix:%s", path);
	check(umunmap(map_file(temp_file(MIB), MIB, 0, READ_WRITE, 0), 0) == 0);
	rss = status_bytes("VmRSS");
	reset_peak();
	attr.seg_size = seg;
	attr.budget = own;
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0);
	check(stat_of(addr).budget_bytes == own, "%" PRIu64, stat_of(addr).budget_bytes);
	for (size_t at = 0; at < SIZE; at += seg) {
		struct umstat st;

		use_all(addr, at, at + seg);
		if (at % (4 * seg) == 0)
			*((uint8_t *)addr + at) = 0;
		st = stat_of(addr);
		check(st.resident_bytes <= own + seg, "%" PRIu64, st.resident_bytes);
		check(st.resident_bytes + st.inactive_bytes <= own + 2 * seg,
		      "%" PRIu64 " + %" PRIu64, st.resident_bytes, st.inactive_bytes);
	}
	check(SANITIZED || status_bytes("VmHWM") - rss <= own + 2 * seg + SLACK, "%zu KiB",
	      (status_bytes("VmHWM") - rss) / KIB);
	check(umunmap(addr, 1) == 0);
}

#define FEW_FRAMES_SEG (16 * KIB)
#define FEW_FRAMES 12 /* budget in frames, fewer than a huge page has */
#define LOADING_THREADS 8

static void *load_anywhere(void *m)
{
	uint64_t random = (uintptr_t)&random;
	double end = now() + 1;

	while (now() < end) {
		for (int i = 0; i < 100; i++)
			check(((volatile uint8_t *)m)[next_random(&random) % SIZE] == 0);
	}
	return NULL;
}

/* If other threads use all frames, a thread waits for one. If all frames are pinned, the process
 * exceeds its budget by single frames, not by huge pages. */
static void over_by_frames(void *unused)
{
	pthread_t threads[LOADING_THREADS];
	uint64_t over;
	uint8_t *m;

	(void)unused;
	set_budget(FEW_FRAMES * FEW_FRAMES_SEG);
	m = map_file(temp_file(SIZE), SIZE, FEW_FRAMES_SEG, PROT_READ, 0);
	for (int t = 0; t < LOADING_THREADS; t++)
		check(pthread_create(&threads[t], NULL, load_anywhere, m) == 0);
	for (int t = 0; t < LOADING_THREADS; t++)
		check(pthread_join(threads[t], NULL) == 0);
	over = stat_of(NULL).over_budget_peak;
	check(over == 0, "%" PRIu64, over);
	check(umpin(m, FEW_FRAMES * FEW_FRAMES_SEG, PROT_READ) == 0);
	use_all(m, FEW_FRAMES * FEW_FRAMES_SEG, 2 * FEW_FRAMES * FEW_FRAMES_SEG);
	over = stat_of(NULL).over_budget_peak;
	printf("over by frames: %" PRIu64 " KiB\n", over / KIB);
	/* Recent segments stay, because an instruction may need several. */
	check(over > 0 && over <= FEW_FRAMES * FEW_FRAMES_SEG, "%" PRIu64, over);
	check(umunpin(m, FEW_FRAMES * FEW_FRAMES_SEG) == 0);
	check(umunmap(m, 0) == 0);
}

#define TWICE_THREADS 16
#define TWICE_SEG (16 * KIB)
#define TWICE_BUDGET (8 * MIB)

/* Segments that are evicted together have memory twice for a moment: at most 1/256 of the budget
 * for each thread. */
static void twice_by_threads(void *unused)
{
	const size_t twice = (TWICE_THREADS + WORKERS) * TWICE_BUDGET / 256,
		     heads = SIZE / TWICE_SEG * 32,
		     slack = 3 * MIB; /* with a huge page for the buffers of loads */
	pthread_t threads[TWICE_THREADS];
	size_t rss, peak;
	uint8_t *m;

	(void)unused;
	set_budget(TWICE_BUDGET);
	m = map_file(temp_file(SIZE), SIZE, TWICE_SEG, PROT_READ, 0);
	check(umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
	rss = status_bytes("VmRSS");
	reset_peak();
	for (int t = 0; t < TWICE_THREADS; t++)
		check(pthread_create(&threads[t], NULL, load_anywhere, m) == 0);
	for (int t = 0; t < TWICE_THREADS; t++)
		check(pthread_join(threads[t], NULL) == 0);
	peak = status_bytes("VmHWM") - rss;
	printf("twice by threads: %zu KiB beyond the budget\n", (peak - TWICE_BUDGET) / KIB);
	check(SANITIZED || peak <= TWICE_BUDGET + twice + heads + slack, "%zu KiB", peak / KIB);
	check(stat_of(NULL).over_budget_peak == 0);
	check(umunmap(m, 0) == 0);
}

#define SLOW_SEG (64 * KIB)
#define SLOW_FRAMES 4
#define SLOW_LOADS 10

static void *load_slowly(void *m)
{
	uint64_t random = (uintptr_t)&random;

	for (int i = 0; i < SLOW_LOADS; i++)
		check(((volatile uint8_t *)m)[next_random(&random) % SIZE] == 0);
	return NULL;
}

/* A thread that finds all frames in use by other threads waits for one, however slow the store is,
 * and no message blames the limit of VMAs. */
static void slow_storage(void *unused)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	pthread_t threads[LOADING_THREADS];
	char said[4096] = "";
	int log = temp_file(0), own = dup(STDERR_FILENO);
	void *m;

	(void)unused;
	set_budget(SLOW_FRAMES * SLOW_SEG);
	attr.seg_size = SLOW_SEG;
	check(ummap_open("error+null:128M?error.op=read&error.nth=9999&error.delay=20000", SIZE, 0,
			 PROT_READ, &attr, &m) == 0);
	check(umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
	check(dup2(log, STDERR_FILENO) >= 0);
	for (int t = 0; t < LOADING_THREADS; t++)
		check(pthread_create(&threads[t], NULL, load_slowly, m) == 0);
	for (int t = 0; t < LOADING_THREADS; t++)
		check(pthread_join(threads[t], NULL) == 0);
	/* The library logs such messages within a second. */
	pause_ms(1200);
	check(dup2(own, STDERR_FILENO) >= 0);
	check(stat_of(NULL).over_budget_peak == 0, "%" PRIu64, stat_of(NULL).over_budget_peak);
	check(pread(log, said, sizeof(said) - 1, 0) >= 0);
	check(!strstr(said, "mappings"), "%s", said);
	check(umunmap(m, 0) == 0);
}

#define STEPS 2000

/* Copies eight bytes across a border of segments to a place across another border. */
static void move_across(uint8_t *to, const uint8_t *from)
{
#ifdef __x86_64__
	__asm__ volatile("movsq" : "+S"(from), "+D"(to) : : "memory");
#else
	memcpy(to, from, 8);
#endif
}

/* Each instruction accesses four segments. Other calls leave inactive segments behind. */
static void four_at_once(void *unused)
{
	const size_t seg = 16 * KIB, segs = 64;
	int fd = filled_file(segs * seg, 1);
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	uint64_t random = 1;
	char uri[64];
	uint8_t *m;
	void *addr;

	(void)unused;
	set_budget(BUDGET);
	attr.seg_size = seg;
	attr.budget = 4 * seg;
	snprintf(uri, sizeof(uri), "%s:/proc/self/fd/%d", has_driver("uring") ? "uring" : "posix",
		 fd);
	check(ummap_open(uri, segs * seg, 0, READ_WRITE, &attr, &addr) == 0, "%s", umerrormsg());
	m = addr;
	for (unsigned i = 0; i < STEPS; i++) {
		size_t from = 1 + next_random(&random) % (segs - 3),
		       to = from < segs - 3 ? from + 2 : from - 2;

		if (i % 8 == 0) {
			check(umadvise(m + from * seg, 2 * seg, UMMAP_ADV_WILLNEED) == 0);
			(void)*(volatile uint8_t *)(m + to * seg);
			(void)*(volatile uint8_t *)(m + (to + 1) * seg);
			(void)*(volatile uint8_t *)(m + from * seg);
		}
		move_across(m + to * seg - 4, m + from * seg - 4);
	}
	check(umunmap(m, 0) == 0);
	close(fd);
}

int main(void)
{
	struct load loads[] = { { 1, false }, { 1, true }, { 4, false }, { 4, true } };

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < 4; i++)
		in_child(several_mappings, &loads[i], "several mappings");
	in_child(colder_gives_first, NULL, "colder gives first");
	in_child(own_budget, NULL, "a budget of its own");
	in_child(over_by_frames, NULL, "over by frames");
	in_child(twice_by_threads, NULL, "twice by threads");
	in_child(slow_storage, NULL, "slow storage");
	in_child(four_at_once, NULL, "four at once");
	return 0;
}
