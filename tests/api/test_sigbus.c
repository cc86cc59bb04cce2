/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine sigbus: which SIGBUS it handles, stores during evictions, and its limits. */
#include <criterion/criterion.h>

#include "common.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define SEG ((size_t)4 * KIB)

static uint8_t *map_by(int engine, const char *uri, size_t size, size_t seg_size, int prot)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m;

	attr.engine = engine;
	attr.seg_size = seg_size;
	check(ummap_open(uri, size, 0, prot, &attr, &m) == 0, "%s", umerrormsg());
	return m;
}

static uint8_t *map_fd(int engine, int fd, size_t size, size_t seg_size)
{
	char uri[64];

	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", fd);
	return map_by(engine, uri, size, seg_size, READ_WRITE);
}

/* ---- Handlers ---- */

/* Returns a page of a file beyond its end, which no library can handle. */
static uint8_t *map_beyond(void)
{
	uint8_t *p = mmap(NULL, SEG, PROT_READ, MAP_SHARED, temp_file(0), 0);

	check(p != MAP_FAILED);
	return p;
}

Test(sigbus, handlers_of_programs)
{
	const size_t size = 64 * SEG;
	uint8_t *beyond = map_beyond(), *m, *other;
	struct sigaction act;
	uint64_t value;

	/* The linker finds the sanitizer's sigaction before that of the archive. */
	if (SANITIZED)
		cr_skip("the sanitizer's sigaction takes the place of the library's");
	/* A handler from before the library's, and a later one. */
	catch_sigbus();
	m = map_fd(UMMAP_ENGINE_SIGBUS, filled_file(size, 1), size, SEG);
	other = map_fd(UMMAP_ENGINE_SEGV, filled_file(size, 2), size, SEG);
	for (int pass = 0; pass < 2; pass++) {
		check(!try_load(beyond, &value) && bus_info.si_addr == beyond &&
		      bus_info.si_code == BUS_ADRERR);
		check_bytes(m, size, 0, 1);
		check_bytes(other, size, 0, 2);
		check(try_store(m, 5) && try_load(m, &value) && value == 5);
		check(sigaction(SIGBUS, NULL, &act) == 0);
		check(act.sa_sigaction == on_sigbus && (act.sa_flags & SA_SIGINFO));
		fill(m, 8, 0, 1);
		catch_sigbus();
	}
	check(umunmap(m, 0) == 0 && umunmap(other, 0) == 0);
}

/* Causes a SIGBUS of the library with either engine. */
static void fails_once(int engine)
{
	const size_t size = 4 * SEG;
	int fd = filled_file(size, 3);
	uint64_t value;
	char uri[128];
	uint8_t *m;

	snprintf(uri, sizeof(uri),
		 "error+posix:/proc/self/fd/%d?error.op=read&error.nth=1&error.errno=EIO", fd);
	m = map_by(engine, uri, size, SEG, READ_WRITE);
	check(!try_load(m + SEG + 100, &value));
	check((uint8_t *)bus_info.si_addr == m + SEG + 100 && bus_info.si_code == BUS_ADRERR);
	check(try_load(m + SEG + 100, &value));
	check_bytes(m, size, 0, 3);
	check(umunmap(m, 0) == 0);
	close(fd);
}

Test(sigbus, loads_that_fail)
{
	uint8_t *m = map_by(UMMAP_ENGINE_SIGBUS, "null:1M", MIB, SEG, READ_WRITE);

	catch_sigbus();
	fails_once(UMMAP_ENGINE_SIGBUS);
	fails_once(UMMAP_ENGINE_SEGV);
	check(umunmap(m, 0) == 0);
}

static void fail_unhandled(void *ignored)
{
	volatile uint8_t *m;

	(void)map_by(UMMAP_ENGINE_SIGBUS, "null:1M", MIB, SEG, READ_WRITE);
	if (ignored)
		signal(SIGBUS, SIG_IGN);
	m = map_by(ignored ? UMMAP_ENGINE_SEGV : UMMAP_ENGINE_SIGBUS,
		   "error+null:1M?error.op=read&error.times=always", MIB, SEG, PROT_READ);
	(void)m[0];
}

static void fault_blocked(void *unused)
{
	volatile uint8_t *m = map_by(UMMAP_ENGINE_SIGBUS, "null:1M", MIB, SEG, PROT_READ);
	sigset_t set;

	(void)unused;
	sigemptyset(&set);
	sigaddset(&set, SIGBUS);
	check(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	(void)m[0];
}

static void beyond_unhandled(void *unused)
{
	volatile uint8_t *beyond = map_beyond();

	(void)unused;
	(void)map_by(UMMAP_ENGINE_SIGBUS, "null:1M", MIB, SEG, PROT_READ);
	(void)beyond[0];
}

/* A signal that is not handled, is ignored or is blocked ends the process, as in the kernel. */
Test(sigbus, ends_what_does_not_handle_it)
{
	check_killed(run_child(fail_unhandled, NULL), SIGBUS);
	check_killed(run_child(fail_unhandled, "ignored"), SIGBUS);
	check_killed(run_child(fault_blocked, NULL), SIGBUS);
	check_killed(run_child(beyond_unhandled, NULL), SIGBUS);
}

/* A handler that the library has not seen being installed calls umfault. */
static _Atomic int calls, served;

static void call_library(int sig, siginfo_t *info, void *context)
{
	calls++;
	served += umfault(sig, info, context);
	if (served < calls)
		siglongjmp(bus_jump, 1);
}

Test(sigbus, umfault_serves)
{
	struct kernel_sigaction {
		void (*handler)(int, siginfo_t *, void *);
		unsigned long flags;
		void (*restorer)(void);
		uint64_t mask;
	} theirs;
	uint8_t *m = map_by(UMMAP_ENGINE_SIGBUS, "null:1M", MIB, SEG, READ_WRITE),
		*beyond = map_beyond();
	uint64_t value;

	/* A handler needs the restorer of the C library. */
	check(syscall(SYS_rt_sigaction, SIGBUS, NULL, &theirs, sizeof(theirs.mask)) == 0);
	theirs.handler = call_library;
	check(syscall(SYS_rt_sigaction, SIGBUS, &theirs, NULL, sizeof(theirs.mask)) == 0);
	check(try_load(m, &value) && value == 0);
	check(!try_load(beyond, &value));
	check(served >= 1 && calls == served + 1, "%d calls, %d served", calls, served);
	check(umunmap(m, 0) == 0);
}

/* ---- No store is lost ---- */

#define RACERS 4
#define RACE_SEGS ((size_t)1100)
#define RACE_SIZE (RACE_SEGS * SEG)
#define TURNS 100000

struct racer {
	_Atomic uint64_t *words;
	unsigned number;
	uint64_t added[RACE_SEGS];
};

/* Each thread has a word in each segment. Most segments have frames, so that evictions meet
 * accesses. */
static void *race(void *arg)
{
	struct racer *r = arg;
	uint64_t seed = 1 + r->number;

	for (unsigned k = 0; k < TURNS; k++) {
		size_t i = next_random(&seed) % RACE_SEGS;
		_Atomic uint64_t *word = r->words + i * SEG / 8 + r->number * 8;

		if (k % 2)
			atomic_store_explicit(word, ++r->added[i], memory_order_relaxed);
		else
			check(atomic_load_explicit(word, memory_order_relaxed) == r->added[i],
			      "segment %zu, turn %u", i, k);
	}
	return NULL;
}

static void check_words(const struct racer *racers, const uint64_t *words)
{
	for (unsigned t = 0; t < RACERS; t++) {
		for (size_t i = 0; i < RACE_SEGS; i++)
			check(words[i * SEG / 8 + racers[t].number * 8] == racers[t].added[i],
			      "thread %u, segment %zu", t, i);
	}
}

/* Most of the mapping fits into memory. The rest is evicted and loaded again. */
static void race_over(uint8_t *m, struct racer *racers)
{
	pthread_t threads[RACERS];

	check(umadvise(m, RACE_SIZE, UMMAP_ADV_RANDOM) == 0);
	for (unsigned t = 0; t < RACERS; t++) {
		racers[t].words = (_Atomic uint64_t *)(void *)m;
		racers[t].number = t;
		check(pthread_create(&threads[t], NULL, race, &racers[t]) == 0);
	}
	for (int k = 0; k < 20; k++)
		check(umsync(m, 0) == 0);
	for (unsigned t = 0; t < RACERS; t++)
		pthread_join(threads[t], NULL);
	check_words(racers, (uint64_t *)(void *)m);
}

/* Loads and stores meet evictions, and writes of segments that stay. */
Test(sigbus, stores_meet_evictions)
{
	static struct racer racers[RACERS];
	int fd = temp_file(RACE_SIZE);
	uint64_t *words;
	uint8_t *m;

	set_budget(1024 * SEG);
	m = map_fd(UMMAP_ENGINE_SIGBUS, fd, RACE_SIZE, SEG);
	race_over(m, racers);
	check(umunmap(m, 1) == 0);
	words = file_read(fd, 0, RACE_SIZE, __FILE__, __LINE__);
	check_words(racers, words);
	free(words);
	close(fd);
}

/* The store takes no time, so a segment is loaded again before others of its batch are evicted. */
Test(sigbus, what_leaves_comes_back)
{
	static struct racer racers[RACERS];
	uint8_t *m;

	set_budget(1024 * SEG);
	m = map_by(UMMAP_ENGINE_SIGBUS, "mem:8M", RACE_SIZE, SEG, READ_WRITE);
	race_over(m, racers);
	check(umunmap(m, 0) == 0);
}

/* A store after a load makes the segment dirty. A clean segment is dropped and loaded again. */
Test(sigbus, stores_after_loads)
{
	const size_t segs = 256, size = segs * SEG;
	int fd = filled_file(size, 7);
	uint8_t *m;

	set_budget(16 * SEG);
	m = map_fd(UMMAP_ENGINE_SIGBUS, fd, size, SEG);
	check(umadvise(m, size, UMMAP_ADV_RANDOM) == 0);
	for (size_t i = 0; i < segs; i++) {
		check(m[i * SEG + 9] == pattern(i * SEG + 9, 7));
		m[i * SEG + 9]++;
	}
	for (size_t i = 0; i < segs; i++)
		check(m[i * SEG + 9] == (uint8_t)(pattern(i * SEG + 9, 7) + 1));
	check(stat_of(m).upgrade_faults == segs);
	check(umunmap(m, 0) == 0);
	close(fd);
}

/* No frame has memory twice, and a free frame has none. */
Test(sigbus, memory_is_bounded)
{
	/* Buffers and stacks may be on huge pages. */
	const size_t budget = 8 * MIB, segs = 64 * MIB / SEG, slack = 6 * MIB;
	int fd = temp_file(segs * SEG);
	size_t before;
	uint8_t *m;

	if (SANITIZED)
		cr_skip("sanitizers have memory of their own");
	set_budget(budget);
	m = map_fd(UMMAP_ENGINE_SIGBUS, fd, segs * SEG, SEG);
	check(umadvise(m, segs * SEG, UMMAP_ADV_RANDOM) == 0);
	before = status_bytes("RssAnon");
	for (size_t k = 0; k < 2 * segs; k++) {
		size_t i = k * 7919 % segs;

		check(m[i * SEG] == (k < segs ? 0 : i % 251));
		if (k < segs)
			m[i * SEG] = i % 251;
		check(k % 1024 || status_bytes("RssAnon") <= before + budget + slack, "%zu",
		      status_bytes("RssAnon"));
	}
	check(stat_of(NULL).over_budget_peak == 0);
	check(umunmap(m, 0) == 0);
	check(status_bytes("RssAnon") <= before + slack, "%zu", status_bytes("RssAnon"));
	close(fd);
}

/* Segments that were read ahead are in the pool, and leave no memory there. */
Test(sigbus, memory_of_readahead)
{
	const size_t size = 16 * MIB, slack = 2 * MIB;
	int fd = filled_file(size, 9);
	size_t before;
	uint8_t *m;

	if (SANITIZED)
		cr_skip("sanitizers have memory of their own");
	set_budget(2 * size);
	m = map_fd(UMMAP_ENGINE_SIGBUS, fd, size, SEG);
	before = status_bytes("RssAnon");
	check(umadvise(m, size, UMMAP_ADV_WILLNEED) == 0);
	while (stat_of(m).readahead_loads < size / SEG)
		pause_ms(1);
	check(status_bytes("RssAnon") >= before + size - slack);
	check(umunmap(m, 0) == 0);
	check(status_bytes("RssAnon") <= before + slack, "%zu", status_bytes("RssAnon"));
	close(fd);
}

/* ---- Limits ---- */

Test(sigbus, accesses_by_the_kernel)
{
	uint8_t *m = map_by(UMMAP_ENGINE_SIGBUS, "null:1M", MIB, SEG, READ_WRITE);
	int ends[2];

	check(pipe(ends) == 0);
	check(write(ends[1], m, 1) == -1 && errno == EFAULT);
	check(umpin(m, SEG, PROT_READ) == 0 && write(ends[1], m, 1) == 1 && umunpin(m, SEG) == 0);
	check(umunmap(m, 0) == 0);
}

Test(sigbus, not_shared)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m;

	attr.engine = UMMAP_ENGINE_SIGBUS;
	attr.flags = UMMAP_SHARED;
	check_fails(ummap_open("null:1M", MIB, 0, READ_WRITE, &attr, &m), EOPNOTSUPP);
}
