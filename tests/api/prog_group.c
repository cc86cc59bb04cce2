/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads load and store in mappings of groups, and check the data with a copy, while other threads
 * make, use and end mappings in the same groups. Two groups and a mapping without a group compete
 * for a small budget.
 */
#include "common.h"

#define BUDGET (6 * MIB)
#define SIZE (4 * MIB)
#define WORDS (SIZE / sizeof(uint64_t))
#define LASTING 4
#define USERS 3
#define GUESTS 2

static const struct kind {
	const char *group, *policy;
	size_t seg_size, budget;
} kinds[LASTING] = {
	{ "one", "plru", 64 * KIB, 2 * MIB },
	{ "one", NULL, 16 * KIB, 0 },
	{ "two", "wiro-f", 32 * KIB, 0 },
	{ NULL, "prnd", 64 * KIB, 0 },
};

static uint64_t *maps[LASTING], *copies[LASTING];
static int steps, stays;

static int open_kind(const struct kind *k, const char *path, void **addr)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[512];

	snprintf(uri, sizeof(uri), "posix:%s", path);
	attr.seg_size = k->seg_size;
	attr.group = k->group;
	attr.policy = k->policy;
	attr.budget = k->budget;
	return ummap_open(uri, SIZE, 0, READ_WRITE, &attr, addr);
}

/* Uses the thread's own words of each mapping. */
static void *use_words(void *number)
{
	uint64_t random = (uintptr_t)number;

	for (int step = 0; step < steps; step++) {
		int which = next_random(&random) % LASTING;
		size_t i = next_random(&random) % (WORDS / USERS) * USERS + (uintptr_t)number;

		/* A sequence of words, so that readahead takes place. */
		for (size_t end = i + 64 * USERS; i < WORDS && i < end; i += USERS) {
			check(maps[which][i] == copies[which][i],
			      "word %zu of mapping %d is %" PRIu64 " instead of %" PRIu64, i, which,
			      maps[which][i], copies[which][i]);
			if (step % 3 == 0)
				maps[which][i] = copies[which][i] = next_random(&random);
		}
		if (step % 1000 == 0)
			check(umsync(maps[which], step % 2000 == 0) == 0);
	}
	return NULL;
}

/* Adds a mapping to a group that has others, or to its own group, and ends the mapping again. */
static void *come_and_go(void *number)
{
	struct kind mine = { "three", "lifo", 16 * KIB, MIB / 2 };
	uint64_t random = 100 + (uintptr_t)number;
	char name[16], path[320];

	snprintf(name, sizeof(name), "guest%d", (int)(uintptr_t)number);
	for (int stay = 0; stay < stays; stay++) {
		struct kind k =
			stay % 2 ? mine :
				   (struct kind){ stay % 4 ? "one" : "two", NULL, 64 * KIB, 0 };
		int fd = temp_named(name, SIZE, path);
		uint8_t *m;
		void *addr;

		check(open_kind(&k, path, &addr) == 0);
		m = addr;
		for (int i = 0; i < 100; i++) {
			size_t at = next_random(&random) % (SIZE / KIB) * KIB;

			fill(m + at, 64, at, stay);
		}
		for (size_t at = 0; at < SIZE; at += KIB)
			check(m[at] == 0 || m[at] == pattern(at, stay), "%zu", at);
		check(umunmap(addr, 1) == 0);
		close(fd);
	}
	return NULL;
}

static void check_sums(void)
{
	size_t sum = 0;

	for (int i = 0; i < LASTING; i++) {
		struct umstat st = stat_of(maps[i]);

		sum += st.resident_bytes + st.inactive_bytes;
		check(st.budget_bytes == (i < 2 ? 2 * MIB : BUDGET));
	}
	check(sum <= stat_of(NULL).held_bytes);
	check(stat_of(NULL).mappings == LASTING);
}

int main(void)
{
	pthread_t threads[USERS + GUESTS];
	struct umstat st;

	steps = SANITIZED ? 3000 : (int)by_time(3000, 10000);
	stays = SANITIZED ? 20 : (int)by_time(20, 60);
	temp_dir();
	set_budget(BUDGET);
	for (int i = 0; i < LASTING; i++) {
		char name[16], path[320];

		snprintf(name, sizeof(name), "m%d", i);
		close(temp_named(name, SIZE, path));
		check(open_kind(&kinds[i], path, (void **)&maps[i]) == 0);
		copies[i] = calloc(WORDS, sizeof(uint64_t));
	}
	for (uintptr_t t = 0; t < USERS + GUESTS; t++)
		check(pthread_create(&threads[t], NULL, t < USERS ? use_words : come_and_go,
				     (void *)t) == 0);
	for (int t = 0; t < USERS + GUESTS; t++)
		check(pthread_join(threads[t], NULL) == 0);
	check_sums();
	for (int i = 0; i < LASTING; i++) {
		for (size_t k = 0; k < WORDS; k++)
			check(maps[i][k] == copies[i][k], "word %zu of mapping %d", k, i);
		check(umunmap(maps[i], 1) == 0);
		free(copies[i]);
	}
	st = stat_of(NULL);
	check(st.mappings == 0 && st.resident_bytes == 0 && st.inactive_bytes == 0 &&
	      st.pinned_bytes == 0);
	check(st.over_budget_peak <= (USERS + GUESTS) * 64 * KIB, "%" PRIu64, st.over_budget_peak);
	return 0;
}
