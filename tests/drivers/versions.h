/* SPDX-License-Identifier: BSD-3-Clause */
/* A store whose words have a version, and a process that is killed while it syncs version after
 * version, for tests of filters. */
#ifndef TESTS_VERSIONS_H
#define TESTS_VERSIONS_H

#include "common.h"

#define SEG (16 * KIB)
#define SIZE (64 * SEG)

/* Stores the version and the index in each word. */
static inline void put_version(uint64_t *words, uint64_t version)
{
	for (size_t i = 0; i < SIZE / 8; i++)
		words[i] = version << 32 | i;
}

static inline void check_version(const uint64_t *words, uint64_t least, uint64_t most)
{
	for (size_t i = 0; i < SIZE / 8; i++)
		check((uint32_t)words[i] == i && words[i] >> 32 >= least && words[i] >> 32 <= most,
		      "word %zu is %#" PRIx64 ": version %" PRIu64 " was durable", i, words[i],
		      least);
}

/* The end of the pipe on which the process reports versions that are durable. */
static int durable_versions;

/* Stores and syncs version after version, until the process is killed. */
static inline void sync_versions(uint64_t *words, uint64_t version)
{
	for (;; version++) {
		put_version(words, version);
		check(umsync(words, 0) == 0);
		check(write(durable_versions, &version, sizeof(version)) == sizeof(version));
	}
}

/* Kills a child at random that runs `body`, which calls sync_versions. Sets *durable to the last
 * version that it has reported. */
static inline void kill_during_syncs(void (*body)(void *), void *arg, uint64_t *random,
				     uint64_t *durable)
{
	uint64_t version;
	int pipes[2];
	pid_t child;

	check(pipe2(pipes, O_CLOEXEC) == 0);
	durable_versions = pipes[1];
	child = start_child(body, arg);
	close(pipes[1]);
	check(read(pipes[0], durable, sizeof(*durable)) == sizeof(*durable), "the first sync");
	pause_ms(next_random(random) % 40);
	check(kill(child, SIGKILL) == 0);
	check_killed(wait_child(child), SIGKILL);
	while (read(pipes[0], &version, sizeof(version)) == sizeof(version))
		*durable = version;
	close(pipes[0]);
}

#endif
