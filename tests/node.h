/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that share a limit, for the tests of the memory modes: children that map a file, use as
 * much of it as they are told, and report what they hold; and the table that these processes share.
 */
#ifndef TESTS_NODE_H
#define TESTS_NODE_H

#include <glob.h>

#include "common.h"

#define NODE_LIMIT (64 * MIB)
#define NODE_SEG (256 * KIB)
#define NODE_SIZE (2 * NODE_LIMIT)
/* Bytes that a process may hold beyond its budget: frames that threads are filling, and the four
 * frames that each process may have. */
#define NODE_SLACK (8 * NODE_SEG)
#define NODE_SECONDS 60 /* limit for events that take less than a second on an idle machine */

enum node_order { NODE_REST, NODE_USE, NODE_CHECK, NODE_END };

/* A child, in memory that the test and the child share. */
struct node_child {
	pid_t pid;
	bool dynamic;
	_Atomic enum node_order order;
	_Atomic size_t use;            /* bytes that the child uses again and again */
	_Atomic size_t stored;         /* bytes from the beginning on that have been written */
	_Atomic uint64_t rounds;       /* number of passes over these bytes */
	_Atomic uint64_t budget, held; /* counters of the child */
	_Atomic uint64_t own;          /* bytes of anonymous memory that are not frames */
};

static struct node_child *node_children;
static unsigned node_count;

/* Begins a group: children that start later share a limit with each other only. */
static inline void node_begin(void)
{
	const size_t len = 64 * sizeof(*node_children);

	if (!node_children) {
		node_children = mmap(NULL, len, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		check(node_children != MAP_FAILED);
	}
	memset(node_children, 0, len);
	node_count = 0;
	set_budget(NODE_LIMIT);
	set_env("UMMAP_MEMCONFIG", "static");
}

static inline void node_report(struct node_child *c)
{
	struct umstat st = stat_of(NULL);

	c->held = st.held_bytes;
	c->budget = st.budget_bytes;
}

/* Writes or checks one word of each segment, which identifies the segment. */
static inline void node_go_round(struct node_child *c, uint8_t *m, bool store)
{
	size_t use = c->use;

	for (size_t at = 0; at < use && c->order == (store ? NODE_USE : NODE_CHECK);
	     at += NODE_SEG) {
		uint64_t *word = (uint64_t *)(m + at);

		check(*word == mix(at) || at >= c->stored, "data is lost at %zu", at);
		if (store) {
			*word = mix(at);
			c->stored = at + NODE_SEG > c->stored ? at + NODE_SEG : c->stored;
		}
		if (at % (16 * NODE_SEG) == 0)
			node_report(c);
	}
	c->rounds++;
}

static inline void node_work(struct node_child *c)
{
	uint8_t *m;

	set_env("UMMAP_MEMCONFIG", c->dynamic ? "dynamic" : "static");
	m = map_file(temp_file(NODE_SIZE), NODE_SIZE, NODE_SEG, READ_WRITE, 0);
	c->own = status_bytes("RssAnon");
	while (c->order != NODE_END) {
		if (c->order != NODE_REST)
			node_go_round(c, m, c->order == NODE_USE);
		else
			pause_ms(1);
		node_report(c);
	}
}

/* Calls exit(3), so that the process leaves its group in order. */
static inline void node_body(void *child)
{
	node_work(child);
	exit(0);
}

static inline struct node_child *node_start_with(void (*body)(void *), bool dynamic)
{
	struct node_child *c = &node_children[node_count++];

	c->dynamic = dynamic;
	c->pid = start_child(body, c);
	return c;
}

static inline struct node_child *node_start(bool dynamic)
{
	return node_start_with(node_body, dynamic);
}

/* Waits until the condition holds, which takes a moment. */
#define node_until(cond) do { \
	double end_ = now() + NODE_SECONDS; \
	while (!(cond) && now() < end_) \
		pause_ms(2); \
	check(cond); \
} while (0)

static inline void node_use(struct node_child *c, size_t bytes)
{
	c->use = bytes;
	c->order = NODE_USE;
}

/* Waits for a whole pass that begins after this call. */
static inline void node_await_round(struct node_child *c)
{
	uint64_t rounds = c->rounds;

	node_until(c->rounds >= rounds + 2);
}

static inline void node_check(struct node_child *c)
{
	c->order = NODE_CHECK;
	node_await_round(c);
	c->order = NODE_REST;
}

static inline void node_end(struct node_child *c)
{
	c->order = NODE_END;
	check_exits(wait_child(c->pid), 0);
	c->held = c->budget = 0;
}

static inline void node_kill(struct node_child *c)
{
	check(kill(c->pid, SIGKILL) == 0);
	check_killed(wait_child(c->pid), SIGKILL);
	c->held = c->budget = 0;
}

static inline uint64_t node_sum(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < node_count; i++)
		sum += node_children[i].held;
	return sum;
}

/* Returns the memory of the frames of all processes at one moment, for which it stops them. With a
 * sanitizer, which has memory besides the frames, returns the sum of the counters. */
static inline uint64_t node_resident(void)
{
	uint64_t sum = 0, own = 0;
	int status;

	if (SANITIZED)
		return node_sum();
	for (unsigned i = 0; i < node_count; i++)
		check(kill(node_children[i].pid, SIGSTOP) == 0);
	for (unsigned i = 0; i < node_count; i++)
		check(waitpid(node_children[i].pid, &status, WUNTRACED) == node_children[i].pid &&
		      WIFSTOPPED(status));
	for (unsigned i = 0; i < node_count; i++) {
		sum += status_bytes_of(node_children[i].pid, "RssAnon");
		own += node_children[i].own;
	}
	for (unsigned i = 0; i < node_count; i++)
		check(kill(node_children[i].pid, SIGCONT) == 0);
	return sum > own ? sum - own : 0;
}

/* Finds the table of this group. false: there is none. */
static inline bool node_table(char path[static 128])
{
	char pattern[128];
	glob_t found;
	bool there;

	snprintf(pattern, sizeof(pattern), "/dev/shm/ummap-%u-*-%s", (unsigned)geteuid(),
		 getenv("UMMAP_GROUP"));
	there = glob(pattern, 0, NULL, &found) == 0;
	if (there) {
		check(found.gl_pathc == 1);
		snprintf(path, 128, "%s", found.gl_pathv[0]);
		globfree(&found);
	}
	return there;
}

#endif
