/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_umalloc_model - threads make random calls on many heaps, in a budget smaller than the
 * allocations. The contents of each allocation are checked, so that none overlap and none are lost.
 * A thread frees allocations of other threads.
 */
#include "heap.h"
#include "sanitizers.h"

/* Sanitizers leave less room for addresses. */
#define HEAP (SANITIZED ? 16 * GIB : 512 * GIB)
#define SPARSE (HEAP / 64)
#define BUDGET (24 * MIB)
#define HEAPS 12
#define THREADS 4
#define SLOTS 256   /* of each heap */

struct slot {
	pthread_mutex_t lock;
	char *memory;
	size_t size;
	uint64_t seed;
};

static struct {
	umalloc_heap *heap;
	struct slot slot[SLOTS];
} heaps[HEAPS];

static unsigned rounds;

/* Most allocations are small, some have MiB, and a few are sparse. */
static size_t choose_size(uint64_t *random)
{
	switch (next_random(random) % 64) {
	case 0: return 1 + next_random(random) % (4 * MIB);
	case 1: case 2: case 3: return 1 + next_random(random) % (256 * KIB);
	case 4: return SPARSE + next_random(random) % (SPARSE / 8);
	default: return 1 + next_random(random) % 4000;
	}
}

/* Bytes that are filled at the beginning, and at the end of a sparse allocation. */
static size_t filled_bytes(size_t size)
{
	return size < SPARSE ? size : 4 * KIB;
}

static void fill_slot(struct slot *s, size_t from)
{
	size_t part = filled_bytes(s->size);

	if (from < part)
		fill(s->memory + from, part - from, from, s->seed);
	if (part < s->size)
		fill(s->memory + s->size - part, part, 0, s->seed);
}

static void check_slot(const struct slot *s)
{
	size_t part = filled_bytes(s->size);

	check_bytes(s->memory, part, 0, s->seed);
	if (part < s->size)
		check_bytes(s->memory + s->size - part, part, 0, s->seed);
}

static void allocate(umalloc_heap *heap, struct slot *s, uint64_t *random)
{
	size_t alignment = (size_t)1 << next_random(random) % 14;
	unsigned how = next_random(random) % 4;

	s->size = choose_size(random);
	s->seed = next_random(random) % 1000 + 1;
	if (how == 0) {
		s->memory = ucalloc(heap, 1, s->size);
		check(s->memory, "%s", umalloc_errormsg());
		check_zeros(s->memory, filled_bytes(s->size));
	} else if (how == 1) {
		s->memory = ualigned_alloc(heap, alignment, s->size);
		check(s->memory && (uintptr_t)s->memory % alignment == 0);
	} else {
		s->memory = umalloc(heap, s->size);
	}
	check(s->memory, "%zu: %s", s->size, umalloc_errormsg());
	check(umalloc_usable_size(heap, s->memory) >= s->size);
	fill_slot(s, 0);
}

static void reallocate(umalloc_heap *heap, struct slot *s, uint64_t *random)
{
	size_t size = choose_size(random), kept = size < s->size ? size : s->size;

	/* Copying a sparse allocation takes too long. */
	if (size >= SPARSE || s->size >= SPARSE)
		return;
	s->memory = urealloc(heap, s->memory, size);
	check(s->memory, "%zu: %s", size, umalloc_errormsg());
	check_bytes(s->memory, kept, 0, s->seed);
	s->size = size;
	fill_slot(s, kept);
}

static void *work(void *arg)
{
	uint64_t random = (uintptr_t)arg;

	for (unsigned round = 0; round < rounds; round++) {
		size_t h = next_random(&random) % HEAPS;
		struct slot *s = &heaps[h].slot[next_random(&random) % SLOTS];

		pthread_mutex_lock(&s->lock);
		if (!s->memory) {
			allocate(heaps[h].heap, s, &random);
		} else {
			check_slot(s);
			if (next_random(&random) % 3) {
				ufree(heaps[h].heap, s->memory);
				s->memory = NULL;
			} else {
				reallocate(heaps[h].heap, s, &random);
			}
		}
		pthread_mutex_unlock(&s->lock);
	}
	return NULL;
}

/* Threads come and go, and heaps stay. */
static void run_threads(unsigned generation)
{
	pthread_t thread[THREADS];

	for (size_t i = 0; i < THREADS; i++)
		check(pthread_create(&thread[i], NULL, work, (void *)(uintptr_t)
				     (generation * THREADS + i + 1)) == 0);
	for (size_t i = 0; i < THREADS; i++)
		check(pthread_join(thread[i], NULL) == 0);
}

static void check_all(void)
{
	for (size_t h = 0; h < HEAPS; h++) {
		for (size_t i = 0; i < SLOTS; i++) {
			if (heaps[h].slot[i].memory)
				check_slot(&heaps[h].slot[i]);
		}
	}
}

/* Replaces a heap. The others keep their contents. */
static void replace_heap(size_t h)
{
	umalloc_destroy(heaps[h].heap);
	heaps[h].heap = make_heap(HEAP);
	for (size_t i = 0; i < SLOTS; i++)
		heaps[h].slot[i].memory = NULL;
}

int main(void)
{
	set_budget(BUDGET);
	rounds = by_time(2500, 60000);
	for (size_t h = 0; h < HEAPS; h++) {
		heaps[h].heap = make_heap(HEAP);
		for (size_t i = 0; i < SLOTS; i++)
			pthread_mutex_init(&heaps[h].slot[i].lock, NULL);
	}
	for (unsigned generation = 0; generation < 4; generation++) {
		run_threads(generation);
		check_all();
		replace_heap(generation * 5 % HEAPS);
	}
	check(stat_of(NULL).read_bytes > 0 && stat_of(NULL).write_bytes > 0, "no evictions");
	for (size_t h = 0; h < HEAPS; h++)
		umalloc_destroy(heaps[h].heap);
	check(stat_of(NULL).mappings == 0);
	return 0;
}
