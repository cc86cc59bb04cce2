/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Other calls on a mapping whose commit is in flight (umsync_begin), while threads store to it: a
 * model test. Each thread stores to its words in a fixed order, so the contents of a commit tell
 * how many stores they include; the test knows how many there were before and after umsync_begin.
 * Two mappings share a budget. The driver is part of the test, and keeps the data of the first
 * flush after each umsync_begin.
 */
#include <ummap-driver.h>

#include "common.h"

#define SEG (16 * KIB)
#define SEGS ((size_t)64)
#define AREA_SEGS ((size_t)4)               /* first segments, which only the test itself changes */
#define MAX_SIZE ((SEGS + 32) * SEG)
#define MAPPINGS 2
#define THREADS 2                           /* of a mapping */
#define WORDS 31                            /* words of a thread */

struct store {
	uint8_t data[MAX_SIZE];              /* data that were written */
	uint8_t kept[MAX_SIZE];              /* data of the first flush since `armed` was set */
	_Atomic bool armed;
	_Atomic uint64_t fails_at;           /* a write that has this offset fails */
	_Atomic bool flush_fails;            /* whether flushes fail, and keep what was written */
	_Atomic unsigned delay;              /* of each write, in microseconds */
};

struct subject {
	struct store store;
	const char *uri;
	uint8_t *m;
	size_t size;
	unsigned flags;                      /* of ummap_open */
	pthread_rwlock_t use;                /* shared by threads that store */
	_Atomic uint64_t stores[THREADS];    /* number of completed stores of each thread */
	uint8_t area;                        /* byte that the area has */
	uint64_t random;
	unsigned commits, failures;
};

static struct subject subjects[MAPPINGS];
static size_t seg_size = SEG;
static _Atomic bool stop;

/* ---- The driver ---- */

static int gate_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)oflags;
	*h = &subjects[uri->path[0] - '0'].store;
	geom->size = MAX_SIZE;
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
	copy_unseen(buf, ((struct store *)h)->data + off, len);
	return 0;
}

static int gate_write(void *h, const void *buf, size_t len, uint64_t off)
{
	struct store *s = h;

	if (s->delay)
		usleep(s->delay);
	if (off <= s->fails_at && s->fails_at < off + len)
		return -EIO;
	copy_unseen(s->data + off, buf, len);
	return 0;
}

static int gate_flush(void *h, uint64_t off, uint64_t len)
{
	struct store *s = h;

	(void)off, (void)len;
	if (s->flush_fails)
		return EIO;
	if (s->armed) {
		copy_unseen(s->kept, s->data, MAX_SIZE);
		s->armed = false;
	}
	return 0;
}

static const struct ummap_driver gate = {
	.struct_size = sizeof(gate),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "gate",
	.help = "memory with slow writes",
	.open = gate_open,
	.close = gate_close,
	.read = gate_read,
	.write = gate_write,
	.flush = gate_flush,
};

/* ---- Stores ---- */

static size_t word_offset(size_t t, size_t w)
{
	return (AREA_SEGS + (w * 29 + t * 7) % (SEGS - AREA_SEGS)) * SEG +
	       (t * WORDS + w) * sizeof(uint64_t);
}

/* The value of word w after n stores. */
static uint64_t value_after(uint64_t n, size_t w)
{
	return n / WORDS + (n % WORDS > w);
}

struct thread {
	struct subject *of;
	size_t number;
};

static void *store_words(void *arg)
{
	const struct thread *me = arg;
	struct subject *s = me->of;
	uint64_t random = me->number + 1;

	while (!stop) {
		check(pthread_rwlock_rdlock(&s->use) == 0);
		for (size_t i = next_random(&random) % (3 * WORDS); i > 0; i--) {
			uint64_t n = s->stores[me->number];
			void *word = s->m + word_offset(me->number, n % WORDS);

			*(volatile uint64_t *)word = n / WORDS + 1;
			s->stores[me->number] = n + 1;
		}
		check(pthread_rwlock_unlock(&s->use) == 0);
		usleep(50);
	}
	return NULL;
}

/* Checks that the data are those after some number of stores in [least, most] by each thread. */
static void check_stores(const char *what, const uint8_t *data, const uint64_t *least,
			 const uint64_t *most)
{
	for (size_t t = 0; t < THREADS; t++) {
		uint64_t n = 0, value;

		for (size_t w = 0; w < WORDS; w++) {
			memcpy(&value, data + word_offset(t, w), sizeof(value));
			n += value;
		}
		check(n >= least[t] && n <= most[t], "%s: %" PRIu64 " stores, not %" PRIu64
		      " to %" PRIu64, what, n, least[t], most[t]);
		for (size_t w = 0; w < WORDS; w++) {
			memcpy(&value, data + word_offset(t, w), sizeof(value));
			check(value == value_after(n, w), "%s: word %zu of thread %zu is %" PRIu64
			      " after %" PRIu64 " stores", what, w, t, value, n);
		}
	}
}

static void check_area(const char *what, const uint8_t *data, uint8_t byte)
{
	for (size_t i = 0; i < AREA_SEGS * SEG; i++)
		check(data[i] == byte, "%s: byte %zu is %u, not %u", what, i, data[i], byte);
}

static void count_stores(const struct subject *s, uint64_t *n, uint64_t more)
{
	for (size_t t = 0; t < THREADS; t++)
		n[t] = s->stores[t] + more;
}

/* The caller has excluded all other threads. */
static void check_all(const char *what, const struct subject *s, const uint8_t *data)
{
	uint64_t n[THREADS];

	count_stores(s, n, 0);
	check_stores(what, data, n, n);
	check_area(what, data, s->area);
}

/* ---- Calls during a commit ---- */

static void map_store(struct subject *s)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m;

	attr.seg_size = seg_size;
	attr.flags = s->flags;
	check(ummap_open(s->uri, s->size, 0, READ_WRITE, &attr, &m) == 0);
	s->m = m;
}

/* The child has the result of a commit that had ended at the fork. */
static void wait_in_child(void *handle)
{
	struct umsync_handle *h = handle;

	check(umsync_wait(&h) == 0 || errno == EINVAL);
	check(!h);
}

/* Ends the mapping. The commit in flight becomes durable first, and the handle stays. */
static void map_again(struct subject *s)
{
	check(pthread_rwlock_wrlock(&s->use) == 0);
	check_all("before the end", s, s->m);
	check(umunmap(s->m, 1) == 0);
	check_all("after the end", s, s->store.data);
	map_store(s);
	check(pthread_rwlock_unlock(&s->use) == 0);
}

static void change_size(struct subject *s)
{
	void *m = NULL;

	check(pthread_rwlock_wrlock(&s->use) == 0);
	s->size = (SEGS + next_random(&s->random) % 32) * SEG;
	check(umremap(s->m, s->size, -1, -1, 0, &m) == 0);
	s->m = m;
	memset(s->m + SEGS * SEG, 1, s->size - SEGS * SEG);
	check_all("after umremap", s, s->m);
	check(pthread_rwlock_unlock(&s->use) == 0);
}

static void sync_part(struct subject *s)
{
	/* With UMMAP_ASYNC, the flush could be the first one of the next commit. */
	static const int flags[] = { 0, UMMAP_EVICT, UMMAP_NOFLUSH };
	size_t first = next_random(&s->random) % SEGS;

	check(umsync_range(s->m + first * SEG, (SEGS - first) * SEG,
			   flags[next_random(&s->random) % 3]) == 0);
}

/* The kernel stores to the area. */
static void store_through_pin(struct subject *s)
{
	const size_t len = AREA_SEGS * SEG;
	int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	check(zeros >= 0 && umpin(s->m, len, READ_WRITE) == 0);
	check(read(zeros, s->m, len) == (ssize_t)len);
	check(umunpin(s->m, len) == 0);
	close(zeros);
	s->area = 0;
}

static void make_call(struct subject *s, struct umsync_handle *h)
{
	size_t first = next_random(&s->random) % SEGS;
	struct umsync_handle *second;

	switch (next_random(&s->random) % 11) {
	case 0:
		check_exits(run_child(wait_in_child, h), 0);
		break;
	case 1:
		/* With UMMAP_BLANK, memory is the only place of the contents. */
		if (!(s->flags & UMMAP_BLANK))
			map_again(s);
		break;
	case 2:
		change_size(s);
		break;
	case 3:
		sync_part(s);
		break;
	case 4:
		check(umadvise(s->m + first * SEG, (SEGS - first) * SEG, UMMAP_ADV_DONTNEED) == 0);
		break;
	case 5:
		if (!(s->flags & UMMAP_BLANK))
			break;
		check(umadvise(s->m, AREA_SEGS * SEG, UMMAP_ADV_DISCARD) == 0);
		check_area("after a discard", s->m, 0);
		memset(s->m, s->area, AREA_SEGS * SEG);
		break;
	case 6:
		s->area++;
		memset(s->m, s->area, AREA_SEGS * SEG);
		break;
	case 7:
		check(umpin(s->m + first * SEG, SEG, PROT_READ) == 0);
		store_through_pin(s);
		check(umunpin(s->m + first * SEG, SEG) == 0);
		break;
	case 8:
		if (umsync_begin(s->m, UMMAP_NOWAIT, &second) == 0)
			check(umsync_wait(&second) == 0);
		else
			check(errno == EAGAIN);
		break;
	case 9:
		check(umadvise(s->m + first * SEG, (SEGS - first) * SEG, UMMAP_ADV_WILLNEED) == 0);
		break;
	default:
		usleep(next_random(&s->random) % 2000);
	}
}

/* One commit, and a call during it. */
static void commit_once(struct subject *s)
{
	uint64_t least[THREADS], most[THREADS];
	bool fails = next_random(&s->random) % 16 == 0;
	struct umsync_handle *h;
	uint8_t area;

	s->area += next_random(&s->random) % 2;
	memset(s->m, s->area, AREA_SEGS * SEG);
	area = s->area;
	s->store.delay = next_random(&s->random) % 3 ? 0 : 100;
	if (fails && next_random(&s->random) % 2)
		s->store.flush_fails = true;
	else if (fails)
		s->store.fails_at = next_random(&s->random) % (SEGS * SEG);
	s->store.armed = !fails;
	count_stores(s, least, 0);
	check(umsync_begin(s->m, 0, &h) == 0);
	count_stores(s, most, 1);
	if (!fails)
		make_call(s, h);
	if (umsync_wait(&h) == 0 && !fails) {
		check(!s->store.armed);
		check_stores("a commit", s->store.kept, least, most);
		check_area("a commit", s->store.kept, area);
		s->commits++;
		return;
	}
	check(fails, "a commit");
	s->failures++;
	s->store.fails_at = UINT64_MAX;
	s->store.flush_fails = false;
	/* A write of an eviction may have failed, too, which the next sync reports. */
	check(umsync(s->m, 0) == 0 || umsync(s->m, 0) == 0);
}

static void *commit_often(void *arg)
{
	double until = now() + stress_seconds(2, 30);
	struct subject *s = arg;

	while (now() < until) {
		commit_once(s);
		if (next_random(&s->random) % 8)
			continue;
		check(pthread_rwlock_wrlock(&s->use) == 0);
		check_all("after a commit", s, s->m);
		check(pthread_rwlock_unlock(&s->use) == 0);
	}
	return NULL;
}

struct way {
	size_t budget, seg_size;
	unsigned flags;
};

/* By default, threads that store would keep out a thread that needs them to pause: for minutes if
 * each of their stores waits for memory. */
static void init_lock(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t attr;

	check(pthread_rwlockattr_init(&attr) == 0);
	check(pthread_rwlockattr_setkind_np(&attr,
					    PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP) == 0);
	check(pthread_rwlock_init(lock, &attr) == 0);
}

static void mix_calls(void *arg)
{
	static struct thread workers[MAPPINGS][THREADS];
	pthread_t threads[MAPPINGS][THREADS + 1];
	const struct way *way = arg;

	set_budget(way->budget);
	seg_size = way->seg_size;
	check(ummap_driver_register(&gate) == 0);
	for (size_t i = 0; i < MAPPINGS; i++) {
		struct subject *s = &subjects[i];

		s->uri = i ? "gate:1" : "gate:0";
		s->size = SEGS * SEG;
		s->flags = way->flags;
		s->random = i + 1;
		s->store.fails_at = UINT64_MAX;
		init_lock(&s->use);
		map_store(s);
		check(pthread_create(&threads[i][THREADS], NULL, commit_often, s) == 0);
		for (size_t t = 0; t < THREADS; t++) {
			workers[i][t] = (struct thread){ s, t };
			check(pthread_create(&threads[i][t], NULL, store_words,
					     &workers[i][t]) == 0);
		}
	}
	for (size_t i = 0; i < MAPPINGS; i++)
		check(pthread_join(threads[i][THREADS], NULL) == 0);
	stop = true;
	for (size_t i = 0; i < MAPPINGS; i++) {
		struct subject *s = &subjects[i];

		for (size_t t = 0; t < THREADS; t++)
			check(pthread_join(threads[i][t], NULL) == 0);
		check(umunmap(s->m, 1) == 0);
		check_all("at the end", s, s->store.data);
		check(s->commits > 0);
		printf("%u commits, %u failed commits, %" PRIu64 " stores\n", s->commits,
		       s->failures, (uint64_t)s->stores[0]);
	}
}

/* A mapping whose memory is pinned is not delayed by a commit of another group, which lasts. */
static void store_beside_commit(void *unused)
{
	struct ummap_attr pinned = UMMAP_ATTR_INIT, slow = UMMAP_ATTR_INIT;
	struct umsync_handle *h;
	void *m, *other;

	(void)unused;
	subjects[0].store.fails_at = subjects[1].store.fails_at = UINT64_MAX;
	check(ummap_driver_register(&gate) == 0);
	pinned.seg_size = slow.seg_size = SEG;
	pinned.group = "pinned";
	pinned.budget = 8 * SEG;
	slow.group = "slow";
	slow.flush_rate = 1;
	check(ummap_open("gate:0", SEGS * SEG, 0, READ_WRITE, &pinned, &m) == 0);
	check(ummap_open("gate:1", SEGS * SEG, 0, READ_WRITE, &slow, &other) == 0);
	memset(other, 1, SEGS * SEG);
	check(umpin(m, 8 * SEG, READ_WRITE) == 0);
	check(umsync_begin(other, 0, &h) == 0);
	while (!*(volatile uint8_t *)subjects[1].store.data)
		usleep(100);
	memset((char *)m + 8 * SEG, 1, 8 * SEG);
	_exit(0);
}

static void run(const char *name, struct way way)
{
	printf("%s\n", name);
	fflush(stdout);
	check_exits(run_child(mix_calls, &way), 0);
}

int main(void)
{
	run("much memory", (struct way){ 6 * MAX_SIZE, SEG, 0 });
	run("little memory", (struct way){ MAX_SIZE, SEG, 0 });
	run("a few segments", (struct way){ 12 * SEG, SEG, 0 });
	run("blank", (struct way){ MAX_SIZE, SEG, UMMAP_BLANK });
	run("blank, a few segments", (struct way){ 12 * SEG, SEG, UMMAP_BLANK });
	run("several writers", (struct way){ 2 * MAX_SIZE, SEG, UMMAP_WRITERS });
	check_exits(run_child(store_beside_commit, NULL), 0);
	run("pages", (struct way){ MAX_SIZE, UMMAP_SEG_AUTO, 0 });
	return 0;
}
