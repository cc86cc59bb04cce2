/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SIGKILL at any moment: synced data are in the file. A child stores one version after another into
 * each word of a mapping larger than its budget, and reports in a pipe which version umsync has
 * made durable. The next child continues with the data that it finds. Each driver is tested.
 * Persistent memory is a file in memory, which survives a process as well.
 *
 *	prog_kill [ROUNDS [SEED]]
 */
#include "common.h"

#define SEG (16 * KIB)
#define SIZE (64 * SEG)
#define BUDGET (SIZE / 8)

/* A file and the driver for it, which are the same in all rounds. */
struct store {
	const char *driver, *dir;
	int fd;
	uint64_t newest;  /* highest version of any of the words */
	unsigned rounds, in_flight;
};

struct round {
	const struct store *store;
	int said;         /* the child's end of the pipe */
	uint64_t version; /* version that the first pass stores */
	bool shuffled;    /* segments are not stored in order */
	int interval;
};

/* A word has its index and its version. A store of a word is complete or has no effect. */
#define VERSION (((uint64_t)1 << 40) - 1)

static uint64_t word(size_t index, uint64_t version)
{
	return index << 40 | version;
}

static uint64_t *map_store(const struct round *r)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[64];
	void *addr;

	attr.seg_size = SEG;
	attr.flush_interval = r->interval;
	attr.ptype = UMMAP_PTYPE_WIRO_F;
	snprintf(uri, sizeof(uri), "%s:/proc/self/fd/%d", r->store->driver, r->store->fd);
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0, "%s", uri);
	return addr;
}

static void store_and_sync(void *arg)
{
	struct round *r = arg;
	uint64_t *words;

	set_budget(BUDGET);
	set_env("PMEM2_FORCE_GRANULARITY", "cache_line");
	words = map_store(r);
	for (size_t i = 0; i < SIZE / 8; i++)
		check(words[i] >> 40 == i && (words[i] & VERSION) < r->version,
		      "word %zu is %#" PRIx64, i, words[i]);
	for (;; r->version++) {
		for (size_t i = 0; i < SIZE / 8; i++) {
			size_t at = r->shuffled ? i ^ (r->version * 8191 & (SIZE / 8 - 1)) : i;

			words[at] = word(at, r->version);
		}
		check(umsync(words, r->version % 3 == 0) == 0);
		check(write(r->said, &r->version, sizeof(r->version)) == sizeof(r->version));
	}
}

/* Waits for requests of the killed process, which end before the kernel releases its locks. */
static void await_requests(int fd)
{
	struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	check(fcntl(fd, F_OFD_SETLKW, &all) == 0);
	all.l_type = F_UNLCK;
	check(fcntl(fd, F_OFD_SETLK, &all) == 0);
}

/* Each word has its index, and a version that is at least the durable one and was stored. */
static uint64_t check_words(const struct store *store, uint64_t durable)
{
	uint64_t *words = file_read(store->fd, 0, SIZE, __FILE__, __LINE__), newest = durable;

	for (size_t i = 0; i < SIZE / 8; i++) {
		uint64_t version = words[i] & VERSION;

		if (words[i] != word(i, version) || version < durable || version > durable + 1)
			check(false,
			      "%s: word %zu is %#" PRIx64 ", version %" PRIu64 " was durable",
			      store->driver, i, words[i], durable);
		newest = version > newest ? version : newest;
	}
	free(words);
	return newest;
}

/* Returns the last version that the child has reported as durable; waits for the first one. */
static uint64_t kill_in_the_middle(struct round *r, unsigned ms)
{
	uint64_t durable = 0, said;
	int pipes[2];
	pid_t child;

	check(pipe2(pipes, O_CLOEXEC) == 0);
	r->said = pipes[1];
	child = start_child(store_and_sync, r);
	close(pipes[1]);
	check(read(pipes[0], &durable, sizeof(durable)) == sizeof(durable), "the first sync");
	pause_ms(ms);
	check(kill(child, SIGKILL) == 0);
	check_killed(wait_child(child), SIGKILL);
	while (read(pipes[0], &said, sizeof(said)) == sizeof(said))
		durable = said;
	close(pipes[0]);
	return durable;
}

static void run_round(struct store *s, uint64_t *random)
{
	unsigned i = s->rounds++;
	struct round r = {
		.store = s, .version = s->newest + 1, .shuffled = i % 2, .interval = i % 4 / 2
	};
	uint64_t durable = kill_in_the_middle(&r, next_random(random) % 60);

	await_requests(s->fd);
	s->newest = check_words(s, durable);
	s->in_flight += s->newest > durable;
}

static void make_file(struct store *s)
{
	uint64_t *words = malloc(SIZE);

	if (s->dir)
		set_env("TMPDIR", s->dir);
	s->fd = temp_file(0);
	for (size_t i = 0; i < SIZE / 8; i++)
		words[i] = word(i, 0);
	check(pwrite(s->fd, words, SIZE, 0) == (ssize_t)SIZE);
	free(words);
}

int main(int argc, char **argv)
{
	struct store stores[] = { { .driver = "posix" },
				  { .driver = "uring" },
				  { .driver = "pmem", .dir = "/dev/shm" } };
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : by_time(30, 90), used = 0;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);

	printf("seed %" PRIu64 "\n", seed);
	fflush(stdout);
	for (size_t i = 0; i < sizeof(stores) / sizeof(*stores); i++) {
		if (has_driver(stores[i].driver)) {
			make_file(&stores[i]);
			stores[used++] = stores[i];
		}
	}
	for (unsigned i = 0; i < rounds; i++)
		run_round(&stores[i % used], &seed);
	for (struct store *s = stores; s < stores + used; s++)
		printf("%s: %u rounds, the last version is %" PRIu64
		       "; %u killed in the middle of writing\n",
		       s->driver, s->rounds, s->newest, s->in_flight);
	return 0;
}
