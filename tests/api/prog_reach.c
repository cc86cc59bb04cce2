/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that get from and put to the mapping of another process, which goes on with loads,
 * stores, syncs and evictions with a budget of a quarter of the mapping. Data that a peer cannot
 * put are sent to the owner, as MPI would do.
 *
 *	prog_reach [SEED [SEG_SIZE]]
 *
 * Each word has its index and version. A block of words belongs to one writer, which is a thread of
 * the owner or of a peer. Before a writer writes, it records the highest version that it may have
 * written; after that, the lowest version that must be visible. So the result of each get is
 * between the values recorded before and after it, and so is the file at the end. In the second
 * half, peers are killed at any moment. At last the mapping ends while peers get from it.
 */
#include <sched.h>

#include "common.h"

enum { OWNERS = 2, PEERS = 3, THREADS = 2, WRITERS = OWNERS + PEERS * THREADS };

#define BLOCK ((size_t)2048)     /* words of one writer */
#define MAX_GET_WORDS ((size_t)16384)

/* A request to the owner to store the words [first, first + n) of a peer's thread. */
struct request {
	_Atomic bool asked;
	size_t first, n;
	uint32_t version;
};

struct bounds {
	_Atomic uint32_t low, high;
};

/* Memory that all processes share. */
struct common {
	struct umexport offer;
	_Atomic bool offered, stop, unmapped;
	_Atomic unsigned opened;      /* number of peers that have imported the mapping */
	_Atomic uint64_t got, put, asked; /* numbers of words */
	struct request requests[WRITERS];
	struct bounds words[];
};

enum mode { PUTS, ENDLESS, GETS };

static struct common *all;
static size_t seg_size, size, words;
static uint64_t seed;
static uint64_t *base;                   /* the mapping, in the owner */
static struct umimport *peer;            /* the import, in peers */
static _Atomic bool quiet;               /* the owner's threads stop */
static enum mode mode;

static uint64_t word_of(size_t i, uint32_t version)
{
	return (uint64_t)i << 32 | version;
}

/* Chooses a random sequence of words in a block of the writer. */
static size_t choose(uint64_t *random, unsigned writer, size_t *n)
{
	size_t blocks = (words + BLOCK - 1) / BLOCK,
	       turns = (blocks - writer + WRITERS - 1) / WRITERS;
	size_t from = (next_random(random) % turns * WRITERS + writer) * BLOCK;
	size_t len = from + BLOCK < words ? BLOCK : words - from, at = next_random(random) % len;

	*n = next_random(random) % 4 ? 1 : 1 + next_random(random) % (len - at);
	return from + at;
}

static void check_word(uint64_t word, size_t i, uint32_t low, uint32_t high)
{
	check(word >> 32 == i, "word %zu is %#" PRIx64, i, word);
	check((uint32_t)word >= low && (uint32_t)word <= high,
	      "word %zu is version %u, must be %u to %u", i, (uint32_t)word, low, high);
}

/* Records the version that a sequence of words is going to have. */
static uint32_t begin_version(size_t first, size_t n)
{
	uint32_t version = 0;

	for (size_t i = first; i < first + n; i++)
		version = all->words[i].high > version ? all->words[i].high : version;
	for (size_t i = first; i < first + n; i++)
		all->words[i].high = version + 1;
	return version + 1;
}

static void end_version(size_t first, size_t n, uint32_t version)
{
	for (size_t i = first; i < first + n; i++)
		all->words[i].low = version;
}

/* ---- The owner ---- */

static void store_run(size_t first, size_t n, uint32_t version)
{
	for (size_t i = first; i < first + n; i++)
		((volatile uint64_t *)base)[i] = word_of(i, version);
}

static void *store_and_check(void *number)
{
	unsigned writer = (unsigned)(uintptr_t)number;
	uint64_t random = mix(seed + writer);

	while (!quiet) {
		size_t n, first = choose(&random, writer, &n);
		uint32_t version;

		for (size_t i = first; i < first + n; i++)
			check_word(((volatile uint64_t *)base)[i], i, all->words[i].low,
				   all->words[i].high);
		version = begin_version(first, n);
		store_run(first, n, version);
		end_version(first, n, version);
	}
	return NULL;
}

static void *serve_requests(void *unused)
{
	(void)unused;
	while (!quiet) {
		for (unsigned w = 0; w < WRITERS; w++) {
			struct request *r = &all->requests[w];

			if (!r->asked)
				continue;
			store_run(r->first, r->n, r->version);
			r->asked = false;
		}
		sched_yield();
	}
	return NULL;
}

/* Evicts, syncs and writes segments in all ways. */
static void *disturb(void *unused)
{
	uint64_t random = mix(seed + WRITERS);

	(void)unused;
	while (!quiet) {
		size_t at = next_random(&random) % size,
		       len = 1 + next_random(&random) % (size - at);
		char *p = (char *)base + at;

		switch (next_random(&random) % 6) {
		case 0: check(umsync_range(p, len, UMMAP_NOFLUSH | UMMAP_EVICT) == 0); break;
		case 1: check(umadvise(p, len, UMMAP_ADV_DONTNEED) == 0); break;
		case 2: check(umadvise(p, len, UMMAP_ADV_WILLNEED) == 0); break;
		case 3: check(umsync_range(p, 1, 0) == 0); break;
		default: check(umsync_range(p, len, UMMAP_NOFLUSH) == 0);
		}
		pause_ms(1);
	}
	return NULL;
}

static void check_file_words(int fd)
{
	uint64_t *found = malloc(size);

	check(pread(fd, found, size, 0) == (ssize_t)size);
	for (size_t i = 0; i < words; i++)
		check_word(found[i], i, all->words[i].low, all->words[i].high);
	free(found);
}

static void map_shared(const char *path)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[400];
	void *addr;

	set_env("UMMAP_ENGINE", "segv");
	set_budget(size / 4 / seg_size * seg_size);
	snprintf(uri, sizeof(uri), "posix:%s", path);
	attr.seg_size = seg_size;
	attr.flags = UMMAP_SHARED;
	attr.policy = "prnd";
	check(ummap_open(uri, size, 0, READ_WRITE, &attr, &addr) == 0);
	base = addr;
	check(umexport(addr, &all->offer) == 0);
	all->offered = true;
}

static void be_owner(void *path)
{
	pthread_t threads[OWNERS + 2];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct umstat st;

	map_shared(path);
	for (uintptr_t i = 0; i < OWNERS; i++)
		check(pthread_create(&threads[i], NULL, store_and_check, (void *)i) == 0);
	check(pthread_create(&threads[OWNERS], NULL, serve_requests, NULL) == 0);
	check(pthread_create(&threads[OWNERS + 1], NULL, disturb, NULL) == 0);
	while (!all->stop)
		pause_ms(1);
	quiet = true;
	for (size_t i = 0; i < OWNERS + 2; i++)
		check(pthread_join(threads[i], NULL) == 0);
	st = stat_of(base);
	check(umunmap(base, 1) == 0);
	all->unmapped = true;
	check_file_words(fd);
	check(st.evictions > 0);
	printf("%7zu: %" PRIu64 " evictions\n", seg_size, st.evictions);
}

/* ---- Peers ---- */

/* Chooses any words to get. Not with TSan, because another thread may put to the same words. */
static size_t choose_any(uint64_t *random, unsigned writer, size_t *first)
{
	size_t n = 1 + next_random(random) % (next_random(random) % 2 ? 8 : MAX_GET_WORDS);

#ifdef __SANITIZE_THREAD__
	*first = choose(random, writer, &n);
#else
	(void)writer;
	*first = next_random(random) % words;
#endif
	return n < words - *first ? n : words - *first;
}

static void get_run(uint64_t *random, unsigned writer, uint64_t *buf, uint32_t *low)
{
	size_t first, n = choose_any(random, writer, &first), got;

	for (size_t i = 0; i < n; i++)
		low[i] = all->words[first + i].low;
	got = umimport_get(peer, buf, n * 8, first * 8) / 8;
	check(got <= n);
	for (size_t i = 0; i < got; i++)
		check_word(buf[i], first + i, low[i], all->words[first + i].high);
	all->got += got;
}

static void ask_owner(unsigned writer, size_t first, size_t n, uint32_t version)
{
	struct request *r = &all->requests[writer];

	r->first = first;
	r->n = n;
	r->version = version;
	r->asked = true;
	while (r->asked)
		sched_yield();
	all->asked += n;
}

static void put_run(uint64_t *random, unsigned writer, uint64_t *buf)
{
	size_t n, first = choose(random, writer, &n), put;
	uint32_t version = begin_version(first, n);

	for (size_t i = 0; i < n; i++)
		buf[i] = word_of(first + i, version);
	put = umimport_put(peer, buf, n * 8, first * 8);
	check(put <= n * 8 && put % 8 == 0, "%zu", put);
	put /= 8;
	all->put += put;
	if (put < n)
		ask_owner(writer, first + put, n - put, version);
	end_version(first, n, version);
}

static void *visit(void *number)
{
	unsigned writer = (unsigned)(uintptr_t)number;
	uint64_t random = mix(seed + writer + (uint64_t)getpid() * 1000);
	uint64_t *buf = malloc(MAX_GET_WORDS * 8);
	uint32_t *low = malloc(MAX_GET_WORDS * sizeof(*low));

	/* A killed predecessor may have left a request. */
	while (mode != GETS && all->requests[writer].asked)
		sched_yield();
	for (size_t n = 0; mode == PUTS ? n < by_time(300, 1000) : !all->unmapped; n++) {
		if (mode == GETS || n % 2)
			get_run(&random, writer, buf, low);
		else
			put_run(&random, writer, buf);
	}
	free(buf);
	free(low);
	return NULL;
}

static void be_peer(void *number)
{
	pthread_t threads[THREADS];

	while (!all->offered)
		pause_ms(1);
	check(umimport_open(&all->offer, &peer) == 0);
	all->opened++;
	for (uintptr_t i = 0; i < THREADS; i++)
		check(pthread_create(&threads[i], NULL, visit,
				     (void *)(OWNERS + (uintptr_t)number * THREADS + i)) == 0);
	for (size_t i = 0; i < THREADS; i++)
		check(pthread_join(threads[i], NULL) == 0);
	umimport_close(peer);
}

static void start_peers(pid_t pids[PEERS], enum mode as)
{
	mode = as;
	for (uintptr_t i = 0; i < PEERS; i++)
		pids[i] = start_child(be_peer, (void *)i);
}

static void wait_peers(const pid_t pids[PEERS])
{
	for (size_t i = 0; i < PEERS; i++)
		check_exits(wait_child(pids[i]), 0);
}

static void kill_peers(pid_t pids[PEERS])
{
	uint64_t random = mix(seed);

	mode = ENDLESS;
	for (unsigned i = 0; i < by_time(15, 40); i++) {
		uintptr_t k = next_random(&random) % PEERS;

		pause_ms(1 + (unsigned)(next_random(&random) % 10));
		check(kill(pids[k], SIGKILL) == 0);
		check_killed(wait_child(pids[k]), SIGKILL);
		pids[k] = start_child(be_peer, (void *)k);
	}
	for (size_t k = 0; k < PEERS; k++) {
		check(kill(pids[k], SIGKILL) == 0);
		check_killed(wait_child(pids[k]), SIGKILL);
	}
}

static void make_file(char path[static 320])
{
	uint64_t *zero = malloc(size);
	int fd = temp_named("store", 0, path);

	for (size_t i = 0; i < words; i++)
		zero[i] = word_of(i, 0);
	check(pwrite(fd, zero, size, 0) == (ssize_t)size);
	free(zero);
	close(fd);
}

static void run(size_t of)
{
	pid_t owner, pids[PEERS];
	char path[320];

	seg_size = of;
	/* The last segment is short. */
	size = (64 * KIB > 32 * seg_size ? 2 * MIB : 32 * seg_size) + 1000 * 8;
	words = size / 8;
	all = mmap(NULL, sizeof(*all) + words * sizeof(*all->words), READ_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(all != MAP_FAILED);
	make_file(path);
	owner = start_child(be_owner, path);
	start_peers(pids, PUTS);
	wait_peers(pids);
	check(all->got > 0 && all->put > 0 && all->asked > 0);
	printf("%7zu: got %" PRIu64 ", put %" PRIu64 ", asked for %" PRIu64 " words\n", seg_size,
	       all->got, all->put, all->asked);
	start_peers(pids, ENDLESS);
	kill_peers(pids);
	all->opened = 0;
	start_peers(pids, GETS);
	while (all->opened < PEERS)
		pause_ms(1);
	pause_ms(10);
	all->stop = true;
	wait_peers(pids);
	check_exits(wait_child(owner), 0);
	check(munmap(all, sizeof(*all) + words * sizeof(*all->words)) == 0);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	seed = argc > 1 ? strtoull(argv[1], NULL, 0) :
			  (uint64_t)time(NULL) ^ (uint64_t)getpid() << 32;
	printf("seed %" PRIu64 "\n", seed);
	for (size_t of = 4 * KIB; of <= MIB; of *= 16) {
		if (argc <= 2 || strtoull(argv[2], NULL, 0) == of)
			run(of);
	}
	return 0;
}
