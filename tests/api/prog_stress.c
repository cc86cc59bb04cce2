/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads work on records that describe themselves, with a budget of an eighth of the mapping,
 * while other threads sync, evict, advise and read counters. Each policy, with segments of 4 KiB,
 * 64 KiB, 2 MiB and UMMAP_SEG_AUTO.
 *
 *	prog_stress [SEED [POLICY SEG_SIZE]]
 *
 * UMMAP_STRESS_SECONDS: duration of the test (10; with UMMAP_TEST_LONG 20). UMMAP_STRESS_SEED: as
 * SEED. A record belongs to one thread, and its neighbors to other threads. The versions are also
 * in an array, so that each load can be checked, and the file at the end. Then threads increment
 * counters that all of them share, whose sum must be exact. Records cross pages and segments. Each
 * second policy runs while the addresses that the library prefers for mappings are taken.
 */
#include "common.h"

#define WORKERS 8
#define WORDS 11  /* words of a record: index, version, payload, checksum */

struct run {
	uint64_t seed;
	int policy;
	size_t seg_size;
	bool shared;       /* the test uses counters instead of records */
	double seconds;
	int fd;
	uint8_t *base;
	size_t size;
	size_t records;
	uint32_t *shadow;  /* version of each record; 0: the record is all zeros */
	atomic_bool *stop;
};

struct worker {
	struct run *run;
	uint64_t random;
	unsigned number;
	_Atomic uint64_t work;  /* number of loads, stores and additions */
};

static const char *const policies[] = { "fifo", "lifo", "plru", "prnd", "wiro-f", "wiro-l" };
static const size_t seg_sizes[] = { UMMAP_SEG_AUTO, 4 * KIB, 64 * KIB, 2 * MIB };

/* ---- Records ---- */

static void make_record(uint64_t words[WORDS], const struct run *r, uint64_t index,
			uint64_t version)
{
	uint64_t sum = r->seed;

	if (version == 0) {
		memset(words, 0, WORDS * 8);
		return;
	}
	words[0] = index;
	words[1] = version;
	for (int i = 2; i < WORDS - 1; i++)
		words[i] = mix(index * 64 + i + (version << 40));
	for (int i = 0; i < WORDS - 1; i++)
		sum = mix(sum + words[i]);
	words[WORDS - 1] = sum;
}

static void check_record(const struct run *r, const volatile uint64_t *found, uint64_t index,
			 const char *where)
{
	uint64_t expected[WORDS];

	make_record(expected, r, index, r->shadow[index]);
	for (int i = 0; i < WORDS; i++)
		if (found[i] != expected[i])
			check(false,
			      "seed %" PRIu64 " %s %zu: record %" PRIu64 ", word %d %s is %#" PRIx64
			      ", not %#" PRIx64 " (version %" PRIu32 "; found index %" PRIu64
			      " version %" PRIu64 ")",
			      r->seed, policies[r->policy], r->seg_size, index, i, where, found[i],
			      expected[i], r->shadow[index], found[0], found[1]);
}

/* Stores word by word, in either direction. The segment may be evicted between two words. */
static void store_record(const struct run *r, uint64_t index, bool backwards)
{
	volatile uint64_t *to = (volatile uint64_t *)(r->base + index * WORDS * 8);
	uint64_t words[WORDS];

	make_record(words, r, index, ++r->shadow[index]);
	for (int i = 0; i < WORDS; i++) {
		int at = backwards ? WORDS - 1 - i : i;

		to[at] = words[at];
	}
}

static void *work_on_records(void *arg)
{
	struct worker *w = arg;
	struct run *r = w->run;
	uint64_t turns = r->records / WORKERS, turn = 0;

	while (!atomic_load(r->stop)) {
		uint64_t dice = next_random(&w->random);
		unsigned steps =
			dice % 4 ? 1 : 64; /* mostly random accesses, sometimes a sequence */

		turn = next_random(&w->random) % turns;
		for (unsigned i = 0; i < steps && turn < turns; i++, turn++) {
			uint64_t index = turn * WORKERS + w->number;

			errno = EXFULL;
			check_record(r, (uint64_t *)(r->base + index * WORDS * 8), index,
				     "in memory");
			if (dice & 16)
				store_record(r, index, dice & 32);
#ifndef __SANITIZE_THREAD__ /* looks for a suppression, and changes errno */
			check(errno == EXFULL, "a fault leaves errno alone");
#endif
			w->work++;
		}
	}
	return NULL;
}

static void *work_on_counters(void *arg)
{
	struct worker *w = arg;
	struct run *r = w->run;

	while (!atomic_load(r->stop)) {
		uint64_t at = next_random(&w->random) % (r->size / 8);

		/* All threads often use the first counters. */
		if (at % 4 == 0)
			at = at % 64 * (r->size / 8 / 64);
		__atomic_fetch_add((uint64_t *)r->base + at, 1, __ATOMIC_RELAXED);
		w->work++;
	}
	return NULL;
}

/* ---- Threads that disturb the workers ---- */

static void *sync_often(void *arg)
{
	struct worker *w = arg;
	struct run *r = w->run;

	while (!atomic_load(r->stop)) {
		uint64_t dice = next_random(&w->random);
		size_t from = next_random(&w->random) % r->size;
		size_t len = next_random(&w->random) % (r->size - from) + 1;

		switch (dice % 8) {
		case 0:
			check(umsync(r->base, 1) == 0);
			break;
		case 1:
			check(umsync(r->base, 0) == 0);
			break;
		case 2:
			check(umsync_range(r->base + from, len, 0) == 0);
			break;
		case 3:
			check(umsync_range(r->base + from, len, UMMAP_ASYNC) == 0);
			break;
		case 4:
			check(umsync_range(r->base + from, len, UMMAP_NOFLUSH) == 0);
			break;
		default:
			check(umsync_range(r->base + from, len, UMMAP_EVICT | UMMAP_NOFLUSH) == 0);
		}
		pause_ms(dice >> 32 & 7);
		w->work++;
	}
	return NULL;
}

static void *advise_and_count(void *arg)
{
	static const int advices[] = {
		UMMAP_ADV_DONTNEED, UMMAP_ADV_WILLNEED, UMMAP_ADV_DONTNEED, UMMAP_ADV_WILLNEED,
		UMMAP_ADV_NORMAL, UMMAP_ADV_RANDOM, UMMAP_ADV_SEQUENTIAL,
	};
	struct worker *w = arg;
	struct run *r = w->run;

	unsigned tiers = (unsigned)stat_of(NULL).tiers;

	while (!atomic_load(r->stop)) {
		uint64_t dice = next_random(&w->random);
		size_t from = next_random(&w->random) % r->size;
		size_t len = next_random(&w->random) % (r->size - from) % (r->size / 4 + 1) + 1;
		struct umstat st;

		if (tiers) {
			check(umadvise(r->base + from, len, UMMAP_ADV_ANY_TIER) == 0);
			check(umadvise(r->base + from, len,
				       UMMAP_ADV_TIER + (int)((dice >> 16) % tiers)) == 0 ||
			      errno == ENOSPC);
		}

		check(umadvise(r->base + from, len, advices[dice % 7]) == 0);
		st = stat_of(r->base);
		check(st.resident_bytes <= r->size && st.inactive_bytes <= r->size &&
		      st.dirty_bytes <= r->size);
		check(st.read_errors == 0 && st.write_errors == 0 && st.pinned_bytes == 0);
		pause_ms(dice >> 32 & 7);
		w->work++;
	}
	return NULL;
}

/* ---- One run, in its own process, because the library reads the budget once ---- */

static void check_records_of_file(const struct run *r)
{
	uint8_t *all = file_read(r->fd, 0, r->size, __FILE__, __LINE__);

	for (uint64_t i = 0; i < r->records / WORKERS * WORKERS; i++)
		check_record(r, (uint64_t *)(all + i * WORDS * 8), i, "in the file");
	free(all);
}

static void check_counters_of_file(const struct run *r, uint64_t additions)
{
	uint64_t *all = file_read(r->fd, 0, r->size, __FILE__, __LINE__), sum = 0;

	for (size_t i = 0; i < r->size / 8; i++)
		sum += all[i];
	check(sum == additions,
	      "seed %" PRIu64 " %s %zu: %" PRIu64 " additions, the file has %" PRIu64, r->seed,
	      policies[r->policy], r->seg_size, additions, sum);
	free(all);
}

/* Waits until each thread has done some work and segments have been evicted. */
static void await_all(const struct run *r, const struct worker *workers)
{
	unsigned idle;

	do {
		idle = stat_of(r->base).evictions == 0;
		for (unsigned i = 0; i < WORKERS + 2; i++)
			idle += workers[i].work == 0;
		if (idle)
			pause_ms(10);
	} while (idle);
}

/* Starts all threads, waits, and returns the total work of the workers. */
static uint64_t work(struct run *r)
{
	struct worker workers[WORKERS + 2];
	pthread_t threads[WORKERS + 2];
	uint64_t done = 0;

	for (unsigned i = 0; i < WORKERS + 2; i++) {
		void *(*job)(void *) = r->shared ? work_on_counters : work_on_records;

		if (i >= WORKERS)
			job = i == WORKERS ? sync_often : advise_and_count;
		workers[i] = (struct worker){ r, mix(r->seed + i), i, 0 };
		check(pthread_create(&threads[i], NULL, job, &workers[i]) == 0);
	}
	pause_ms(r->seconds * 1000);
	await_all(r, workers);
	atomic_store(r->stop, true);
	for (unsigned i = 0; i < WORKERS + 2; i++) {
		check(pthread_join(threads[i], NULL) == 0);
		check(workers[i].work > 0);
		done += i < WORKERS ? workers[i].work : 0;
	}
	return done;
}

/* Takes the preferred addresses. With TSan, mappings are never there. */
static void take_place(void)
{
#ifndef __SANITIZE_THREAD__
	check(mmap((void *)((uintptr_t)32 << 40), (size_t)8 << 40, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
		   0) != MAP_FAILED);
#endif
}

static void run(void *arg)
{
	struct run *r = arg;
	atomic_bool stop = false;
	struct umstat st, all;
	uint64_t done;
	void *addr;

	r->size = r->seg_size == 4 * KIB ? 4 * MIB :
		  r->seg_size < MIB      ? 16 * MIB :
					   64 * r->seg_size;
	r->size += 1000 * 8;  /* the last segment is short */
	r->records = r->size / (WORDS * 8);
	r->shadow = calloc(r->records, sizeof(*r->shadow));
	r->stop = &stop;
	r->fd = temp_file(r->size);
	if (r->policy % 2)
		take_place();
	set_budget(r->size / 8 / r->seg_size * r->seg_size);
	check(ummap(r->size, r->seg_size, READ_WRITE, r->fd, 0, 1, 1, r->policy, &addr) == 0);
	r->base = addr;
	done = work(r);
	st = stat_of(addr);
	all = stat_of(NULL);
	check(umunmap(addr, 1) == 0);
	check(file_size(r->fd) == r->size);
	if (r->shared)
		check_counters_of_file(r, done);
	else
		check_records_of_file(r);
	printf("%-6s %7zu %-8s %9" PRIu64 " operations, %7" PRIu64 " evictions, %7" PRIu64
	       " inactive hits\n",
	       policies[r->policy], r->seg_size, r->shared ? "counters" : "records", done,
	       st.evictions, st.inactive_hits);
	check(st.evictions > 0);
	for (uint64_t i = 0; i < all.tiers; i++)
		printf("tier %" PRIu64 ": %" PRIu64 " loads, %" PRIu64 " promotions, %" PRIu64
		       " demotions, %" PRIu64 " hits\n", i, all.tier_loads[i],
		       all.tier_promotions[i], all.tier_demotions[i], all.tier_hits[i]);
	/* In an emulated machine, there may be too few loads for one. */
	check(!all.tiers || all.tier_demotions[0] > 0 || done < 1000);
}

static uint64_t choose_seed(int argc, char **argv)
{
	const char *text = argc > 1 ? argv[1] : getenv("UMMAP_STRESS_SEED");

	return text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL) ^ (uint64_t)getpid() << 32;
}

int main(int argc, char **argv)
{
	uint64_t seed = choose_seed(argc, argv);

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("seed %" PRIu64 "\n", seed);
	for (int policy = 0; policy < 6; policy++) {
		for (int i = 0; i < 4; i++) {
			/* The seconds are divided by 28 runs: 24 of records and 4 of counters. */
			for (int shared = 0; shared <= ((unsigned)policy == (seed + i) % 6);
			     shared++) {
				struct run r = { .seed = seed,
						 .policy = policy,
						 .seg_size = seg_sizes[i],
						 .shared = shared,
						 .seconds = stress_seconds(10, 20) / 28,
						 .fd = -1 };

				if (argc > 3 && (strcmp(argv[2], policies[policy]) != 0 ||
						 strtoull(argv[3], NULL, 0) != seg_sizes[i]))
					continue;
				check_exits(run_child(run, &r), 0);
			}
		}
	}
	return 0;
}
