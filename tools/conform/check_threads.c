/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of several threads, and of a forked child, on one handle. */
#include "conform.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define THREADS 8
#define BLOCK 1000        /* bytes, no multiple of a word, sector or page: threads share these */
#define BLOCKS_MAX 512
#define ROUNDS 6

struct thread {
	struct handle *h;
	unsigned number;
	size_t blocks;        /* number of blocks in the store */
	unsigned char *buf;   /* contents of one block */
};

static void run_threads(struct handle *h, void *(*fn)(void *thread))
{
	struct thread threads[THREADS];
	pthread_t ids[THREADS];
	size_t blocks = facts->size / BLOCK < BLOCKS_MAX ? facts->size / BLOCK : BLOCKS_MAX;

	for (unsigned i = 0; i < THREADS; i++) {
		threads[i] = (struct thread){ h, i, blocks, memory(PAGE) };
		expect(pthread_create(&ids[i], NULL, fn, &threads[i]) == 0,
		       "pthread_create failed");
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
}

/* Each thread owns every THREADS-th block. */
static void *use_own_blocks(void *arg)
{
	struct thread *t = arg;
	char what[96];

	for (int round = 0; round < ROUNDS; round++) {
		for (size_t b = t->number; b < t->blocks; b += THREADS) {
			size_t off = b * BLOCK;

			random_fill(t->buf, BLOCK);
			shadow_write(off, t->buf, BLOCK);
			handle_write(t->h, t->buf, BLOCK, off);
			/* Check another block of this thread, which other threads must not have
			 * changed. */
			off = (t->number +
			       random_below((t->blocks - t->number - 1) / THREADS + 1) * THREADS) *
			      BLOCK;
			handle_read(t->h, t->buf, BLOCK, off);
			snprintf(what, sizeof(what),
				 "with %d threads at work, a read of %d bytes at %zu", THREADS,
				 BLOCK, off);
			shadow_compare(t->buf, BLOCK, off, what);
		}
		if (t->number == 0)
			handle_flush(t->h);
	}
	return NULL;
}

void check_disjoint(void)
{
	struct handle h;

	handle_fill_writable(&h);
	doing("%d threads, each with blocks of its own", THREADS);
	run_threads(&h, use_own_blocks);
	shadow_compare_all(&h, "after threads wrote blocks of their own");
	handle_close(&h);
}

/* The byte that a thread writes to a block depends on both. */
static unsigned char tag(size_t block, unsigned thread)
{
	return (unsigned char)(block % 31 * THREADS + thread + 1);
}

static void check_tags(const unsigned char *buf, size_t block, const char *when)
{
	for (size_t i = 0; i < BLOCK; i++) {
		unsigned thread = (unsigned)buf[i] - tag(block, 0);

		expect(thread < THREADS, "%s byte %zu is 0x%02x, which nobody wrote there", when,
		       block * BLOCK + i, buf[i]);
	}
}

static void *use_all_blocks(void *arg)
{
	struct thread *t = arg;

	for (size_t i = 0; i < 2 * t->blocks; i++) {
		size_t block = random_below(t->blocks);

		if (i % 2) {
			memset(t->buf, tag(block, t->number), BLOCK);
			handle_write(t->h, t->buf, BLOCK, block * BLOCK);
		} else {
			handle_read(t->h, t->buf, BLOCK, block * BLOCK);
			check_tags(t->buf, block, "while threads write the same blocks,");
		}
	}
	return NULL;
}

void check_overlap(void)
{
	struct handle h;
	unsigned char buf[BLOCK];
	size_t blocks;

	handle_fill_writable(&h);
	if (options.swallows)
		skip("the store keeps nothing");
	blocks = facts->size / BLOCK < BLOCKS_MAX ? facts->size / BLOCK : BLOCKS_MAX;
	for (size_t b = 0; b < blocks; b++) {
		memset(buf, tag(b, 0), BLOCK);
		handle_write(&h, buf, BLOCK, b * BLOCK);
	}
	doing("%d threads that read and write the same blocks", THREADS);
	run_threads(&h, use_all_blocks);
	for (size_t b = 0; b < blocks; b++) {
		handle_read(&h, buf, BLOCK, b * BLOCK);
		check_tags(buf, b, "after threads wrote the same blocks,");
	}
	handle_close(&h);
}

/* In a forked child the library closes the handles of the parent, and may open others. */
static void use_child(struct handle *inherited)
{
	struct handle own;
	int err;

	doing("close, in a forked child, of its parent's handle");
	err = inherited->driver.close(inherited->h);
	expect(err == 0, "%s: %s", verdict->doing, error_name(err));
	if (options.alone)
		_exit(0);
	doing("a handle that a forked child has opened itself");
	handle_open_readonly(&own);
	if (!options.forgets)
		shadow_compare_all(&own, "in a forked child");
	handle_close(&own);
	_exit(0);
}

void check_fork(void)
{
	struct handle h;
	unsigned char buf[5000];
	pid_t child;

	handle_fill(&h);
	if (facts->writable)
		handle_flush(&h);
	child = fork_child();
	if (child == 0)
		use_child(&h);
	wait_for(child);
	shadow_compare_all(&h, "by the parent, after a forked child closed the handle");
	if (facts->writable) {
		random_fill(buf, sizeof(buf));
		handle_write(&h, buf, sizeof(buf), 77);
		shadow_write(77, buf, sizeof(buf));
		handle_flush(&h);
		shadow_compare_all(&h, "after the parent of a forked child wrote");
	}
	handle_close(&h);
}
