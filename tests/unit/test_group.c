/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: one policy and one budget for several mappings, protection from other mappings, joining.
 * */
#include "common.h"

#include "paging/mapping/lookup.h"

#include <criterion/criterion.h>

#define SEG (64 * KIB)
#define SIZE (8 * MIB)
#define SEGS (SIZE / SEG)

/* Attributes of a mapping in a group. */
static struct ummap_attr member(const char *group, const char *policy, size_t budget)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;

	attr.seg_size = SEG;
	attr.group = group;
	attr.policy = policy;
	attr.budget = budget;
	return attr;
}

static int open_new(const struct ummap_attr *attr, size_t size, void **addr)
{
	static int number;
	char name[16], path[320], uri[512];

	snprintf(name, sizeof(name), "f%d", number++);
	close(temp_named(name, size, path));
	snprintf(uri, sizeof(uri), "posix:%s", path);
	return ummap_open(uri, size, 0, READ_WRITE, attr, addr);
}

static uint8_t *map_new(const char *group, const char *policy, size_t budget, size_t size)
{
	struct ummap_attr attr = member(group, policy, budget);
	void *addr;

	check(open_new(&attr, size, &addr) == 0);
	return addr;
}

/* Starts the library with at least 10 MiB of budget and without readahead. */
static void start(size_t budget)
{
	set_budget(budget);
	set_env("UMMAP_READAHEAD", "0");
}

static void touch(const uint8_t *m, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		check(*(const volatile uint8_t *)(m + i * SEG) == 0);
}

static bool is_resident(uint8_t *m, size_t i)
{
	unsigned char there;

	check(mincore(m + i * SEG, 1, &there) == 0);
	return there & 1;
}

/* Returns the bytes that the mapping's group is charged for. */
static size_t charged(const uint8_t *m)
{
	struct mapping *map = map_find(m);
	size_t bytes = account_frames(map_account(map));

	map_leave(map);
	return bytes;
}

static size_t held(const uint8_t *m)
{
	struct umstat st = stat_of(m);

	return st.resident_bytes + st.inactive_bytes;
}

/* Waits until the counters do not change for a while, so that background jobs are complete. */
static void wait_for_jobs(void)
{
	struct umstat before, st = stat_of(NULL);

	do {
		before = st;
		pause_ms(300);
		st = stat_of(NULL);
	} while (memcmp(&st, &before, sizeof(st)) != 0);
}

/* ---- One policy ---- */

static size_t count_resident(uint8_t *const segs[], size_t n)
{
	size_t there = 0;

	for (size_t i = 0; i < n; i++)
		there += is_resident(segs[i], 0);
	return there;
}

/* fifo over both mappings: the most recent segments are resident, however the accesses alternate.
 * */
Test(group, fifo_over_all_mappings)
{
	enum { ROUNDS = 48 };
	uint8_t *maps[2], *came[2 * ROUNDS];
	size_t newest, others;

	start(64 * MIB);
	maps[0] = map_new("g", "fifo", 32 * SEG, SIZE);
	maps[1] = map_new("g", NULL, 0, SIZE);
	/* Sequences of different lengths, so that the order within one mapping does not suffice. */
	for (size_t n = 0, next[2] = { 0 }; n < 2 * ROUNDS; n++) {
		int which = mix(n / 3) & 1;

		came[n] = maps[which] + next[which] * SEG;
		touch(maps[which], next[which], next[which] + 1);
		next[which]++;
	}
	wait_for_jobs();
	others = count_resident(came, 2 * ROUNDS - 32);
	newest = count_resident(came + 2 * ROUNDS - 32, 32);
	/* Some are inactive. A segment that the kernel uses during its eviction stays and is new
	 * again. */
	check(newest >= 32 / 2 && others <= 2, "%zu of the newest, %zu others", newest, others);
	for (int i = 0; i < 2; i++)
		check(umunmap(maps[i], 0) == 0);
}

/* lifo evicts the newer segments and fifo the older ones, in whichever mapping they are. */
static void older_and_newer(const char *policy, bool older_goes)
{
	uint8_t *older = map_new("g", policy, 32 * SEG, SIZE),
		*newer = map_new("g", policy, 32 * SEG, SIZE);

	touch(older, 0, 16);
	touch(newer, 0, 64);
	wait_for_jobs();
	if (older_goes)
		check(stat_of(older).evictions == 16 && stat_of(older).resident_bytes == 0);
	else
		check(stat_of(older).evictions == 0 && stat_of(older).resident_bytes == 16 * SEG);
	check(held(older) + held(newer) <= 32 * SEG);
	check(umunmap(older, 0) == 0 && umunmap(newer, 0) == 0);
}

Test(group, lifo_takes_from_the_newer)
{
	start(64 * MIB);
	older_and_newer("lifo", false);
}

Test(group, fifo_takes_from_the_older)
{
	start(64 * MIB);
	older_and_newer("fifo", true);
}

/* A group without a budget has one policy, and gives up memory as a whole. */
Test(group, without_a_budget_shares_the_policy)
{
	uint8_t *older, *newer;

	start(2 * MIB);
	older = map_new("g", "lifo", 0, SIZE), newer = map_new("g", "lifo", 0, SIZE);
	check(stat_of(older).budget_bytes == 2 * MIB);
	touch(older, 0, 8);
	touch(newer, 0, SEGS);
	wait_for_jobs();
	check(stat_of(older).evictions == 0, "%" PRIu64, stat_of(older).evictions);
	check(stat_of(newer).evictions >= SEGS - 32);
	check(umunmap(older, 0) == 0 && umunmap(newer, 0) == 0);
}

/* ---- One budget ---- */

struct user {
	uint8_t *maps[3];
	uint64_t random;
};

static _Atomic bool done;

static void *visit(void *arg)
{
	struct user *u = arg;

	for (unsigned i = 0; i < by_time(1000, 3000); i++) {
		uint8_t *m = u->maps[next_random(&u->random) % 3];
		size_t at = next_random(&u->random) % SIZE;

		if (i % 4 == 0)
			__atomic_store_n(m + at, 1, __ATOMIC_RELAXED);
		else
			check(__atomic_load_n(m + at, __ATOMIC_RELAXED) <= 1);
	}
	return NULL;
}

/* Checks the peak all the time, because mappings may exchange memory between two checks. */
static void *watch(void *arg)
{
	struct user *u = arg;
	static size_t most;

	while (!done) {
		size_t sum = 0;

		for (int i = 0; i < 3; i++)
			sum += held(u->maps[i]);
		most = sum > most ? sum : most;
		check(charged(u->maps[0]) <= 2 * MIB, "%zu", charged(u->maps[0]));
	}
	return &most;
}

Test(group, budget_holds_over_all_mappings, .timeout = 100)
{
	struct ummap_attr attr = member("g", "plru", 2 * MIB);
	struct user users[4];
	pthread_t threads[4], watcher;
	size_t *most;

	start(64 * MIB);
	for (int i = 0; i < 3; i++) {
		attr.seg_size = SEG >> i;  /* also segments of several sizes */
		check(open_new(&attr, SIZE, (void **)&users[0].maps[i]) == 0);
		check(stat_of(users[0].maps[i]).budget_bytes == 2 * MIB);
	}
	check(pthread_create(&watcher, NULL, watch, &users[0]) == 0);
	for (int t = 0; t < 4; t++) {
		memcpy(users[t].maps, users[0].maps, sizeof(users[t].maps));
		users[t].random = t;
		check(pthread_create(&threads[t], NULL, visit, &users[t]) == 0);
	}
	for (int t = 0; t < 4; t++)
		check(pthread_join(threads[t], NULL) == 0);
	done = true;
	check(pthread_join(watcher, (void **)&most) == 0);
	check(*most > MIB && *most <= 2 * MIB + 8 * SEG, "%zu KiB", *most / KIB);
	check(stat_of(NULL).over_budget_peak == 0);
	for (int i = 0; i < 3; i++)
		check(umunmap(users[0].maps[i], 1) == 0);
	check(stat_of(NULL).resident_bytes == 0 && stat_of(NULL).inactive_bytes == 0);
}

/* The smallest budget is four segments, while other mappings hold much more. */
Test(group, smallest_budget_holds)
{
	uint8_t *large, *small;

	start(8 * MIB);
	large = map_new(NULL, NULL, 0, SIZE), small = map_new(NULL, NULL, 1, SIZE);
	for (size_t i = 0; i < SEGS; i++) {
		touch(small, i, i + 1);
		touch(large, i, i + 1);
		check(held(small) <= 4 * SEG, "%zu", held(small));
	}
	check(umunmap(large, 0) == 0 && umunmap(small, 0) == 0);
}

/* A large segment in a group of small ones: the budget has room for four of the largest size. */
Test(group, smallest_budget_is_that_of_the_largest_segment)
{
	struct ummap_attr attr = member("g", NULL, 8 * SEG);
	uint8_t *small, *large;

	start(64 * MIB);
	small = map_new("g", NULL, 8 * SEG, SIZE);
	attr.seg_size = 4 * SEG;
	check(open_new(&attr, SIZE, (void **)&large) == 0);
	touch(small, 0, SEGS);
	for (size_t i = 0; i < SEGS; i++) {
		touch(large, i, i + 1);
		touch(small, i, i + 1);
		check(charged(small) <= 16 * SEG, "%zu", charged(small));
	}
	check(umunmap(large, 0) == 0);
	touch(small, 0, SEGS);
	check(charged(small) <= 8 * SEG, "%zu", charged(small));
	check(umunmap(small, 0) == 0);
}

Test(group, pins_count_together)
{
	uint8_t *a, *b, *other;

	start(64 * MIB);
	a = map_new("g", NULL, 16 * SEG, SIZE), b = map_new("g", NULL, 16 * SEG, SIZE);
	other = map_new(NULL, NULL, 0, SIZE);
	check(umpin(a, 10 * SEG, PROT_READ) == 0);
	check(umpin(other, SIZE, PROT_READ) == 0);
	check_fails(umpin(b, 7 * SEG, PROT_READ), ENOMEM);
	check(umpin(b, 6 * SEG, PROT_READ) == 0);
	/* Pins use the whole budget of the group. A few other segments exceed it and evict each
	 * other. */
	touch(b, 6, SEGS);
	check(charged(b) <= 26 * SEG, "%zu", charged(b));
	check(umunpin(a, 10 * SEG) == 0 && umunpin(b, 6 * SEG) == 0 && umunpin(other, SIZE) == 0);
	touch(b, 0, SEGS);
	check(charged(b) <= 16 * SEG, "%zu", charged(b));
	check(umunmap(a, 0) == 0 && umunmap(b, 0) == 0 && umunmap(other, 0) == 0);
}

/* ---- Protection from other mappings ---- */

/* One mapping is idle while another one needs memory. Returns how many segments the first loses. */
static uint64_t lost_to(const uint8_t *hot, uint8_t *quiet, size_t segs)
{
	touch(quiet, 0, segs);
	for (int pass = 0; pass < 4; pass++)
		touch(hot, 0, SEGS);
	wait_for_jobs();
	return stat_of(quiet).evictions;
}

Test(group, hot_mapping_does_not_starve_a_group)
{
	uint8_t *hot, *quiet, *free;

	start(4 * MIB);
	hot = map_new(NULL, NULL, 0, SIZE);
	free = map_new(NULL, NULL, 0, SIZE);
	check(lost_to(hot, free, 16) == 16, "%" PRIu64, stat_of(free).evictions);
	quiet = map_new("g", NULL, 16 * SEG, SIZE);
	check(lost_to(hot, quiet, 16) == 0, "%" PRIu64, stat_of(quiet).evictions);
	touch(quiet, 0, 16);
	check(stat_of(quiet).read_faults == 16 && stat_of(quiet).inactive_hits == 0);
	check(held(hot) + held(free) + held(quiet) <= 4 * MIB);
	check(umunmap(hot, 0) == 0 && umunmap(free, 0) == 0 && umunmap(quiet, 0) == 0);
}

/* A group gets its budget back from mappings that used it meanwhile. */
Test(group, unused_budget_is_used_by_others)
{
	/* If several frames are freed together, there may be room for some more. */
	const size_t room = engine_is("sigbus") ? 4 * MIB / 32 : 0;
	uint8_t *hot, *late;

	start(4 * MIB);
	hot = map_new(NULL, NULL, 0, SIZE);
	late = map_new("g", NULL, 32 * SEG, SIZE);
	touch(hot, 0, SEGS);
	check(charged(hot) >= 4 * MIB - room, "%zu", charged(hot));
	touch(late, 0, 32);
	check(charged(late) == 32 * SEG && stat_of(late).evictions == 0, "%zu", charged(late));
	check(charged(hot) >= 4 * MIB - 32 * SEG - room, "%zu", charged(hot));
	check(stat_of(NULL).over_budget_peak == 0);
	check(umunmap(hot, 0) == 0 && umunmap(late, 0) == 0);
}

/* Two groups whose budgets are the whole limit: each is guaranteed half, and may use more. */
Test(group, budgets_that_add_up_to_more)
{
	uint8_t *hot, *quiet;

	start(4 * MIB);
	hot = map_new("hot", NULL, 4 * MIB, SIZE), quiet = map_new("quiet", NULL, 4 * MIB, SIZE);
	touch(hot, 0, SEGS);
	check(charged(hot) == 4 * MIB, "%zu", charged(hot));
	check(lost_to(hot, quiet, 32) == 0, "%" PRIu64, stat_of(quiet).evictions);
	check(charged(hot) <= 2 * MIB && charged(quiet) == 32 * SEG);
	touch(quiet, 0, SEGS);
	check(held(quiet) <= 2 * MIB + SEG, "%zu", held(quiet));
	check(stat_of(NULL).over_budget_peak == 0);
	check(umunmap(hot, 0) == 0 && umunmap(quiet, 0) == 0);
}

/* A mapping without a budget works even if the groups are guaranteed everything. */
Test(group, mapping_without_a_budget_works)
{
	uint8_t *mine, *theirs;

	start(2 * MIB);
	theirs = map_new("g", NULL, 2 * MIB, SIZE), mine = map_new(NULL, NULL, 0, SIZE);
	touch(theirs, 0, SEGS);
	/* One instruction needs two segments. */
	for (size_t i = 0; i + 1 < SEGS; i++)
		check(((const volatile struct unaligned *)(mine + (i + 1) * SEG - 1))->value == 0);
	/* A worker that deactivates segments has them, and no counter, for a moment. */
	wait_for_jobs();
	check(held(theirs) >= 2 * MIB - 10 * SEG && held(theirs) + held(mine) <= 2 * MIB, "%zu",
	      held(theirs));
	check(umunmap(theirs, 0) == 0 && umunmap(mine, 0) == 0);
}

/* A thread that stores waits for its own writes, and takes no clean segments of a group. */
Test(group, hot_writer_does_not_starve_a_group)
{
	uint8_t *hot, *quiet;

	start(4 * MIB);
	hot = map_new(NULL, NULL, 0, SIZE), quiet = map_new("g", NULL, 16 * SEG, SIZE);
	touch(quiet, 0, 16);
	for (int pass = 0; pass < 4; pass++)
		for (size_t i = 0; i < SEGS; i++)
			hot[i * SEG] = 1;
	check(stat_of(quiet).evictions == 0, "%" PRIu64, stat_of(quiet).evictions);
	check(umunmap(hot, 0) == 0 && umunmap(quiet, 0) == 0);
}

/* ---- Readahead ---- */

Test(group, reading_ahead_takes_nothing_that_is_in_use)
{
	uint8_t *used, *wanted;

	set_budget(4 * MIB);
	used = map_new(NULL, NULL, 0, SIZE), wanted = map_new(NULL, NULL, 0, SIZE);
	check(umadvise(used, SIZE, UMMAP_ADV_RANDOM) == 0);
	touch(used, 0, 64);
	for (int i = 0; i < 4; i++) {
		check(umadvise(wanted, SIZE, UMMAP_ADV_WILLNEED) == 0);
		wait_for_jobs();
	}
	check(stat_of(used).evictions == 0, "%" PRIu64, stat_of(used).evictions);
	check(stat_of(used).resident_bytes == 64 * SEG);
	check(held(wanted) == 0);
	check(umsync(used, 1) == 0);
	check(umadvise(wanted, SIZE, UMMAP_ADV_WILLNEED) == 0);
	for (double end = now() + 60; stat_of(wanted).readahead_loads < 64 && now() < end;)
		pause_ms(10);
	check(stat_of(wanted).readahead_loads == 64, "%" PRIu64, stat_of(wanted).readahead_loads);
	check(umunmap(used, 0) == 0 && umunmap(wanted, 0) == 0);
}

/* Most of a pass over eight times the budget is read ahead, and another group keeps its segments.
 * */
static bool reads_ahead(size_t budget, size_t size, struct umstat *st)
{
	uint8_t *run = map_new(NULL, NULL, budget, size);

	for (size_t i = 0; i < size / SEG; i++) {
		touch(run, i, i + 1);
		usleep(200);  /* the work on a segment */
	}
	*st = stat_of(run);
	check(umunmap(run, 0) == 0);
	return st->readahead_hits >= size / SEG * 3 / 4 && st->readahead_waste <= 16;
}

/* The reader or the workers may get no processor for a while, so one of several passes counts. */
static void pass_over(size_t budget)
{
	struct umstat st;
	uint8_t *quiet;
	bool calm = false;

	set_budget(budget ? 64 * MIB : 4 * MIB + 16 * SEG);
	quiet = map_new("quiet", NULL, 16 * SEG, SIZE);
	check(umadvise(quiet, SIZE, UMMAP_ADV_RANDOM) == 0);
	touch(quiet, 0, 16);
	for (int i = 0; i < 6 && !calm; i++)
		calm = reads_ahead(budget, 32 * MIB, &st);
	check(calm, "the last of them: %" PRIu64 " hits, %" PRIu64 " wasted", st.readahead_hits,
	      st.readahead_waste);
	check(stat_of(quiet).evictions == 0, "%" PRIu64, stat_of(quiet).evictions);
	check(umunmap(quiet, 0) == 0);
}

Test(group, sequential_pass_reads_ahead)
{
	pass_over(0);
}

Test(group, sequential_pass_reads_ahead_in_its_own_budget)
{
	pass_over(4 * MIB);
}

/* ---- Joining, leaving ---- */

static void refused(const char *group, const char *policy, int ptype, size_t budget,
		    const char *why)
{
	struct ummap_attr attr = member(group, policy, budget);
	uint64_t mappings = stat_of(NULL).mappings;
	void *addr = NULL;

	attr.ptype = ptype;
	check_fails(open_new(&attr, SIZE, &addr), EINVAL);
	check(strstr(umerrormsg(), why), "no \"%s\"", why);
	check(!addr && stat_of(NULL).mappings == mappings);
}

Test(group, names)
{
	struct ummap_attr attr = member("abcdefghijklmnopqrstuvwxyzABCDE", NULL, 0);
	static const char *const wrong[] = {
		"", "a b", "a/b", "a:b", "a\n", "\xc3\xa4", "abcdefghijklmnopqrstuvwxyzABCDEF",
	};
	void *addr;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		refused(wrong[i], NULL, 0, 0, "cannot use the group name");
	check(open_new(&attr, SIZE, &addr) == 0);
	check(umunmap(addr, 0) == 0);
	attr.group = "Z-9_.";
	check(open_new(&attr, SIZE, &addr) == 0);
	check(umunmap(addr, 0) == 0);
}

Test(group, wrong_joins_are_refused)
{
	uint8_t *one, *same, *none, *open;

	start(64 * MIB);
	one = map_new("g", "prnd:seed=7", 2 * MIB, SIZE);
	refused("g", "fifo", 0, 0, "'fifo': its policy is 'prnd:seed=7'");
	refused("g", "prnd", 0, 0, "'prnd:seed=7'");
	refused("g", "nonesuch", 0, 0, "'prnd:seed=7'");
	refused("g", NULL, UMMAP_PTYPE_WIRO_L, 0, "the policy 'wiro-l'");
	refused("g", NULL, 0, 3 * MIB, "3145728 bytes: its budget is 2097152 bytes");
	same = map_new("g", "prnd:seed=7", 2 * MIB, SIZE);
	none = map_new("g", NULL, 0, SIZE);
	open = map_new("h", NULL, 0, SIZE);
	refused("h", NULL, 0, MIB, "has no budget of its own");
	refused("h", "lifo", 0, 0, "its policy is 's3fifo'");
	check(stat_of(none).budget_bytes == 2 * MIB && stat_of(open).budget_bytes == 64 * MIB);
	check(umunmap(one, 0) == 0 && umunmap(same, 0) == 0 && umunmap(none, 0) == 0 &&
	      umunmap(open, 0) == 0);
}

/* The first mapping of a group sets the policy, so joining by name shows the policy of a number. */
static void number_means(int ptype, const char *policy)
{
	struct ummap_attr attr = member("numbers", NULL, 0);
	uint8_t *same;
	void *addr;

	attr.ptype = ptype;
	check(open_new(&attr, SIZE, &addr) == 0);
	same = map_new("numbers", policy, 0, SIZE);
	check(umunmap(same, 0) == 0 && umunmap(addr, 0) == 0);
}

Test(group, each_number_means_its_policy)
{
	start(64 * MIB);
	number_means(0, "s3fifo");
	number_means(UMMAP_PTYPE_DEFAULT, "s3fifo");
	number_means(UMMAP_PTYPE_FIFO, "fifo");
	number_means(UMMAP_PTYPE_LIFO, "lifo");
	number_means(UMMAP_PTYPE_PLRU, "plru");
	number_means(UMMAP_PTYPE_PRND, "prnd");
	number_means(UMMAP_PTYPE_WIRO_F, "wiro-f");
	number_means(UMMAP_PTYPE_WIRO_L, "wiro-l");
	number_means(UMMAP_PTYPE_S3FIFO, "s3fifo");
}

Test(group, ends_with_its_last_mapping)
{
	uint8_t *first, *last;

	first = map_new("g", "lifo", MIB, SIZE), last = map_new("g", NULL, 0, SIZE);
	touch(first, 0, SEGS);
	touch(last, 0, SEGS);
	check(umunmap(first, 0) == 0);
	/* Frames of background transfers are in no list for a moment. */
	for (int ms = 0; ms < 60000 && charged(last) != held(last); ms++)
		usleep(1000);
	check(charged(last) == held(last));
	refused("g", "plru", 0, 0, "its policy is 'lifo'");
	check(umunmap(last, 0) == 0);
	first = map_new("g", "plru", 2 * MIB, SIZE);
	check(charged(first) == 0 && stat_of(first).budget_bytes == 2 * MIB);
	check(umunmap(first, 0) == 0);
}

/* A mapping that cannot be made leaves no group behind. */
Test(group, failures_leave_no_group)
{
	struct ummap_attr attr = member("g", "lifo", MIB);
	void *addr;

	check(ummap_open("posix:/nowhere/at/all", SIZE, 0, READ_WRITE, &attr, &addr) == -1 &&
	      errno == ENOENT);
	refused("g", "nonesuch", 0, 0, "cannot find the policy");
	refused("g", "fifo:seed=1", 0, 0, "the arguments 'seed=1' are not valid. Try 'fifo'");
	refused("g", "prnd:seed=x", 0, 0, "the arguments 'seed=x' are not valid. Try 'prnd'");
	check(umunmap(map_new("g", "plru", 2 * MIB, SIZE), 0) == 0);
}

/* A program that was built before groups existed. */
Test(group, older_attributes)
{
	struct ummap_attr attr = member("no/group", "lifo", MIB);
	void *addr;

	attr.struct_size = offsetof(struct ummap_attr, group);
	check(open_new(&attr, SIZE, &addr) == 0);
	check(stat_of(addr).budget_bytes == MIB);
	check(umunmap(addr, 0) == 0);
}

/* ---- umremap, fork ---- */

static void check_all(const uint8_t *m, size_t size, uint64_t seed)
{
	for (size_t at = 0; at < size; at += SEG)
		check_bytes(m + at, 64, at, seed);
}

/* A mapping that grows stays in its group, with its new segments. */
Test(group, survives_umremap)
{
	uint8_t *maps[2];
	void *addr;
	int fd;

	start(64 * MIB);
	for (int i = 0; i < 2; i++)
		maps[i] = map_new("g", NULL, 16 * SEG, SIZE);
	for (int turn = 1; turn <= 4; turn++) {
		size_t size = SIZE * turn;

		addr = maps[0];
		fd = temp_file(size);
		check(umremap(addr, size, fd, 0, 0, &addr) == 0);
		maps[0] = addr;
		for (size_t at = 0; at < size; at += SEG) {
			fill(maps[0] + at, 64, at, turn);
			fill(maps[1] + at % SIZE, 64, at % SIZE, 9);
		}
		check(charged(maps[0]) <= 16 * SEG && stat_of(maps[0]).budget_bytes == 16 * SEG);
		check(umsync(maps[0], 0) == 0);
		check_file(fd, size - SEG, 64, size - SEG, turn);
		check_all(maps[0], size, turn);
		check_all(maps[1], SIZE, 9);
		close(fd);
	}
	addr = maps[0];
	check(umremap(addr, SIZE, -1, -1, 0, &addr) == 0);
	check_all(maps[0], SIZE, 4);
	check(umunmap(maps[0], 1) == 0 && umunmap(maps[1], 1) == 0);
}

static void child(void *parents)
{
	uint8_t *m = map_new("g", "plru", 2 * MIB, SIZE);

	(void)parents;
	touch(m, 0, SEGS);
	check(charged(m) <= 2 * MIB && stat_of(NULL).mappings == 1);
	check(umunmap(m, 0) == 0);
}

Test(group, child_has_none)
{
	uint8_t *m;

	start(64 * MIB);
	m = map_new("g", "lifo", MIB, SIZE);
	touch(m, 0, SEGS);
	check_exits(run_child(child, m), 0);
	refused("g", "plru", 0, 0, "its policy is 'lifo'");
	touch(m, 0, SEGS);
	check(charged(m) <= MIB);
	check(umunmap(m, 0) == 0);
}
