/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Commits with a handle (umsync_begin): the store gets the contents of the moment of the call,
 * whatever the program stores afterwards. The driver is part of the test: its writes can wait and
 * fail, and it knows which data were flushed.
 */
#include <ummap-driver.h>

#include "common.h"

#define SEG (16 * KIB)
#define SEGS ((size_t)64)
#define SIZE (SEGS * SEG)

static uint8_t store[SIZE], durable[SIZE]; /* data that were written, and data that were flushed */
static _Atomic bool closed;                /* whether writes wait */
static _Atomic uint64_t fails_at = UINT64_MAX; /* a write that has this offset fails */
static _Atomic int flush_error;
static size_t seg_size = SEG;              /* of the mappings */
static _Atomic unsigned writes, flushes;

static int gate_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)uri, (void)oflags;
	*h = store;
	geom->size = SIZE;
	geom->align = 1;
	geom->caps = UMMAP_CAP_WRITE | UMMAP_CAP_FAULTSAFE | UMMAP_CAP_PARALLEL;
	return 0;
}

static int gate_close(void *h)
{
	(void)h;
	return 0;
}

static int gate_read(void *h, void *buf, size_t len, uint64_t off)
{
	copy_unseen(buf, (uint8_t *)h + off, len);
	return 0;
}

static int gate_write(void *h, const void *buf, size_t len, uint64_t off)
{
	const struct timespec moment = { .tv_nsec = 200000 };

	while (closed)
		nanosleep(&moment, NULL);
	if (off <= fails_at && fails_at < off + len)
		return -EIO;
	copy_unseen((uint8_t *)h + off, buf, len);
	writes++;
	return 0;
}

static int gate_flush(void *h, uint64_t off, uint64_t len)
{
	(void)off, (void)len;
	if (flush_error)
		return flush_error;
	copy_unseen(durable, h, SIZE);
	flushes++;
	return 0;
}

static const struct ummap_driver gate = {
	.struct_size = sizeof(gate),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "gate",
	.help = "memory with writes that wait",
	.open = gate_open,
	.close = gate_close,
	.read = gate_read,
	.write = gate_write,
	.flush = gate_flush,
};

static uint8_t *map_gate(size_t budget, unsigned flags)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m;

	set_budget(budget);
	check(ummap_driver_register(&gate) == 0);
	attr.seg_size = seg_size;
	attr.flags = flags;
	check(ummap_open("gate:x", SIZE, 0, READ_WRITE, &attr, &m) == 0);
	return m;
}

static struct umsync_handle *begin(void *m)
{
	struct umsync_handle *h = NULL;

	check(umsync_begin(m, 0, &h) == 0 && h);
	return h;
}

static void finish(struct umsync_handle *h)
{
	check(umsync_wait(&h) == 0 && !h);
}

/* Stores during the commit are not part of it, and part of the next sync. */
static void keep_moment(void *flags)
{
	uint8_t *m = map_gate(3 * SIZE, (unsigned)(uintptr_t)flags);
	struct umsync_handle *h;
	int done = 1;

	fill(m, SIZE, 0, 1);
	closed = true;
	h = begin(m);
	check(umsync_test(&h, &done) == 0 && !done && h);
	check(stat_of(m).commit_bytes == SIZE);
	closed = false;
	for (size_t i = SEGS; i-- > 0;)
		fill(m + i * SEG, SEG, i * SEG, 2);
	check_bytes(m, SIZE, 0, 2);
	finish(h);
	check_bytes(durable, SIZE, 0, 1);
	check(stat_of(m).commit_bytes == 0);
	check(umsync(m, 0) == 0);
	check_bytes(durable, SIZE, 0, 2);
	/* Without a change, a commit ends, too. */
	finish(begin(m));
	check(umunmap(m, 1) == 0);
}

/* Changes of segments that were clean at the moment are not written before the commit ends, also if
 * memory is short. */
static void hold_newer(void *unused)
{
	uint8_t *m = map_gate(SIZE / 4, 0);
	struct umsync_handle *h;

	(void)unused;
	for (int round = 0; round < 20; round++) {
		uint64_t old = (uint64_t)round * 2 + 1;

		fill(m, SIZE, 0, old);
		check(umsync(m, 0) == 0);
		fill(m + SIZE - SIZE / 8, SIZE / 8, SIZE - SIZE / 8, old + 1);
		h = begin(m);
		fill(m, SIZE / 2, 0, old + 1);
		finish(h);
		check_bytes(durable + SIZE / 2, SIZE / 2 - SIZE / 8, SIZE / 2, old);
		check_bytes(durable + SIZE - SIZE / 8, SIZE / 8, SIZE - SIZE / 8, old + 1);
		check_bytes(m, SIZE / 2, 0, old + 1);
	}
	check(umunmap(m, 1) == 0);
	check_bytes(durable, SIZE / 2, 0, 40);
}

/* One commit of a mapping is in flight. Syncs, and the end of the mapping, wait for it. */
static void *open_gate_later(void *unused)
{
	(void)unused;
	pause_ms(100);
	closed = false;
	return NULL;
}

static void wait_for_earlier(void *unused)
{
	uint8_t *m = map_gate(3 * SIZE, 0);
	struct umsync_handle *h[3];
	pthread_t thread;

	(void)unused;
	for (int way = 0; way < 3; way++) {
		fill(m, SIZE, 0, 10 + (uint64_t)way);
		closed = true;
		h[0] = begin(m);
		check_fails(umsync_begin(m, UMMAP_NOWAIT, &h[1]), EAGAIN);
		m[SIZE - 1]++;
		check(pthread_create(&thread, NULL, open_gate_later, NULL) == 0);
		if (way == 0)
			h[1] = begin(m);
		else
			check((way == 1 ? umsync(m, 0) : umunmap(m, 0)) == 0);
		check(!closed);
		check(pthread_join(thread, NULL) == 0);
		finish(h[0]);
		if (way == 0)
			finish(h[1]);
		check_bytes(durable, SIZE - 1, 0, 10 + (uint64_t)way);
	}
}

/* If threads begin a commit at the same time, one of them begins it, and the others do not wait. */
static pthread_barrier_t beginning;

static void *begin_at_once(void *m)
{
	struct umsync_handle *h = NULL;

	pthread_barrier_wait(&beginning);
	if (umsync_begin(m, UMMAP_NOWAIT, &h) < 0)
		check(errno == EAGAIN);
	return h;
}

static void begin_together(void *unused)
{
	uint8_t *m = map_gate(3 * SIZE, 0);
	pthread_t threads[4];

	(void)unused;
	alarm(60);
	check(pthread_barrier_init(&beginning, NULL, 4) == 0);
	for (int round = 0; round < 1000; round++) {
		struct umsync_handle *h = NULL;
		void *began;

		fill(m, SEG, 0, 1);
		closed = true;
		for (size_t i = 0; i < 4; i++)
			check(pthread_create(&threads[i], NULL, begin_at_once, m) == 0);
		for (size_t i = 0; i < 4; i++) {
			check(pthread_join(threads[i], &began) == 0 && !(began && h));
			h = began ? began : h;
		}
		closed = false;
		finish(h);
	}
	check(umunmap(m, 1) == 0);
}

/* The handle reports the error, and changes stay in memory. */
static void report_errors(void *unused)
{
	uint8_t *m = map_gate(3 * SIZE, 0);
	struct umsync_handle *h;
	int done = 0;

	(void)unused;
	fill(m, SIZE, 0, 1);
	fails_at = SIZE / 2;
	h = begin(m);
	fill(m, SIZE, 0, 2);
	check_fails(umsync_wait(&h), EIO);
	check(!h);
	fails_at = UINT64_MAX;
	check(umsync(m, 0) == 0);
	check_bytes(durable, SIZE, 0, 2);
	fill(m, SIZE, 0, 3);
	flush_error = -EIO;
	h = begin(m);
	while (!done && umsync_test(&h, &done) == 0)
		pause_ms(1);
	check(done && !h && errno == EIO);
	flush_error = 0;
	finish(begin(m));
	check_bytes(durable, SIZE, 0, 3);
	check_fails(umsync_wait(&h), EINVAL);
	check_fails(umsync_wait(NULL), EINVAL);
	check_fails(umsync_begin(m, 64, &h), EINVAL);
	check_fails(umsync_begin(m, 0, NULL), EINVAL);
	check_fails(umsync_begin(m + SEG, 0, &h), EINVAL);
	check(umunmap(m, 1) == 0);
}

/* A storing thread writes the segment if memory has no room for a copy, and the error of that write
 * is the commit's. */
static void do_without_copies(void *unused)
{
	uint8_t *m = map_gate(SIZE, 0);
	struct umsync_handle *h;

	(void)unused;
	for (uint64_t round = 1; round < 9; round++) {
		fill(m, SIZE, 0, round);
		fails_at = round == 7 ? SIZE - 1 : UINT64_MAX;
		h = begin(m);
		for (size_t i = SEGS; i-- > 0;)
			fill(m + i * SEG, SEG, i * SEG, round + 1);
		if (round == 7) {
			check_fails(umsync_wait(&h), EIO);
			fails_at = UINT64_MAX;
			/* An eviction may have failed, too, which the next sync reports. */
			check(umsync(m, 0) == 0 || errno == EIO);
		} else {
			finish(h);
			check_bytes(durable, SIZE, 0, round);
		}
	}
	check(umunmap(m, 1) == 0);
	check_bytes(durable, SIZE, 0, 9);
}

/* A pinned segment is part of the commit, and stays pinned. */
static void commit_pinned(void *unused)
{
	uint8_t *m = map_gate(3 * SIZE, 0);

	(void)unused;
	fill(m, SIZE, 0, 1);
	check(umpin(m + SEG, SEG, READ_WRITE) == 0);
	finish(begin(m));
	check_bytes(durable, SIZE, 0, 1);
	fill(m, SIZE, 0, 2);
	finish(begin(m));
	check_bytes(durable, SIZE, 0, 2);
	check(umunpin(m + SEG, SEG) == 0);
	check(umunmap(m, 1) == 0);
}

/* The kernel stores contents of the generation to a pinned segment, which raises no fault. */
static void read_into(uint8_t *pinned, uint64_t at, uint64_t generation)
{
	uint8_t bytes[SEG];
	int ends[2];

	fill(bytes, SEG, at, generation);
	check(pipe(ends) == 0 && write(ends[1], bytes, SEG) == (ssize_t)SEG);
	check(read(ends[0], pinned, SEG) == (ssize_t)SEG);
	close(ends[0]);
	close(ends[1]);
}

/* Begins a commit whose writes wait. Without room, the write of an eviction may be in progress, and
 * umsync_begin waits for it. */
static struct umsync_handle *begin_closed(void *m, bool room)
{
	struct umsync_handle *h;

	closed = room;
	h = begin(m);
	closed = true;
	return h;
}

/* Segments that are pinned for writing during a commit: the commit has the contents of the moment,
 * also if there is no room for a copy, and later stores through the pin are durable after the next
 * sync or commit. */
static void pin_in_flight(void *budget)
{
	uint8_t *m = map_gate((uintptr_t)budget, 0), *last = m + SIZE - SEG;
	bool room = (uintptr_t)budget > SIZE;
	struct umsync_handle *h;
	pthread_t thread;

	fill(m, SIZE, 0, 1);
	h = begin_closed(m, room);
	check(pthread_create(&thread, NULL, open_gate_later, NULL) == 0);
	check(umpin(last - SEG, SEG, PROT_READ) == 0);
	check(umpin(last, SEG, READ_WRITE) == 0);
	read_into(last, SIZE - SEG, 2);
	fill(last - SEG, SEG, SIZE - 2 * SEG, 2);
	finish(h);
	check(pthread_join(thread, NULL) == 0);
	check_bytes(durable, SIZE, 0, 1);
	/* The segment stays writable after the commit. */
	read_into(last, SIZE - SEG, 3);
	finish(begin(m));
	check_bytes(durable + SIZE - SEG, SEG, SIZE - SEG, 3);
	check_bytes(durable + SIZE - 2 * SEG, SEG, SIZE - 2 * SEG, 2);
	/* The pin ends during a commit. */
	fill(m, SIZE - 2 * SEG, 0, 4);
	h = begin_closed(m, room);
	read_into(last, SIZE - SEG, 4);
	check(umunpin(last, SEG) == 0 && umunpin(last - SEG, SEG) == 0);
	closed = false;
	finish(h);
	check(umsync(m, 0) == 0);
	check_bytes(durable + SIZE - SEG, SEG, SIZE - SEG, 4);
	fill(m, SIZE, 0, 5);
	/* The contents of the moment cannot be written. */
	fails_at = SIZE - 1;
	h = begin(m);
	check(umpin(last, SEG, READ_WRITE) == 0);
	read_into(last, SIZE - SEG, 6);
	check_fails(umsync_wait(&h), EIO);
	fails_at = UINT64_MAX;
	check(umunpin(last, SEG) == 0 && umsync(m, 0) == 0);
	check_bytes(durable, SIZE - SEG, 0, 5);
	check_bytes(durable + SIZE - SEG, SEG, SIZE - SEG, 6);
	check(umunmap(m, 1) == 0);
}

/* Other processes cannot store to a segment that the commit has yet to write. */
static void refuse_imports(void *unused)
{
	uint8_t *m = map_gate(3 * SIZE, UMMAP_SHARED), *last = m + SIZE - SEG;
	struct umimport *imported;
	struct umexport exported;
	struct umsync_handle *h;

	(void)unused;
	check(umexport(m, &exported) == 0 && umimport_open(&exported, &imported) == 0);
	fill(m, SIZE, 0, 1);
	check(umimport_put(imported, last, 1, SIZE - 1) == 1);
	fill(last, SEG, SIZE - SEG, 1);
	closed = true;
	h = begin(m);
	check(umimport_put(imported, m, 1, SIZE - 1) == 0);
	last[0]++;
	check(umimport_put(imported, m, 1, SIZE - 1) == 1);
	closed = false;
	finish(h);
	check_bytes(durable, SIZE, 0, 1);
	umimport_close(imported);
	check(umunmap(m, 1) == 0);
	check(durable[SIZE - 1] == durable[0]);
}

static void wait_in_child(void *handle)
{
	struct umsync_handle *h = handle;

	check_fails(umsync_wait(&h), EINVAL);
	check(!h);
}

static void fork_in_flight(void *unused)
{
	uint8_t *m = map_gate(3 * SIZE, 0);
	struct umsync_handle *h;

	(void)unused;
	fill(m, SIZE, 0, 1);
	closed = true;
	h = begin(m);
	check_exits(run_child(wait_in_child, h), 0);
	closed = false;
	finish(h);
	check_bytes(durable, SIZE, 0, 1);
}

/* The rate bounds how fast a commit is written. */
static void limit_rate(void *unused)
{
	double began;
	uint8_t *m;

	(void)unused;
	set_env("UMMAP_FLUSH_RATE", "4M");
	set_env("UMMAP_BULK_SYNC", "false");
	m = map_gate(3 * SIZE, 0);
	fill(m, SIZE, 0, 1);
	began = now();
	finish(begin(m));
	check(now() - began > 0.2, "1 MiB in %.3f s", now() - began);
	check(umunmap(m, 1) == 0);
}

/* Commits and syncs that last do not delay another mapping. */
static void commit_beside_slow(void *unused)
{
	struct ummap_attr slow = UMMAP_ATTR_INIT;
	struct umsync_handle *h;
	uint8_t *m = map_gate(20 * SIZE, 0);
	void *other;

	(void)unused;
	slow.seg_size = SEG;
	slow.flush_rate = 1;
	for (int i = 0; i < 6; i++) {
		check(ummap_open("gate:x", SIZE, 0, READ_WRITE, &slow, &other) == 0);
		fill(other, SIZE, 0, 1);
		begin(other);
		check(umsync_range(other, SIZE, UMMAP_ASYNC) == 0);
	}
	alarm(60);
	for (int i = 0; i < 20; i++) {
		fill(m, SIZE, 0, 2);
		h = begin(m);
		check(umsync_range(m, SIZE, UMMAP_ASYNC) == 0);
		finish(h);
	}
	_exit(0);
}

/* ---- Threads that store during commits ---- */

#define THREADS 3
#define WORDS 40 /* words of a thread, each in another segment */

static uint64_t *words[THREADS][WORDS];
static _Atomic uint64_t rounds[THREADS]; /* rounds that a thread has completed */
static _Atomic bool stop;

static void place_words(uint8_t *m)
{
	for (size_t t = 0; t < THREADS; t++) {
		for (size_t w = 0; w < WORDS; w++) {
			/* Pages in their order, for UMMAP_SEG_AUTO; or segments in another one. */
			size_t at = seg_size == UMMAP_SEG_AUTO ? (t * WORDS + w) * 4096 :
				    (w * 29 + t * 7) % SEGS * SEG;

			words[t][w] = (uint64_t *)(void *)(m + at +
							   (t * WORDS + w) * sizeof(uint64_t));
		}
	}
}

/* Stores the number of the round to one word after the other. At each moment, some number of the
 * first words have a number, and the others the number before. */
static void *store_rounds(void *number)
{
	size_t t = (size_t)(uintptr_t)number;

	for (uint64_t round = rounds[t] + 1; !stop; round++) {
		for (size_t w = 0; w < WORDS; w++)
			*(volatile uint64_t *)words[t][w] = round;
		rounds[t] = round;
	}
	return NULL;
}

/* Changes bytes of pages that have no words, and changes some of them back. */
static void *flip_bytes(void *mapping)
{
	uint8_t *pages = (uint8_t *)mapping + THREADS * WORDS * 4096;
	uint64_t random = 5;

	while (!stop) {
		size_t first = next_random(&random) % 64, n = next_random(&random) % 64;

		for (size_t p = first; p < first + n; p++)
			pages[p * 4096 + 4000] ^= 1;
		for (size_t p = first + n; p-- > first && next_random(&random) % 16;)
			pages[p * 4096 + 4000] ^= 1;
	}
	return NULL;
}

/* Checks that the data are those of one moment, for each thread at least that of `least`. */
static void check_moment(const uint8_t *data, const uint8_t *m, const uint64_t *least)
{
	for (size_t t = 0; t < THREADS; t++) {
		uint64_t before = UINT64_MAX, first = 0;

		for (size_t w = 0; w < WORDS; w++) {
			uint64_t value;

			memcpy(&value, data + ((uint8_t *)words[t][w] - m), sizeof(value));
			first = w ? first : value;
			check(value <= before && value + 1 >= first && value >= least[t],
			      "thread %zu, word %zu: %" PRIu64 " after %" PRIu64 ", first %"
			      PRIu64 ", at least %" PRIu64, t, w, value, before, first, least[t]);
			before = value;
		}
	}
}

static void store_meanwhile(void *segments)
{
	uint8_t *m = map_gate((size_t)(uintptr_t)segments * SEG, 0);
	double until = now() + stress_seconds(2, 20);
	uint64_t random = 1, least[THREADS];
	pthread_t threads[THREADS + 1];
	unsigned commits = 0;

	place_words(m);
	for (size_t t = 0; t < THREADS; t++)
		check(pthread_create(&threads[t], NULL, store_rounds, (void *)t) == 0);
	check(pthread_create(&threads[THREADS], NULL, flip_bytes, m) == 0);
	while (now() < until) {
		struct umsync_handle *h;

		for (size_t t = 0; t < THREADS; t++)
			least[t] = rounds[t];
		h = begin(m);
		if (next_random(&random) % 4 == 0)
			closed = true;
		pause_ms((unsigned)(next_random(&random) % 3));
		closed = false;
		finish(h);
		check_moment(durable, m, least);
		commits++;
		if (next_random(&random) % 8 == 0)
			check(umsync(m, (int)(next_random(&random) % 2)) == 0);
	}
	stop = true;
	for (size_t t = 0; t <= THREADS; t++)
		check(pthread_join(threads[t], NULL) == 0);
	check(umsync(m, 0) == 0 && memcmp(m, durable, SIZE) == 0);
	check(umunmap(m, 0) == 0);
	for (size_t t = 0; t < THREADS; t++)
		least[t] = rounds[t];
	check_moment(durable, m, least);
	printf("%u commits, %u writes, %" PRIu64 " rounds\n", commits, (unsigned)writes,
	       (uint64_t)rounds[0]);
}

static void store_meanwhile_to_pages(void *segments)
{
	seg_size = UMMAP_SEG_AUTO;
	store_meanwhile(segments);
}

static void *change_back(void *mapping)
{
	uint8_t *m = mapping;

	fill(m + 8 * KIB, 8 * KIB, 8 * KIB, 1);
	fill(m + 16 * KIB, 4 * KIB, 16 * KIB, 3);
	return NULL;
}

/* Pages that became writable before a store: changes before the moment, and changes during the
 * commit that restore the earlier contents, or are the first ones. */
static void store_back(void *unused)
{
	uint8_t *m;
	struct umsync_handle *h;
	pthread_t thread;

	(void)unused;
	seg_size = UMMAP_SEG_AUTO;
	fill(store, SIZE, 0, 1);
	m = map_gate(3 * SIZE, 0);
	check(umadvise(m, SIZE, UMMAP_ADV_SEQUENTIAL) == 0);
	fill(m, 12 * KIB, 0, 2);
	closed = true;
	h = begin(m);
	/* A store to a segment that is being written waits for the write. */
	check(pthread_create(&thread, NULL, change_back, m) == 0);
	pause_ms(20);
	closed = false;
	check(pthread_join(thread, NULL) == 0);
	finish(h);
	check_bytes(durable, 12 * KIB, 0, 2);
	check_bytes(durable + 12 * KIB, SIZE - 12 * KIB, 12 * KIB, 1);
	check(umsync(m, 1) == 0);
	check_bytes(durable, 8 * KIB, 0, 2);
	check_bytes(durable + 8 * KIB, 8 * KIB, 8 * KIB, 1);
	check_bytes(durable + 16 * KIB, 4 * KIB, 16 * KIB, 3);
	check_bytes(m, 8 * KIB, 0, 2);
	check_bytes(m + 8 * KIB, 8 * KIB, 8 * KIB, 1);
	check(umunmap(m, 1) == 0);
}

/* ---- Kills: with wal+, the file has all of a commit or nothing of it ---- */

static char wal_path[400];
static uint64_t *acknowledged; /* rounds of each thread that are durable; shared memory */

static uint8_t *map_wal(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m;

	set_budget(SIZE / 2);
	attr.seg_size = SEG;
	attr.flags = UMMAP_CREATE;
	check(ummap_open(wal_path, SIZE, 0, READ_WRITE, &attr, &m) == 0);
	place_words(m);
	return m;
}

static void commit_until_killed(void *unused)
{
	uint8_t *m = map_wal();
	pthread_t thread;

	(void)unused;
	for (size_t t = 0; t < THREADS; t++) {
		rounds[t] = *words[t][0] ? *words[t][0] - 1 : 0;
		check(pthread_create(&thread, NULL, store_rounds, (void *)t) == 0);
	}
	for (uint64_t least[THREADS];;) {
		struct umsync_handle *h;

		for (size_t t = 0; t < THREADS; t++)
			least[t] = rounds[t];
		h = begin(m);
		finish(h);
		memcpy(acknowledged, least, sizeof(least));
	}
}

static void check_survivor(void *unused)
{
	uint8_t *m = map_wal();

	(void)unused;
	check_moment(m, m, acknowledged);
	check(umunmap(m, 0) == 0);
}

static void kill_often(void *unused)
{
	double until = now() + stress_seconds(3, 60);
	unsigned kills = 0;
	uint64_t random = 7;

	(void)unused;
	snprintf(wal_path, sizeof(wal_path), "wal+posix:%s", in_dir("data"));
	acknowledged = mmap(NULL, 4096, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(acknowledged != MAP_FAILED);
	for (; now() < until; kills++) {
		pid_t child = start_child(commit_until_killed, NULL);

		pause_ms(30 + (unsigned)(next_random(&random) % 150));
		check(kill(child, SIGKILL) == 0);
		check_killed(wait_child(child), SIGKILL);
		check_exits(run_child(check_survivor, NULL), 0);
	}
	printf("%u kills, %" PRIu64 " rounds are durable\n", kills, acknowledged[0]);
	check(kills > 0);
}

static void store_to_pages(void *segments)
{
	seg_size = UMMAP_SEG_AUTO;
	store_meanwhile(segments);
}

static void run(const char *name, void (*body)(void *), uintptr_t arg)
{
	printf("%s\n", name);
	fflush(stdout);
	check_exits(run_child(body, (void *)arg), 0);
}

int main(void)
{
	run("moment", keep_moment, 0);
	run("moment of writers", keep_moment, UMMAP_WRITERS);
	run("newer changes", hold_newer, 0);
	run("one in flight", wait_for_earlier, 0);
	run("begun together", begin_together, 0);
	run("errors", report_errors, 0);
	run("no copies", do_without_copies, 0);
	run("pins", commit_pinned, 0);
	run("pins during a commit", pin_in_flight, 3 * SIZE);
	run("pins during a commit, no copies", pin_in_flight, SIZE);
	if (engine_is("segv"))
		run("imports", refuse_imports, 0);
	run("fork", fork_in_flight, 0);
	run("rate", limit_rate, 0);
	run("slow commits of others", commit_beside_slow, 0);
	run("changes back", store_back, 0);
	run("threads", store_meanwhile, 3 * SEGS);
	run("threads, pages", store_meanwhile_to_pages, SEGS / 2);
	run("threads, little memory", store_meanwhile, SEGS);
	run("threads, very little memory", store_meanwhile, SEGS / 4);
	run("threads, pages", store_to_pages, 3 * SEGS);
	run("threads, pages, little memory", store_to_pages, SEGS / 2);
	run("kills", kill_often, 0);
	return 0;
}
