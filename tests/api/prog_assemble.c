/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Segments that are loaded one by one, in random order, are collected in huge pages when the
 * mapping is idle, while threads load from them, and again after stores. Each load, and the file at
 * the end, is compared with a copy. Pinned segments stay where they are. Stores to huge pages are
 * written.
 *
 *	prog_assemble [SEED]
 */
#include <pthread.h>

#include "common.h"
#include "huge.h"
#include "sanitizers.h"

#define SEG (256 * KIB)
#define HUGE (2 * MIB)
#define SIZE (12 * HUGE)
#define SEGS (SIZE / SEG)
#define THREADS 3
#define PINNED 4 /* index of a huge page with a pinned segment */

static uint8_t *base, *shadow;
static atomic_bool stores, over;

/* Of each four huge pages, one is read only, half of one and all of one are stored to in the second
 * part of the test, and one is stored to from the beginning. */
static bool is_stored_to(size_t at)
{
	switch (at / HUGE % 4) {
	case 0: return false;
	case 1: return stores && at % HUGE < HUGE / 2;
	case 2: return stores;
	default: return true;
	}
}

/* Thread t uses the words whose index modulo THREADS is t. */
static void *work(void *arg)
{
	uint64_t random = (uint64_t)(uintptr_t)arg + 1, *words = (uint64_t *)(void *)base,
		 *want = (uint64_t *)(void *)shadow;
	size_t self = (uintptr_t)arg;

	while (!over) {
		size_t i = next_random(&random) % (SIZE / 8 / THREADS) * THREADS + self;

		check(words[i] == want[i], "word %zu", i);
		if (!is_stored_to(i * 8))
			continue;
		words[i] = want[i] = next_random(&random);
	}
	return NULL;
}

static void load_at_random(uint64_t *random)
{
	size_t order[SEGS];

	for (size_t i = 0; i < SEGS; i++)
		order[i] = i;
	for (size_t i = SEGS; i-- > 1;) {
		size_t other = next_random(random) % (i + 1), at = order[i];

		order[i] = order[other];
		order[other] = at;
	}
	for (size_t i = 0; i < SEGS; i++)
		check(base[order[i] * SEG] == shadow[order[i] * SEG]);
}

/* Waits for the huge pages. After the stores, segments of a huge page that was stored to in part
 * have different access rights, so they stay separate. */
static void await_huge(bool stored_to)
{
	size_t bytes = 0;

	for (size_t huge = 0; huge < SIZE / HUGE; huge++)
		bytes += (stored_to && huge % 4 == 1) || huge == PINNED ? 0 : HUGE;
	while (huge_bytes(base, SIZE) != bytes)
		pause_ms(10);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL),
		 random = mix(seed);
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	pthread_t threads[THREADS];
	char path[320], uri[400];
	int fd = temp_named("assemble", SIZE, path);

	if (!has_huge_pages()) {
		printf("no huge pages here\n");
		return 77;
	}
	printf("seed %" PRIu64 "\n", seed);
	set_group();
	set_budget(16 * HUGE);
	shadow = malloc(SIZE);
	check(shadow && pread(fd, shadow, SIZE, 0) == SIZE);
	attr.engine = UMMAP_ENGINE_SEGV;
	attr.seg_size = SEG;
	snprintf(uri, sizeof(uri), "posix:%s", path);
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, (void **)&base) == 0, "%s", umerrormsg());
	umadvise(base, SIZE, UMMAP_ADV_RANDOM);
	load_at_random(&random);
	check(umpin(base + PINNED * HUGE + 3 * SEG, 1, PROT_READ) == 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		check(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	await_huge(false);
	stores = true;
	await_huge(true);
	check(umunpin(base + PINNED * HUGE + 3 * SEG, 1) == 0);
	over = true;
	for (size_t i = 0; i < THREADS; i++)
		check(pthread_join(threads[i], NULL) == 0);
	check(umsync(base, 0) == 0, "%s", umerrormsg());
	check(memcmp(base, shadow, SIZE) == 0);
	check(umunmap(base, 0) == 0, "%s", umerrormsg());
	for (size_t at = 0; at < SIZE; at += HUGE) {
		static uint8_t bytes[HUGE];

		check(pread(fd, bytes, HUGE, (off_t)at) == HUGE &&
			      memcmp(bytes, shadow + at, HUGE) == 0,
		      "huge page %zu", at / HUGE);
	}
	close(fd);
	return 0;
}
