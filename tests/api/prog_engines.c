/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_engines - a model of one file with three mappings in one process, each of another engine. Stretches of the file pass from
 * one engine to another, while threads load and store at random, advise, sync, prefetch and pin; every load is compared with a
 * shadow in memory, and so is the file at the end. The budget is an eighth of the file, and a stretch is whole segments of each.
 *
 *	prog_engines [SEED]
 *
 * UMMAP_STRESS_SECONDS: for all of it (6; with UMMAP_TEST_LONG 600).
 */
#include <pthread.h>

#include "access.h"
#include "common.h"
#include "sanitizers.h"

#define STRETCH (256 * KIB)
#define STRETCHES 64
#define SIZE (STRETCHES * STRETCH)
#define THREADS 4
#define MOST 9000 /* bytes of a load or store */

static const int engines[] = { UMMAP_ENGINE_SEGV, UMMAP_ENGINE_UFFD, UMMAP_ENGINE_SIGBUS,
			       OTHER_ENGINES };
static const size_t segs[] = { 64 * KIB, 16 * KIB, 4 * KIB, 8 * KIB };

#define ENGINE_COUNT (int)(sizeof(engines) / sizeof(*engines))

static uint8_t *base[ENGINE_COUNT], *shadow;
static unsigned there;             /* engines that can be had here */
static unsigned owner[STRETCHES];  /* of one thread each */
static _Atomic bool over;

static void open_all(const char *path)
{
	char uri[400];

	snprintf(uri, sizeof(uri), "posix:%s", path);
	for (int e = 0; e < ENGINE_COUNT; e++) {
		struct ummap_attr attr = UMMAP_ATTR_INIT;
		void *addr;

		attr.engine = engines[e];
		attr.seg_size = segs[e];
		/* They write to the same bytes, one after the other. */
		attr.flags = UMMAP_WRITERS;
		if (ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0)
			base[there++] = addr;
		else
			check(engines[e] != UMMAP_ENGINE_SEGV, "%s", umerrormsg());
	}
	printf("%u engines\n", there);
}

/* Whoever has it next finds in the file what the one before has stored, and nothing of its own from earlier. */
static void hand_over(size_t s, unsigned next)
{
	check(umadvise(base[owner[s]] + s * STRETCH, STRETCH, UMMAP_ADV_DONTNEED) == 0, "%s", umerrormsg());
	check(umsync_range(base[owner[s]] + s * STRETCH, STRETCH, UMMAP_NOFLUSH) == 0, "%s", umerrormsg());
	check(umadvise(base[next] + s * STRETCH, STRETCH, UMMAP_ADV_DONTNEED) == 0, "%s", umerrormsg());
	owner[s] = next;
}

static void store(uint8_t *to, size_t at, size_t len, uint64_t *random)
{
	uint64_t value = next_random(random);

	for (size_t i = 0; i < len; i++)
		shadow[at + i] = (uint8_t)(value >> i % 8 * 8 ^ i);
	access_store(to, shadow + at, len);
}

static void pin_and_store(uint8_t *to, size_t at, size_t len, uint64_t *random)
{
	check(umpin(to, len, READ_WRITE) == 0, "%s", umerrormsg());
	store(to, at, len, random);
	check(umunpin(to, len) == 0, "%s", umerrormsg());
}

static void prefetch(size_t s, uint64_t *random)
{
	struct iovec list[8];

	for (int i = 0; i < 8; i++)
		list[i] = (struct iovec){ base[owner[s]] + s * STRETCH + next_random(random) % STRETCH, 1 };
	check(umprefetch(list, 8) >= 0, "%s", umerrormsg());
}

static void step(size_t s, uint64_t *random)
{
	size_t from = next_random(random) % STRETCH, len = 1 + next_random(random) % MOST, at;
	unsigned what = (unsigned)(next_random(random) % 100);
	uint8_t *m = base[owner[s]], found[MOST];

	if (from + len > STRETCH)
		from = STRETCH - len;
	at = s * STRETCH + from;
	if (what < 45) {
		access_load(found, m + at, len);
		check(memcmp(found, shadow + at, len) == 0,
		      "stretch %zu of engine %d, %zu bytes at %zu", s, engines[owner[s]], len, from);
	} else if (what < 88)
		store(m + at, at, len, random);
	else if (what < 92)
		hand_over(s, (unsigned)(next_random(random) % there));
	else if (what < 95)
		pin_and_store(m + at, at, len, random);
	else if (what < 97)
		prefetch(s, random);
	else if (what < 99)
		check(umadvise(m + at, len, what == 97 ? UMMAP_ADV_DONTNEED : UMMAP_ADV_WILLNEED) == 0);
	else
		check(umsync_range(m + at, len, next_random(random) % 4 ? UMMAP_NOFLUSH : 0) == 0);
}

static void *work(void *arg)
{
	uint64_t random = *(uint64_t *)arg;
	size_t self = random % THREADS, steps = 0;

	for (; !over || steps < 100; steps++)
		step(next_random(&random) % (STRETCHES / THREADS) * THREADS + self, &random);
	return (void *)steps;
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL), seeds[THREADS];
	pthread_t threads[THREADS];
	char path[320];
	size_t steps = 0;
	int fd = temp_named("engines", SIZE, path);
	double end = now() + stress_seconds(6, 600);

	printf("seed %" PRIu64 "\n", seed);
	set_group();
	set_budget(SIZE / 8);
	shadow = calloc(1, SIZE);
	check(shadow);
	open_all(path);
	for (size_t i = 0; i < THREADS; i++) {
		seeds[i] = (mix(seed) & ~(uint64_t)(THREADS - 1)) * THREADS + THREADS + i;
		check(pthread_create(&threads[i], NULL, work, &seeds[i]) == 0);
	}
	while (now() < end)
		pause_ms(20);
	over = true;
	for (size_t i = 0; i < THREADS; i++) {
		void *done;

		check(pthread_join(threads[i], &done) == 0);
		steps += (size_t)done;
	}
	for (size_t s = 0; s < STRETCHES; s++)
		hand_over(s, 0);
	for (unsigned e = 0; e < there; e++)
		check(umunmap(base[e], 1) == 0, "%s", umerrormsg());
	for (size_t at = 0; at < SIZE; at += STRETCH) {
		static uint8_t bytes[STRETCH];

		check(pread(fd, bytes, STRETCH, (off_t)at) == STRETCH);
		check(memcmp(bytes, shadow + at, STRETCH) == 0, "the file at %zu", at);
	}
	printf("%zu steps\n", steps);
	return 0;
}
