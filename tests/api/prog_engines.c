/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model of one file with several mappings in one process, each with another engine. Areas of the
 * file pass from one mapping to another while threads load and store at random, advise, sync,
 * prefetch and pin. Each load, and the file at the end, is compared with a copy in memory. The
 * budget is an eighth of the file. An area consists of whole segments of each mapping.
 *
 *	prog_engines [SEED]
 *
 * UMMAP_STRESS_SECONDS: duration of the test (6; with UMMAP_TEST_LONG 600).
 */
#include <pthread.h>

#include "access.h"
#include "common.h"
#include "sanitizers.h"

#define AREA (256 * KIB)
#define AREAS 64
#define SIZE (AREAS * AREA)
#define THREADS 4
#define MAX_ACCESS 9000 /* bytes of a load or store */

static const int engines[] = { UMMAP_ENGINE_SEGV, UMMAP_ENGINE_UFFD, UMMAP_ENGINE_SIGBUS,
			       OTHER_ENGINES };
static const size_t segs[] = { 64 * KIB, 16 * KIB, 4 * KIB, 8 * KIB };

#define ENGINE_COUNT (int)(sizeof(engines) / sizeof(*engines))

static uint8_t *base[ENGINE_COUNT], *shadow;
static unsigned there;          /* number of engines that this kernel has */
static unsigned owner[AREAS]; /* mapping that has the area; each area belongs to one thread */
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
		/* The mappings write to the same bytes, one after the other. */
		attr.flags = UMMAP_WRITERS;
		if (ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0)
			base[there++] = addr;
		else
			check(engines[e] != UMMAP_ENGINE_SEGV, "%s", umerrormsg());
	}
	printf("%u engines\n", there);
}

/* The next mapping must see the stores of the previous one, and no older data of its own. */
static void hand_over(size_t s, unsigned next)
{
	check(umadvise(base[owner[s]] + s * AREA, AREA, UMMAP_ADV_DONTNEED) == 0, "%s",
	      umerrormsg());
	check(umsync_range(base[owner[s]] + s * AREA, AREA, UMMAP_NOFLUSH) == 0, "%s",
	      umerrormsg());
	check(umadvise(base[next] + s * AREA, AREA, UMMAP_ADV_DONTNEED) == 0, "%s", umerrormsg());
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
		list[i] =
			(struct iovec){ base[owner[s]] + s * AREA + next_random(random) % AREA, 1 };
	check(umprefetch(list, 8) >= 0, "%s", umerrormsg());
}

static void step(size_t s, uint64_t *random)
{
	size_t from = next_random(random) % AREA, len = 1 + next_random(random) % MAX_ACCESS, at;
	unsigned what = (unsigned)(next_random(random) % 100);
	uint8_t *m = base[owner[s]], found[MAX_ACCESS];

	if (from + len > AREA)
		from = AREA - len;
	at = s * AREA + from;
	if (what < 45) {
		access_load(found, m + at, len);
		check(memcmp(found, shadow + at, len) == 0,
		      "area %zu of engine %d, %zu bytes at %zu", s, engines[owner[s]], len, from);
	} else if (what < 88)
		store(m + at, at, len, random);
	else if (what < 92)
		hand_over(s, (unsigned)(next_random(random) % there));
	else if (what < 95)
		pin_and_store(m + at, at, len, random);
	else if (what < 97)
		prefetch(s, random);
	else if (what < 99)
		check(umadvise(m + at, len, what == 97 ? UMMAP_ADV_DONTNEED : UMMAP_ADV_WILLNEED) ==
		      0);
	else
		check(umsync_range(m + at, len, next_random(random) % 4 ? UMMAP_NOFLUSH : 0) == 0);
}

static void *work(void *arg)
{
	uint64_t random = *(uint64_t *)arg;
	size_t self = random % THREADS, steps = 0;

	for (; !over || steps < 100; steps++)
		step(next_random(&random) % (AREAS / THREADS) * THREADS + self, &random);
	return (void *)steps;
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL),
		 seeds[THREADS];
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
	for (size_t s = 0; s < AREAS; s++)
		hand_over(s, 0);
	for (unsigned e = 0; e < there; e++)
		check(umunmap(base[e], 1) == 0, "%s", umerrormsg());
	for (size_t at = 0; at < SIZE; at += AREA) {
		static uint8_t bytes[AREA];

		check(pread(fd, bytes, AREA, (off_t)at) == AREA);
		check(memcmp(bytes, shadow + at, AREA) == 0, "the file at %zu", at);
	}
	printf("%zu steps\n", steps);
	return 0;
}
