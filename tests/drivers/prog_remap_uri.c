/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_remap_uri - switches a mapping by umremap_open from each URI of a file to each other URI,
 * with and without UMMAP_SYNC and UMMAP_SWITCH. The mapping, the file after umsync, and the file
 * after kill -9 must equal a shadow copy. A URI that cannot be opened must leave the mapping
 * unchanged. No other process may be able to lock the file during a switch.
 *
 *	prog_remap_uri applied           only cache+ over a log of wal+ that is applied
 *	prog_remap_uri [all | DRIVERS]   all cases, or those from URIs that begin with DRIVERS
 */
/* cache+ sends a block of a file in memory while the program may write it, and then again. */
#define TSAN_MORE_SUPPRESSIONS "race:side_read\n"
#include "beside.h"

#include <sched.h>
#include <stdatomic.h>

#define SEG (16 * KIB)
#define SIZE (32 * SEG)
#define WORDS (SIZE / 8)

static char store[320];

/* Contents written through one filter are visible through another one, unless changes of cow+ are
 * between them. */
enum layer { NO_CHANGES, CHANGES, OTHER_CHANGES };

static const struct way {
	const char *scheme, *keys;
	enum layer layer;
	bool logged;             /* whether changes that were not synced are lost */
} ways[] = {
	{ "posix", "", NO_CHANGES, false },
	{ "uring", "direct=never", NO_CHANGES, false },
	{ "posix", "direct=always", NO_CHANGES, false },
	{ "error+posix", "error.nth=100000000", NO_CHANGES, false },
	{ "wal+posix", "", NO_CHANGES, true },
	{ "wal+uring", "wal.keep=4", NO_CHANGES, true },
	{ "wal+posix", "wal.path={store}.log", NO_CHANGES, true },
	{ "cache+posix", "cache.path={store}.near&cache.size=2M", NO_CHANGES, false },
	{ "cache+uring", "cache.path={store}.near&cache.size=2M&cache.mode=through", NO_CHANGES,
	  false },
	{ "cow+posix", "", CHANGES, false },
	{ "cow+uring", "", CHANGES, false },
	{ "cow+posix", "cow.path={store}.changes", OTHER_CHANGES, false },
	{ "error+wal+posix", "error.nth=100000000", NO_CHANGES, true },
	{ "wal+cow+posix", "wal.path={store}.cowlog", CHANGES, true },
	{ "cache+wal+posix", "cache.path={store}.near2&cache.size=2M&cache.flush=far", NO_CHANGES,
	  false },
	{ "pmem", "", NO_CHANGES, false },
};

#define WAYS (sizeof(ways) / sizeof(*ways))

/* URIs that cannot be opened. */
static const struct way bad_ways[] = {
	{ "posix", "direct=maybe", NO_CHANGES, false },
	{ "error+posix", "error.nth=many", NO_CHANGES, false },
	{ "wal+posix", "wal.size=large", NO_CHANGES, false },
	{ "wal+posix", "wal.commit=77", NO_CHANGES, false },
	{ "wal+posix", "wal.path={store}", NO_CHANGES, false },
	{ "cow+posix", "cow.path={store}", NO_CHANGES, false },
	{ "cache+posix", "cache.path={store}.near3", NO_CHANGES, false },
	{ "cache+posix", "cache.path={store}.near4&cache.size=2M&cache.block=3K", NO_CHANGES,
	  false },
	/* The last one is only for URIs that already use this near file. */
	{ "cache+posix", "cache.path={store}.near&cache.size=4M", NO_CHANGES, false },
};

/* URIs that fail when changes of cow+ are written through them. */
static const struct way failing_ways[] = {
	{ "error+posix", "error.op=write&error.nth=1", NO_CHANGES, false },
	{ "error+posix", "error.op=flush&error.nth=1", NO_CHANGES, false },
	{ "error+cow+posix", "cow.path={store}.more&error.op=write&error.nth=1", OTHER_CHANGES,
	  false },
	{ "error+cow+posix", "cow.path={store}.more&error.op=flush&error.nth=1", OTHER_CHANGES,
	  false },
};

#define BAD_WAYS (sizeof(bad_ways) / sizeof(*bad_ways))

/* The memory that parent and child share. */
static struct {
	uint64_t synced[WORDS], unsynced[WORDS];
	_Atomic uint64_t held;   /* number of the case whose mapping has the file; 0: none */
	_Atomic bool stop;
} *shared;

struct trial {
	const struct way *from, *to;
	int sync;
	uint64_t number;
};

static void make_uri(const struct way *w, char uri[static 1000])
{
	check(ummap_setvar("store", store) == 0);
	snprintf(uri, 1000, "%s:%s?%s", w->scheme, store, w->keys);
}

static uint64_t *open_way(const struct way *w, int prot)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[1000];
	void *addr;

	attr.seg_size = SEG;
	make_uri(w, uri);
	check(ummap_open(uri, SIZE, 0, prot, &attr, &addr) == 0, "%s", uri);
	return addr;
}

static int remap(uint64_t **m, const struct way *w, int sync)
{
	void *base = *m;
	char uri[1000];
	int result;

	make_uri(w, uri);
	result = umremap_open(base, uri, 0, -1, sync, &base);
	*m = base;
	return result;
}

/* Writes every third segment from `first` on. */
static void put_version(uint64_t *m, uint64_t version, size_t first)
{
	size_t words = SEG / 8;

	for (size_t s = first; s < SIZE / SEG; s += 3)
		for (size_t i = s * words; i < (s + 1) * words; i++)
			m[i] = version << 32 | i;
}

static void check_words(const uint64_t *m, const uint64_t *wanted, const uint64_t *other,
			const struct trial *t, const char *when)
{
	for (size_t i = 0; i < WORDS; i++)
		check(m[i] == wanted[i] || m[i] == other[i],
		      "%s?%s to %s?%s with sync %d, %s: word %zu is %#" PRIx64 ", not %#" PRIx64,
		      t->from->scheme, t->from->keys, t->to->scheme, t->to->keys, t->sync, when, i,
		      m[i], wanted[i]);
}

static void check_store(const uint64_t *wanted, const struct trial *t, const char *when)
{
	uint64_t *words = malloc(SIZE);
	int fd = open(store, O_RDONLY | O_CLOEXEC);

	check(pread(fd, words, SIZE, 0) == (ssize_t)SIZE);
	check_words(words, wanted, wanted, t, when);
	close(fd);
	free(words);
}

static void make_store(void)
{
	static const char *const beside[] = { ".wal", ".log",     ".near",   ".near2", ".near3",
					      ".cow", ".changes", ".cowlog", ".more" };
	char path[340];
	int fd = temp_named("store", 0, store);

	for (size_t i = 0; i < sizeof(beside) / sizeof(*beside); i++) {
		snprintf(path, sizeof(path), "%s%s", store, beside[i]);
		unlink(path);
	}
	check(ftruncate(fd, 0) == 0 && write(fd, shared->synced, SIZE) == (ssize_t)SIZE);
	close(fd);
}

static bool is_there(const char *suffix)
{
	char path[340];

	snprintf(path, sizeof(path), "%s%s", store, suffix);
	return access(path, F_OK) == 0;
}

/* The contents after a switch. Changes that were not synced may or may not have been written. */
static void expect_switched(const struct trial *t, uint64_t *lost, uint64_t *kept)
{
	if (t->from->layer != t->to->layer && t->from->layer != NO_CHANGES) {
		/* The contents of the store itself, which was never written. */
		memset(lost, 0, SIZE);
		put_version(lost, 1, 0);
		put_version(lost, 1, 1);
		put_version(lost, 1, 2);
		memcpy(kept, lost, SIZE);
	} else if (t->sync & UMMAP_SYNC) {
		memcpy(lost, kept, SIZE);
	} else if (t->from->logged && t->from != t->to) {
		memcpy(kept, lost, SIZE);
	}
}

static void remap_and_die(void *trial)
{
	const struct trial *t = trial;
	uint64_t *lost = malloc(SIZE), *kept = malloc(SIZE), *m;

	set_budget(SIZE / 8);
	/* Maps the file in place, as on persistent memory. */
	set_env("PMEM2_FORCE_GRANULARITY", "byte");
	m = open_way(t->from, READ_WRITE);
	shared->held = t->number;
	put_version(m, 2, 0);
	check(umsync(m, 0) == 0);
	memcpy(lost, m, SIZE);
	put_version(m, 3, 1);
	memcpy(kept, m, SIZE);
	check(remap(&m, t->to, t->sync) == 0, "%s?%s to %s?%s with sync %d: %s", t->from->scheme,
	      t->from->keys, t->to->scheme, t->to->keys, t->sync, umerrormsg());
	if (t->sync & UMMAP_SWITCH)
		expect_switched(t, lost, kept);
	else
		memcpy(lost, kept, SIZE);
	check_words(m, lost, kept, t, "afterwards");
	if (!strstr(t->to->scheme, "wal") && !strstr(t->from->keys, "wal.path"))
		check(!is_there(".wal"), "the log of %s is left after a switch to %s",
		      t->from->scheme, t->to->scheme);
	if (!(t->sync & UMMAP_SWITCH) && t->from->layer == CHANGES && t->to->layer == NO_CHANGES)
		check(!is_there(".cow"), "the changes of %s are left after %s got them",
		      t->from->scheme, t->to->scheme);
	put_version(m, 4, 2);
	check(umsync(m, 0) == 0, "%s", umerrormsg());
	memcpy(shared->synced, m, SIZE);
	put_version(m, 5, 0);
	memcpy(shared->unsynced, m, SIZE);
	shared->held = 0;
	raise(SIGKILL);
}

static void look_again(void *trial)
{
	const struct trial *t = trial;
	uint64_t *m = open_way(t->to, READ_WRITE);

	check_words(m, shared->synced, t->to->logged ? shared->synced : shared->unsynced, t,
		    "after kill -9");
	memcpy(shared->synced, m, SIZE);
	check(umunmap(m, 1) == 0, "%s", umerrormsg());
	if (t->to->layer == NO_CHANGES)
		check_store(shared->synced, t, "in the file");
}

static void try_pair(const struct way *from, const struct way *to, int sync)
{
	static uint64_t number;
	struct trial t = { from, to, sync, ++number };

	for (size_t third = 0; third < 3; third++)
		put_version(shared->synced, 1, third);
	make_store();
	check_killed(run_child(remap_and_die, &t), SIGKILL);
	check_exits(run_child(look_again, &t), 0);
}

/* ---- cache+ over wal+, whose log has commits when cache+ opens it ---- */

static const struct way logged = { "wal+posix", "", NO_CHANGES, true };
static const struct way cached = { "cache+wal+posix", "cache.path={store}.near2&cache.size=2M",
				   NO_CHANGES, false };

static void commit_and_die(void *way)
{
	uint64_t *m = open_way(way, READ_WRITE);

	for (size_t third = 0; third < 3; third++)
		put_version(m, 2, third);
	check(umsync(m, 0) == 0, "%s", umerrormsg());
	raise(SIGKILL);
}

static uint64_t version_in_store(void)
{
	int fd = open(store, O_RDONLY | O_CLOEXEC);
	uint64_t word;

	check(pread(fd, &word, 8, 0) == 8);
	close(fd);
	return word >> 32;
}

static void await_apply_and_die(void *unused)
{
	double end = now() + 60;

	(void)unused;
	open_way(&cached, READ_WRITE);
	while (version_in_store() != 2 && now() < end)
		pause_ms(10);
	check(version_in_store() == 2, "the commit is not applied");
	raise(SIGKILL);
}

static void look_at_applied(void *unused)
{
	uint64_t *m = open_way(&cached, READ_WRITE);

	(void)unused;
	for (size_t i = 0; i < WORDS; i++)
		check(m[i] == ((uint64_t)2 << 32 | i));
	check(umunmap(m, 1) == 0, "%s", umerrormsg());
}

/* cache+ has written nothing to the store, but wal+ has. */
static void apply_below_cache(void)
{
	for (size_t third = 0; third < 3; third++)
		put_version(shared->synced, 1, third);
	make_store();
	check_killed(run_child(commit_and_die, (void *)&logged), SIGKILL);
	check_killed(run_child(await_apply_and_die, NULL), SIGKILL);
	check_exits(run_child(look_at_applied, NULL), 0);
}

/* ---- URIs that cannot be opened ---- */

static void remap_in_vain(void *trial)
{
	const struct trial *t = trial;
	uint64_t *m = open_way(t->from, READ_WRITE), *copy = malloc(SIZE);

	set_budget(SIZE / 8);
	shared->held = t->number;
	put_version(m, 2, 0);
	check(umsync(m, 0) == 0);
	put_version(m, 3, 1);
	memcpy(copy, m, SIZE);
	check(remap(&m, t->to, t->sync) == -1 && *umerrormsg(), "%s?%s to %s?%s with sync %d",
	      t->from->scheme, t->from->keys, t->to->scheme, t->to->keys, t->sync);
	check_words(m, copy, copy, t, "in vain");
	put_version(m, 4, 2);
	check(umsync(m, 0) == 0, "%s to %s?%s: %s", t->from->scheme, t->to->scheme, t->to->keys,
	      umerrormsg());
	memcpy(shared->synced, m, SIZE);
	put_version(m, 5, 0);
	memcpy(shared->unsynced, m, SIZE);
	shared->held = 0;
	raise(SIGKILL);
}

static void try_in_vain(const struct way *from, const struct way *to, int sync)
{
	struct trial t = { from, to, sync, UINT64_MAX }, back = { from, from, sync, 0 };

	for (size_t third = 0; third < 3; third++)
		put_version(shared->synced, 1, third);
	make_store();
	check_killed(run_child(remap_in_vain, &t), SIGKILL);
	check_exits(run_child(look_again, &back), 0);
}

/* The other log has commits of a killed process, which the mapping does not show. */
static void try_log_with_commits(const struct way *from)
{
	static const struct way other = { "wal+posix", "wal.path={store}.log", NO_CHANGES, true };
	struct trial t = { from, &other, 0, UINT64_MAX }, back = { from, from, 0, 0 };

	for (size_t third = 0; third < 3; third++)
		put_version(shared->synced, 1, third);
	make_store();
	check_killed(run_child(commit_and_die, (void *)&other), SIGKILL);
	check_killed(run_child(remap_in_vain, &t), SIGKILL);
	check_exits(run_child(look_again, &back), 0);
}

/* Whether the driver of a URI is available. */
static bool works(const struct way *w)
{
	static int has_uring = -1, has_pmem = -1;

	if (has_uring < 0) {
		has_uring = has_driver("uring");
		has_pmem = has_driver("pmem");
	}
	return (has_uring || !strstr(w->scheme, "uring")) &&
	       (has_pmem || !strstr(w->scheme, "pmem"));
}

/* ---- Read-only mappings ---- */

static void switch_readers(void *way)
{
	const struct way *from = way;
	uint64_t *copy = malloc(SIZE);

	for (size_t to = 0; to < WAYS; to++) {
		struct trial t = { from, &ways[to], UMMAP_SWITCH, 0 };
		uint64_t *m;

		if (!works(&ways[to]))
			continue;
		make_store();
		m = open_way(from, PROT_READ);
		memcpy(copy, m, SIZE);
		check_fails(remap(&m, &ways[to], 0), EACCES);
		check(remap(&m, &ways[to], UMMAP_SWITCH) == 0, "%s?%s to %s?%s: %s", from->scheme,
		      from->keys, ways[to].scheme, ways[to].keys, umerrormsg());
		check_words(m, copy, copy, &t, "read");
		check(umunmap(m, 0) == 0);
	}
}

/* A descriptor must permit the accesses of the mapping, even if the mapping already has its
 * file. */
static void use_descriptors(void *unused)
{
	uint64_t *m = open_way(&ways[0], READ_WRITE);
	int reading = open(store, O_RDONLY | O_CLOEXEC), both = open(store, O_RDWR | O_CLOEXEC);
	void *base = m;

	(void)unused;
	check_fails(umremap(m, 0, reading, -1, 0, &base), EACCES);
	check_fails(umremap(m, 0, reading, -1, UMMAP_SWITCH, &base), EACCES);
	check(umremap(m, 0, both, -1, 0, &base) == 0, "%s", umerrormsg());
	check_fails(umremap(m, 0, reading, -1, 0, &base), EACCES);
	check(umunmap(m, 1) == 0);
}

/* ---- Commits, offsets, other processes ---- */

static void go_back(void *unused)
{
	static const struct way now = { "wal+posix", "wal.keep=8", NO_CHANGES, true },
				then = { "wal+posix", "wal.keep=8&wal.commit=2", NO_CHANGES, true };
	struct trial t = { &now, &then, 0, 0 };
	uint64_t *m, *copy[4], oldest, newest;

	(void)unused;
	make_store();
	m = open_way(&now, READ_WRITE);
	for (uint64_t i = 1; i < 4; i++) {
		put_version(m, 1 + i, i % 3);
		check(umsync(m, 0) == 0);
		copy[i] = malloc(SIZE);
		memcpy(copy[i], m, SIZE);
	}
	check_fails(remap(&m, &then, 0), EINVAL);
	check(strstr(umerrormsg(), "UMMAP_SWITCH"), "%s", umerrormsg());
	check_words(m, copy[3], copy[3], &t, "in vain");
	check(umcommits(m, &oldest, &newest) == 0 && oldest == 0 && newest >= 3,
	      "%" PRIu64 " to %" PRIu64, oldest, newest);
	check(remap(&m, &then, UMMAP_SWITCH) == 0, "%s", umerrormsg());
	check_words(m, copy[2], copy[2], &t, "gone back");
	/* Goes back by the same URI: with changes that were not committed, and from a commit. */
	put_version(m, 7, 0);
	check(umadvise(m, SIZE, UMMAP_ADV_DONTNEED) == 0, "%s", umerrormsg());
	check(remap(&m, &then, UMMAP_SWITCH) == 0, "%s", umerrormsg());
	check_words(m, copy[2], copy[2], &t, "gone back again");
	put_version(m, 8, 0);
	check(umsync(m, 0) == 0);
	check(remap(&m, &then, UMMAP_SWITCH) == 0, "%s", umerrormsg());
	check_words(m, copy[2], copy[2], &t, "gone back from a commit");
	check(umcommits(m, &oldest, &newest) == 0 && newest == 2, "%" PRIu64, newest);
	put_version(m, 9, 0);
	check(umunmap(m, 1) == 0);
	put_version(copy[2], 9, 0);
	check_store(copy[2], &t, "gone back");
}

/* Moves the contents to another offset of the file, and enlarges the mapping. */
static void move_on(void *way)
{
	const struct way *w = way;
	static const struct way plain = { "posix", "", NO_CHANGES, false };
	struct trial t = { &plain, w, 0, 0 };
	uint64_t *m, *copy = malloc(SIZE);
	void *base;
	char uri[1000];

	make_store();
	m = open_way(&plain, READ_WRITE);
	put_version(m, 2, 0);
	memcpy(copy, m, SIZE);
	base = m;
	make_uri(w, uri);
	check(umremap_open(m, uri, SIZE + SEG, SIZE / 2, 0, &base) == 0, "%s: %s", uri,
	      umerrormsg());
	m = base;
	check_words(m, copy, copy, &t, "moved");
	check(umsync(m, 0) == 0);
	make_uri(&plain, uri);
	base = m;
	check(umremap_open(m, uri, SIZE, SIZE / 4, 0, &base) == 0, "%s: %s", uri, umerrormsg());
	m = base;
	check_words(m, copy, copy, &t, "moved back");
	check(umunmap(m, 1) == 0);
	base = NULL;
	check(ummap_open(uri, SIZE, SIZE / 4, PROT_READ, NULL, &base) == 0);
	check_words(base, copy, copy, &t, "moved back, in the file");
}

static int ready[2];

static void hold_changes(void *unused)
{
	static const struct way other = { "cow+posix", "cow.path={store}.changes", OTHER_CHANGES,
					  false };

	(void)unused;
	open_way(&other, READ_WRITE);
	check(write(ready[1], "x", 1) == 1);
	pause();
}

/* A process with changes of cow+ excludes other URIs of the file. */
static void meet_other_changes(void *unused)
{
	static const struct way changes = { "cow+posix", "", CHANGES, false },
				plain = { "posix", "", NO_CHANGES, false };
	struct trial t = { &changes, &plain, 0, 0 };
	uint64_t *m, *copy = malloc(SIZE);
	pid_t holder;
	char c;

	(void)unused;
	make_store();
	m = open_way(&changes, READ_WRITE);
	put_version(m, 2, 0);
	memcpy(copy, m, SIZE);
	check(pipe2(ready, O_CLOEXEC) == 0);
	holder = start_child(hold_changes, NULL);
	check(read(ready[0], &c, 1) == 1);
	check_fails(remap(&m, &plain, 0), EBUSY);
	check_fails(remap(&m, &plain, UMMAP_SWITCH), EBUSY);
	check_words(m, copy, copy, &t, "refused");
	check(umsync(m, 0) == 0);
	check(kill(holder, SIGKILL) == 0);
	check_killed(wait_child(holder), SIGKILL);
	check(remap(&m, &plain, 0) == 0, "%s", umerrormsg());
	check_words(m, copy, copy, &t, "granted");
	check(umunmap(m, 1) == 0);
	check_store(copy, &t, "granted");
}

/* Checks that a process has a lock whenever a mapping has the file. */
static void watch_locks(void *unused)
{
	(void)unused;
	while (!shared->stop) {
		struct flock all = { .l_type = F_WRLCK,
				     .l_whence = SEEK_SET,
				     .l_len = (off_t)SIZE };
		uint64_t held = shared->held;
		int fd = held ? open(store, O_RDWR | O_CLOEXEC) : -1;

		for (int i = 0; i < 100 && fd >= 0; i++) {
			check(fcntl(fd, F_OFD_GETLK, &all) == 0);
			check(all.l_type != F_UNLCK || shared->held != held,
			      "no lock in case %" PRIu64, held);
			all = (struct flock){ .l_type = F_WRLCK,
					      .l_whence = SEEK_SET,
					      .l_len = (off_t)SIZE };
		}
		if (fd >= 0)
			close(fd);
		else
			pause_ms(1);
		sched_yield();
	}
}

/* Tries one of `step` cases. */
static void try_all(const struct way *from, size_t step)
{
	static const int syncs[] = { 0, UMMAP_SWITCH, UMMAP_SYNC | UMMAP_SWITCH };
	size_t bad_ones = strstr(from->keys, ".near&") ? BAD_WAYS : BAD_WAYS - 1,
	       number = (size_t)(from - ways);
	pid_t watcher;

	shared->stop = false;
	watcher = start_child(watch_locks, NULL);
	for (size_t to = 0; to < WAYS; to++)
		for (size_t s = 0; s < 3; s++)
			if (works(&ways[to]) && (number + to + s) % step == 0)
				try_pair(from, &ways[to], syncs[s]);
	for (size_t bad = 0; bad < bad_ones; bad++)
		for (size_t s = 0; s < 2; s++)
			if ((number + bad + s) % step == 0)
				try_in_vain(from, &bad_ways[bad], syncs[s]);
	for (size_t i = 0;
	     from->layer != NO_CHANGES && i < sizeof(failing_ways) / sizeof(*failing_ways); i++)
		try_in_vain(from, &failing_ways[i], 0);
	shared->stop = true;
	check_exits(wait_child(watcher), 0);
}

int main(int argc, char **argv)
{
	const char *only = argc > 1 && strcmp(argv[1], "all") != 0 ? argv[1] : NULL;
	size_t step = argc > 1 ? 1 : SANITIZED ? 23 : by_time(7, 2);

	shared = mmap(NULL, sizeof(*shared), READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(shared != MAP_FAILED);
	set_group();
	temp_named("store", 0, store);
	for (size_t from = 0; from < WAYS; from++)
		if (works(&ways[from]) && (!only || strcmp(only, ways[from].scheme) == 0))
			try_all(&ways[from], step);
	if (!only || strcmp(only, "applied") == 0)
		apply_below_cache();
	if (!only || strcmp(only, "commits") == 0) {
		try_log_with_commits(&ways[0]);
		try_log_with_commits(&logged);
	}
	if (only)
		return 0;
	check_exits(run_child(go_back, NULL), 0);
	check_exits(run_child(use_descriptors, NULL), 0);
	for (size_t from = 0; from < WAYS; from++)
		if (works(&ways[from]))
			check_exits(run_child(switch_readers, (void *)(uintptr_t)&ways[from]), 0);
	check_exits(run_child(meet_other_changes, NULL), 0);
	for (size_t to = 0; to < WAYS; to++)
		if (works(&ways[to]))
			check_exits(run_child(move_on, (void *)(uintptr_t)&ways[to]), 0);
	return 0;
}
