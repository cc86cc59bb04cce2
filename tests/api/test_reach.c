/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umexport and umimport_*: which processes may import a mapping, which calls fail, and what a get
 * or a put transfers for segments in each state. prog_reach tests all of this at the same time.
 */
#include <criterion/criterion.h>

#include "common.h"

#define SEG (64 * KIB)
#define SEGS ((size_t)16)
#define SIZE (SEGS * SEG - 100)  /* the last segment is short */
#define BUDGET (4 * SEGS * SEG)  /* large enough to avoid evictions */
#define OLD 1
#define NEW 2
#define LATER 3

static uint8_t *open_beside(int *fd, size_t size, int prot, size_t budget, size_t before)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char name[32], path[320], uri[400];
	void *addr;

	snprintf(name, sizeof(name), "store%d", (int)getpid());
	set_env("UMMAP_ENGINE", "segv");
	set_budget(budget);
	*fd = temp_named(name, 0, path);
	file_fill(*fd, 0, size, 0, OLD);
	snprintf(uri, sizeof(uri), "posix:%s", path);
	attr.seg_size = SEG;
	attr.flags = UMMAP_SHARED;
	attr.before = before;
	check(ummap_open(uri, size, 0, prot, &attr, &addr) == 0);
	check(umadvise(addr, 1, UMMAP_ADV_RANDOM) == 0);
	return addr;
}

static uint8_t *open_shared(int *fd, size_t size, int prot, size_t budget)
{
	return open_beside(fd, size, prot, budget, 0);
}

static struct umimport *open_peer(void *m)
{
	struct umexport offer;
	struct umimport *peer;

	check(umexport(m, &offer) == 0);
	check(umimport_open(&offer, &peer) == 0);
	return peer;
}

static void load(const uint8_t *m, size_t at)
{
	(void)*(const volatile uint8_t *)(m + at);
}

static void store(uint8_t *m, size_t at)
{
	*(volatile uint8_t *)(m + at) = pattern(at, OLD);
}

/* Checks the bytes of a get. Returns their number. */
static size_t check_get(struct umimport *peer, size_t len, uint64_t at, uint64_t seed)
{
	uint8_t *buf = calloc(1, len);
	size_t got = umimport_get(peer, buf, len, at);

	check(got <= len);
	check_bytes(buf, got, at, seed);
	check_zeros(buf + got, len - got);
	free(buf);
	return got;
}

static size_t do_put(struct umimport *peer, size_t len, uint64_t at, uint64_t seed)
{
	uint8_t *buf = malloc(len);
	size_t put;

	fill(buf, len, at, seed);
	put = umimport_put(peer, buf, len, at);
	free(buf);
	return put;
}

/* ---- Refusals ---- */

static void try_open(unsigned flags, int engine, int error)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.flags = flags;
	attr.engine = engine;
	check_fails(ummap_open("mem:64K", 64 * KIB, 0, READ_WRITE, &attr, &addr), error);
}

Test(reach, is_refused_where_it_cannot_be)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	set_env("UMMAP_ENGINE", "auto");
	set_group();
	try_open(UMMAP_SHARED | UMMAP_KERNEL, UMMAP_ENGINE_DEFAULT, EOPNOTSUPP);
	try_open(UMMAP_SHARED, UMMAP_ENGINE_UFFD, EOPNOTSUPP);
	/* Small segments, for which the engine would be uffd. */
	attr.flags = UMMAP_SHARED;
	attr.seg_size = 4 * KIB;
	check(ummap_open("mem:64K", 64 * KIB, 0, READ_WRITE, &attr, &addr) == 0);
	umimport_close(open_peer(addr));
	check(umunmap(addr, 0) == 0);
	attr.seg_size = 8 * GIB;
	check_fails(ummap_open("null:64G", 64 * GIB, 0, PROT_READ, &attr, &addr), EINVAL);
}

Test(reach, is_refused_by_the_environment)
{
	set_env("UMMAP_ENGINE", "uffd");
	set_group();
	try_open(UMMAP_SHARED, UMMAP_ENGINE_DEFAULT, EOPNOTSUPP);
}

Test(reach, offers_only_what_is_shared)
{
	struct umexport offer;
	int fd;
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, BUDGET), *other;

	other = map_file(fd, SIZE, SEG, PROT_READ, 0);
	check_fails(umexport(other, &offer), EOPNOTSUPP);
	check_fails(umexport(m + 1, &offer), EINVAL);
	check_fails(umexport(m, NULL), EINVAL);
	check_fails(umexport(&fd, &offer), EINVAL);
	check(umexport(m, &offer) == 0);
}

/* Word 0: magic and process; 1: descriptors; 2: machine; 3: namespace; 5, 6: inodes. */
Test(reach, refuses_bad_offers)
{
	static const struct { int word; uint64_t change; int error;
	} bad[] = {
		{ 0, 1, EINVAL },          { 2, 1, EXDEV },  { 3, 1, EXDEV },
		{ 5, 1, ESTALE },          { 6, 1, ESTALE }, { 1, 1ull << 20, ESTALE },
		{ 1, 1ull << 52, ESTALE },
	};
	struct umexport good, o;
	struct umimport *peer;
	int fd, before;
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, BUDGET);

	check(umexport(m, &good) == 0);
	before = count_fds();
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		o = good;
		o.word[bad[i].word] ^= bad[i].change;
		check_fails(umimport_open(&o, &peer), bad[i].error);
	}
	/* Descriptors of other files. */
	o = good;
	o.word[1] = (uint64_t)fd << 32 | (uint32_t)fd;
	check_fails(umimport_open(&o, &peer), ESTALE);
	check_fails(umimport_open(NULL, &peer), EINVAL);
	check_fails(umimport_open(&good, NULL), EINVAL);
	check(umunmap(m, 0) == 0);
	check_fails(umimport_open(&good, &peer), ESTALE);
	check(count_fds() <= before, "%d, before %d", count_fds(), before);
}

/* An access behind the end of a mapped object would raise SIGBUS. */
Test(reach, refuses_memory_that_is_too_short)
{
	struct umexport o;
	struct umimport *peer;
	struct stat st;
	int fd, pool = memfd_create("pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, BUDGET);

	check(umexport(m, &o) == 0);
	check(pool >= 0 && ftruncate(pool, SEG) == 0 &&
	      fcntl(pool, F_ADD_SEALS, F_SEAL_SHRINK) == 0 && fstat(pool, &st) == 0);
	o.word[1] = (uint64_t)pool << 32 | (uint32_t)o.word[1];
	o.word[6] = st.st_ino;
	check_fails(umimport_open(&o, &peer), EINVAL);
	check(umunmap(m, 0) == 0);
	close(pool);
}

/* Memory that this process and its children share. */
struct common {
	struct umexport offer;
	_Atomic bool offered, inside, go_on;
	_Atomic size_t copied;
	uint8_t bytes[2 * SEG];
};

static struct common *common;

static void account_common(void)
{
	common = mmap(NULL, sizeof(*common), READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(common != MAP_FAILED);
}

static void offer_and_die(void *unused)
{
	int fd;

	(void)unused;
	check(umexport(open_shared(&fd, SIZE, READ_WRITE, BUDGET), &common->offer) == 0);
}

Test(reach, refuses_who_is_dead)
{
	struct umimport *peer;

	account_common();
	check_exits(run_child(offer_and_die, NULL), 0);
	check_fails(umimport_open(&common->offer, &peer), ESRCH);
}

static void become_nobody(void *offer)
{
	struct umimport *peer;

	check(setgid(65534) == 0 && setuid(65534) == 0);
	check_fails(umimport_open(offer, &peer), EACCES);
}

Test(reach, refuses_other_users)
{
	struct umexport offer;
	int fd;

	if (getuid() != 0)
		cr_skip_test("only root can become another user");
	check(umexport(open_shared(&fd, SIZE, READ_WRITE, BUDGET), &offer) == 0);
	check_exits(run_child(become_nobody, &offer), 0);
}

/* ---- States ---- */

Test(reach, gets_what_is_in_memory)
{
	int fd;
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, BUDGET);
	struct umimport *peer = open_peer(m);

	check(check_get(peer, SIZE, 0, OLD) == 0);
	check(stat_of(m).resident_bytes == 0, "a get loads nothing");
	load(m, 0);
	load(m, SEG);
	load(m, 3 * SEG);
	check(check_get(peer, SIZE, 0, OLD) == 2 * SEG);
	check(check_get(peer, 8, SEG - 4, OLD) == 8);
	check(check_get(peer, 8, 2 * SEG - 4, OLD) == 4);
	check(check_get(peer, 8, 2 * SEG, OLD) == 0);
	check(check_get(peer, 5000, 3 * SEG + 77, OLD) == 5000);
	umimport_close(peer);
	check(umunmap(m, 0) == 0);
}

/* Copies set no message, and clear that of an earlier call. */
Test(reach, leaves_no_message)
{
	int fd;
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, BUDGET), byte = 0;
	struct umimport *peer = open_peer(m);
	struct umhold hold;

	load(m, 0);
	check_fails(umsync(NULL, 0), EINVAL);
	check(umimport_get(peer, &byte, 1, 0) == 1 && !*umerrormsg());
	check_fails(umsync(NULL, 0), EINVAL);
	check(umimport_put(peer, &byte, 1, SIZE) == 0 && !*umerrormsg());
	check_fails(umsync(NULL, 0), EINVAL);
	check(umimport_hold(peer, 0, false, &hold) == 0 && !*umerrormsg());
	umimport_release(&hold);
	umimport_close(peer);
	check(umunmap(m, 0) == 0);
}

Test(reach, ends_where_the_mapping_ends)
{
	int fd;
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, BUDGET);
	struct umimport *peer = open_peer(m);

	fill(m, SIZE, 0, NEW);
	check(check_get(peer, SEG, SIZE - 10, NEW) == 10);
	check(do_put(peer, SEG, SIZE - 10, LATER) == 10);
	check(check_get(peer, 1, SIZE, NEW) == 0 && do_put(peer, 1, SIZE, NEW) == 0);
	check(check_get(peer, 1, UINT64_MAX, NEW) == 0 &&
	      do_put(peer, 1, UINT64_MAX - 7, NEW) == 0);
	check(check_get(peer, SIZE - 10, 0, NEW) == SIZE - 10);
	check(umunmap(m, 1) == 0);
	check_file(fd, SIZE - 10, 10, SIZE - 10, LATER);
	check(file_size(fd) == SIZE);
	umimport_close(peer);
}

Test(reach, puts_only_where_it_will_be_written)
{
	int fd;
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, BUDGET);
	struct umimport *peer = open_peer(m);

	check(do_put(peer, 100, 0, NEW) == 0);
	load(m, 0);
	check(do_put(peer, 100, 0, NEW) == 0);
	store(m, SEG - 1);
	check(do_put(peer, SEG + 100, 0, NEW) == SEG);
	check_bytes(m, SEG, 0, NEW);
	check(umsync(m, 0) == 0);
	check_file(fd, 0, SEG, 0, NEW);
	check_file(fd, SEG, SIZE - SEG, SEG, OLD);
	/* The segment is clean again, and can be read. */
	check(do_put(peer, 100, 0, LATER) == 0);
	check(check_get(peer, SEG, 0, NEW) == SEG);
	check(umsync(m, 1) == 0);
	check(check_get(peer, SEG, 0, NEW) == 0);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SEG, 0, NEW);
	umimport_close(peer);
}

Test(reach, holds_what_a_copy_could_reach)
{
	int fd;
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, BUDGET);
	struct umimport *peer = open_peer(m);
	struct umhold hold;

	check(umimport_hold(peer, 8, false, &hold) == -1 &&
	      umimport_hold(peer, SIZE, false, &hold) == -1);
	load(m, 0);
	check(umimport_hold(peer, 8, true, &hold) == -1, "clean");
	check(umimport_hold(peer, 8, false, &hold) == 0 && hold.len == SEG - 8);
	check_bytes(hold.addr, hold.len, 8, OLD);
	umimport_release(&hold);
	fill(m, SIZE, 0, NEW);
	check(umimport_hold(peer, SIZE - 100, true, &hold) == 0 && hold.len == 100 &&
	      hold.addr != (char *)m + SIZE - 100);
	fill((uint8_t *)hold.addr, hold.len, SIZE - 100, LATER);
	umimport_release(&hold);
	check(umunmap(m, 1) == 0);
	check(umimport_hold(peer, 8, false, &hold) == -1, "the mapping has ended");
	check_file(fd, 0, SIZE - 100, 0, NEW);
	check_file(fd, SIZE - 100, 100, SIZE - 100, LATER);
	umimport_close(peer);
}

Test(reach, knows_what_meets_a_mapping)
{
	int fd;
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, BUDGET);

	check(ummapped(m, 1) == 1 && ummapped(m + SIZE - 1, 100) == 1 && ummapped(m - 1, 2) == 1);
	check(ummapped(m - 100, 100) == 0 && ummapped(&fd, sizeof(fd)) == 0);
	check(umunmap(m, 0) == 0);
	check(ummapped(m, SIZE) == 0);
}

Test(reach, never_puts_into_what_is_read_only)
{
	int fd;
	uint8_t *m = open_shared(&fd, SIZE, PROT_READ, BUDGET);
	struct umimport *peer = open_peer(m);

	for (size_t at = 0; at < SIZE; at += SEG)
		load(m, at);
	check(check_get(peer, SIZE, 0, OLD) == SIZE);
	check(do_put(peer, SIZE, 0, NEW) == 0);
	check(umunmap(m, 1) == 0);
	umimport_close(peer);
}

Test(reach, gets_what_was_read_ahead)
{
	int fd;
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, BUDGET);
	struct umimport *peer = open_peer(m);

	check(umadvise(m + SEG, 3 * SEG, UMMAP_ADV_WILLNEED) == 0);
	while (check_get(peer, 3 * SEG, SEG, OLD) < 3 * SEG)
		pause_ms(1);
	check(stat_of(m).resident_bytes == 0 && stat_of(m).inactive_bytes == 3 * SEG);
	check(do_put(peer, 3 * SEG, SEG, NEW) == 0);
	check(umunmap(m, 1) == 0);
	umimport_close(peer);
}

/* Inactive segments can be accessed until their frames are reused. Changes are kept. */
Test(reach, keeps_what_was_put_through_eviction)
{
	int fd;
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, SEGS / 2 * SEG);
	struct umimport *peer = open_peer(m);
	uint64_t changed = 0;

	for (int round = 0; round < 20; round++) {
		for (size_t i = 0; i < SEGS; i++) {
			size_t at = i * SEG, len = i == SEGS - 1 ? SIZE - at : SEG;

			/* A thread that evicts may hold the lock of the segment for a moment. */
			do
				load(m, at);
			while (check_get(peer, len, at, changed & 1ull << i ? NEW : OLD) < len);
			if ((i + (size_t)round) % 3)
				continue;
			fill(m + at, len, at, OLD);
			if (do_put(peer, len, at, NEW) == len)
				changed |= 1ull << i;
			else
				changed &= ~(1ull << i);
			/* Other segments, if they are in memory. */
			for (size_t k = 0; k < SEGS - 1; k++)
				check_get(peer, SEG, k * SEG, changed & 1ull << k ? NEW : OLD);
		}
	}
	check(stat_of(m).evictions > 0);
	check(umunmap(m, 1) == 0);
	for (size_t i = 0; i < SEGS; i++)
		check_file(fd, i * SEG, i == SEGS - 1 ? SIZE - i * SEG : SEG, i * SEG,
			   changed & 1ull << i ? NEW : OLD);
	umimport_close(peer);
}

Test(reach, comes_short_when_the_mapping_ends)
{
	int fd;
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, BUDGET);
	struct umimport *peer = open_peer(m);

	fill(m, SIZE, 0, NEW);
	check(check_get(peer, SIZE, 0, NEW) == SIZE);
	check(umunmap(m, 0) == 0);
	check(check_get(peer, SIZE, 0, NEW) == 0 && do_put(peer, SIZE, 0, NEW) == 0);
	umimport_close(peer);
	umimport_close(NULL);
}

/* ---- The size ---- */

Test(reach, follows_the_size)
{
	int fd;
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, BUDGET);
	struct umimport *peer = open_peer(m);
	void *base = NULL;

	fill(m, SIZE, 0, NEW);
	check(umremap(m, SIZE + SEG, -1, -1, 0, &base) == 0);
	m = base;
	fill(m, SIZE + SEG, 0, NEW);
	/* The last segment is complete now. Further segments are not accessible. */
	check(check_get(peer, SIZE + SEG, 0, NEW) == SEGS * SEG);
	check(do_put(peer, SEG, SEGS * SEG - 100, LATER) == 100);
	check(do_put(peer, 1, SEGS * SEG, LATER) == 0);
	base = NULL;
	check(umremap(m, SEG + 10, -1, -1, 0, &base) == 0);
	m = base;
	load(m, SEG);
	check(check_get(peer, SIZE, 0, NEW) == SEG + 10);
	check(umunmap(m, 1) == 0);
	umimport_close(peer);
}

Test(reach, carries_what_was_put)
{
	int fd, other = temp_file(0);
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, BUDGET);
	struct umimport *peer = open_peer(m);
	void *base = NULL;

	fill(m, SIZE, 0, OLD);
	check(do_put(peer, SIZE, 0, NEW) == SIZE);
	check(umremap(m, 0, other, 0, 0, &base) == 0);
	check(do_put(peer, SEG, SEG, LATER) == SEG);
	check(umunmap(base, 1) == 0);
	check_file(other, 0, SEG, 0, NEW);
	check_file(other, SEG, SEG, SEG, LATER);
	check_file(other, 2 * SEG, SIZE - 2 * SEG, 2 * SEG, NEW);
	umimport_close(peer);
}

/* ---- Fork ---- */

static void have_no_peer(void *peer)
{
	uint8_t byte;

	check(umimport_get(peer, &byte, 1, 0) == 0 && umimport_put(peer, &byte, 1, 0) == 0);
	umimport_close(peer);
}

static void be_no_owner(void *m)
{
	struct umexport offer;
	struct umimport *peer;
	int fd;

	check_fails(umexport(m, &offer), EINVAL);
	/* The child can export its own mappings. */
	m = open_shared(&fd, SIZE, READ_WRITE, BUDGET);
	peer = open_peer(m);
	load(m, SEG);
	check(check_get(peer, SEG, SEG, OLD) == SEG);
	umimport_close(peer);
	check(umunmap(m, 1) == 0);
}

Test(reach, is_not_inherited)
{
	int fd;
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, BUDGET);
	struct umimport *peer = open_peer(m);

	fill(m, SIZE, 0, NEW);
	check_exits(run_child(have_no_peer, peer), 0);
	check_exits(run_child(be_no_owner, m), 0);
	check(check_get(peer, SIZE, 0, NEW) == SIZE && do_put(peer, SIZE, 0, LATER) == SIZE);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SIZE, 0, LATER);
	umimport_close(peer);
}

/* ---- Buffers in mappings that are absent: to load them, the source may have to be evicted ---- */

Test(reach, copies_within_one_mapping)
{
	int fd;
	uint8_t *m = open_shared(&fd, SIZE, READ_WRITE, 4 * SEG);
	struct umimport *peer = open_peer(m);
	uint64_t random = 1;
	size_t got = 0, put = 0;

	for (int i = 0; i < 2000; i++) {
		size_t len = 1 + next_random(&random) % (SEG / 2);
		size_t from = next_random(&random) % (SIZE - len),
		       to = next_random(&random) % (SIZE - len);

		load(m, from);
		if (i % 2) {
			got += umimport_get(peer, m + to, len, from);
		} else {
			store(m, to);
			put += umimport_put(peer, m + from, len, to);
		}
	}
	check(got > 0 && put > 0);
	check(umunmap(m, 0) == 0);
	umimport_close(peer);
}

/* A buffer whose end is in the mapping may wait for the mapping, too. */
Test(reach, copies_from_beside)
{
	const size_t beside = 8 * KIB;
	int fd, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	uint8_t *m = open_beside(&fd, SIZE, READ_WRITE, 4 * SEG, beside);
	struct umimport *peer = open_peer(m);
	uint64_t random = 1;
	size_t got = 0, put = 0;

	check(mmap(m - beside, beside, READ_WRITE, flags, -1, 0) == m - beside);
	for (int i = 0; i < 2000; i++) {
		size_t len = beside + 1 + next_random(&random) % (SEG / 2);
		size_t at = next_random(&random) % (SIZE - len);

		check(umadvise(m, 1, UMMAP_ADV_DONTNEED) == 0);
		if (i % 2) {
			load(m, at);
			got += umimport_get(peer, m - beside, len, at);
		} else {
			store(m, at);
			put += umimport_put(peer, m - beside, len, at);
		}
	}
	check(got > 0 && put > 0);
	check(umunmap(m, 0) == 0 && munmap(m - beside, beside) == 0);
	umimport_close(peer);
}

/* ---- An import that is delayed during an access: its buffer faults and waits for this process
 * ---- */

#define HELD (8 * KIB)

static uint8_t *trap;
static bool putting;

static void wait_here(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info, (void)context;
	common->inside = true;
	while (!common->go_on)
		pause_ms(1);
	mprotect(trap, HELD, READ_WRITE);
}

static void access_and_wait(void *unused)
{
	struct sigaction action = { .sa_sigaction = wait_here, .sa_flags = SA_SIGINFO };
	struct umimport *peer;

	(void)unused;
	while (!common->offered)
		pause_ms(1);
	check(umimport_open(&common->offer, &peer) == 0);
	trap = mmap(NULL, HELD, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fill(trap, HELD, 0, LATER);
	check(sigaction(SIGSEGV, &action, NULL) == 0);
	check(mprotect(trap + 4 * KIB, 4 * KIB, PROT_NONE) == 0);
	common->copied =
		putting ? umimport_put(peer, trap, HELD, 0) : umimport_get(peer, trap, HELD, 0);
	memcpy(common->bytes, trap, HELD);
	umimport_close(peer);
}

static _Atomic bool ended;

static void *sync_and_evict(void *m)
{
	check(umsync(m, 1) == 0);
	ended = true;
	return NULL;
}

/* Ends the mapping without a write, which would wait, too. */
static void *end_mapping(void *m)
{
	check(umunmap(m, 0) == 0);
	ended = true;
	return NULL;
}

/* Starts `work` while a child accesses segment 0, which is dirty or clean. */
static pid_t hold_segment(bool put, bool clean, uint8_t **m, int *fd, pthread_t *thread,
			  void *(*work)(void *))
{
	pid_t pid;

	account_common();
	putting = put;
	pid = start_child(access_and_wait, NULL);
	*m = open_shared(fd, SIZE, READ_WRITE, BUDGET);
	fill(*m, SEG, 0, NEW);
	if (clean)
		check(umsync(*m, 0) == 0);
	check(umexport(*m, &common->offer) == 0);
	common->offered = true;
	while (!common->inside)
		pause_ms(1);
	check(pthread_create(thread, NULL, work, *m) == 0);
	return pid;
}

static pid_t hold(bool put, uint8_t **m, int *fd, pthread_t *thread, void *(*work)(void *))
{
	return hold_segment(put, false, m, fd, thread, work);
}

/* Checks that the work waits for the access, and ends both. */
static void finish_access(pid_t pid, pthread_t thread)
{
	pause_ms(200);
	check(!ended, "the call did not wait for the access");
	common->go_on = true;
	check_exits(wait_child(pid), 0);
	check(pthread_join(thread, NULL) == 0);
	check(common->copied == HELD);
}

Test(reach_held, mapping_does_not_end)
{
	pthread_t thread;
	uint8_t *m;
	int fd;
	pid_t pid = hold(false, &m, &fd, &thread, end_mapping);

	finish_access(pid, thread);
	check_bytes(common->bytes, HELD, 0, NEW);
}

/* A clean segment stays, too: its frame would be reused for another segment. */
Test(reach_held, clean_does_not_leave)
{
	pthread_t thread;
	uint8_t *m;
	int fd;
	pid_t pid = hold_segment(false, true, &m, &fd, &thread, sync_and_evict);

	finish_access(pid, thread);
	check_bytes(common->bytes, HELD, 0, NEW);
	check(umunmap(m, 1) == 0);
}

Test(reach_held, put_is_written)
{
	pthread_t thread;
	uint8_t *m;
	int fd;
	pid_t pid = hold(true, &m, &fd, &thread, sync_and_evict);

	finish_access(pid, thread);
	check_file(fd, 0, HELD, 0, LATER);
	check_file(fd, HELD, SEG - HELD, HELD, NEW);
	check(umunmap(m, 1) == 0);
}

Test(reach_held, dead_are_not_waited_for)
{
	pthread_t thread;
	uint8_t *m;
	int fd;
	pid_t pid = hold(true, &m, &fd, &thread, sync_and_evict);

	check(kill(pid, SIGKILL) == 0);
	check_killed(wait_child(pid), SIGKILL);
	check(pthread_join(thread, NULL) == 0);
	check_file(fd, HELD, SEG - HELD, HELD, NEW);
	check(umunmap(m, 1) == 0);
}
