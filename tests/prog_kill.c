/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_kill - kill -9 in the middle: what was synced is in the file. A child stores version after version
 * into every word of a mapping larger than its budget, and says by a pipe which version umsync made durable.
 *
 *	prog_kill [SEED]
 */
#include "common.h"

#define SEG (16 * KIB)
#define SIZE (64 * SEG)
#define BUDGET (SIZE / 8)
#define ROUNDS 20

struct round {
	int fd;           /* the file, the same in all rounds */
	int said;         /* the child's end of the pipe */
	uint64_t version; /* of the first pass */
	bool shuffled;    /* segments out of order */
	int interval;
};

/* A word says where it belongs and how old it is; no store of it can be half done. */
static uint64_t word(size_t index, uint64_t version)
{
	return index << 40 | version;
}

static void store_and_sync(void *arg)
{
	struct round *r = arg;
	void *addr;
	uint64_t *words;

	set_budget(BUDGET);
	check(ummap(SIZE, SEG, READ_WRITE, r->fd, 0, r->interval, 1, UMMAP_PTYPE_WIRO_F, &addr) == 0);
	words = addr;
	for (;; r->version++) {
		for (size_t i = 0; i < SIZE / 8; i++) {
			size_t at = r->shuffled ? i ^ (r->version * 8191 & (SIZE / 8 - 1)) : i;

			words[at] = word(at, r->version);
		}
		check(umsync(addr, r->version % 3 == 0) == 0);
		check(write(r->said, &r->version, sizeof(r->version)) == sizeof(r->version));
	}
}

/* Every word is its own, not older than what was durable, and not from the future. */
static uint64_t check_words(int fd, uint64_t durable, uint64_t seed)
{
	uint64_t *words = file_read(fd, 0, SIZE, __FILE__, __LINE__), newest = durable;

	for (size_t i = 0; i < SIZE / 8; i++) {
		uint64_t version = words[i] & (((uint64_t)1 << 40) - 1);

		if (words[i] != word(i, version) || version < durable || version > durable + 1)
			check(false, "seed %" PRIu64 ": word %zu is %#" PRIx64 ", version %" PRIu64
			      " was durable", seed, i, words[i], durable);
		newest = version > newest ? version : newest;
	}
	free(words);
	return newest;
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL), random = seed;
	uint64_t newest = 0, in_flight = 0;
	int fd = temp_file(SIZE);

	printf("seed %" PRIu64 "\n", seed);
	for (int i = 0; i < ROUNDS; i++) {
		struct round r = { .fd = fd, .version = newest + 1, .shuffled = i % 2, .interval = i % 4 / 2 - 1 };
		uint64_t durable = 0, said;
		int status, pipes[2];
		pid_t child;

		check(pipe2(pipes, O_CLOEXEC) == 0);
		r.said = pipes[1];
		child = start_child(store_and_sync, &r);
		close(pipes[1]);
		check(read(pipes[0], &durable, sizeof(durable)) == sizeof(durable), "the first sync");
		pause_ms(next_random(&random) % 60);
		check(kill(child, SIGKILL) == 0);
		status = wait_child(child);
		check_killed(status, SIGKILL);
		while (read(pipes[0], &said, sizeof(said)) == sizeof(said))
			durable = said;
		close(pipes[0]);
		newest = check_words(fd, durable, seed);
		in_flight += newest > durable;
	}
	printf("%d rounds, the last version is %" PRIu64 "; %" PRIu64 " killed in the middle of writing\n",
	       ROUNDS, newest, in_flight);
	return 0;
}
