/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * FIFO; LRU; 2Q (Johnson and Shasha, VLDB 1994: a quarter of the room for new segments, ghosts of
 * half of it); S3-FIFO (Yang et al., SOSP 2023: a tenth for new segments, as many ghosts as the
 * main queue has); CLOCK-Pro (Jiang, Chen and Zhang, USENIX ATC 2005); and the unattainable
 * optimum, which evicts the segment whose next use is the latest (Belady, 1966).
 */
#include "kit/simulate.h"

#include <stdbool.h>

#include "kit/common.h"

/* ---- Queues. Each segment is in one queue at most. ---- */

enum { QUEUES = 4, NOWHERE = QUEUES };

struct sim {
	uint32_t segments, room;
	uint32_t *next, *prev;     /* rings; the ring of queue q begins at segments + q */
	uint32_t count[QUEUES];
	uint8_t *where;            /* queue of each segment */
	uint8_t *mark;             /* note of the policy about each segment */
};

static struct sim sim_begin(uint32_t segments, uint32_t room)
{
	struct sim s = { segments, room, NULL, NULL, { 0 }, NULL, NULL };
	size_t links = (size_t)segments + QUEUES;

	s.next = malloc(links * sizeof(*s.next));
	s.prev = malloc(links * sizeof(*s.prev));
	s.where = malloc(segments);
	s.mark = calloc(segments, 1);
	if (!s.next || !s.prev || !s.where || !s.mark)
		die("no memory for %u segments", segments);
	memset(s.where, NOWHERE, segments);
	for (uint32_t q = segments; q < links; q++)
		s.next[q] = s.prev[q] = q;
	return s;
}

static void sim_end(struct sim *s)
{
	free(s->next);
	free(s->prev);
	free(s->where);
	free(s->mark);
}

static void take(struct sim *s, uint32_t x)
{
	if (s->where[x] == NOWHERE)
		return;
	s->next[s->prev[x]] = s->next[x];
	s->prev[s->next[x]] = s->prev[x];
	s->count[s->where[x]]--;
	s->where[x] = NOWHERE;
}

/* Inserts a segment as the newest of its queue. */
static void put(struct sim *s, uint32_t x, unsigned q)
{
	uint32_t ring = s->segments + q;

	take(s, x);
	s->prev[x] = s->prev[ring];
	s->next[x] = ring;
	s->next[s->prev[ring]] = x;
	s->prev[ring] = x;
	s->where[x] = (uint8_t)q;
	s->count[q]++;
}

static uint32_t oldest(const struct sim *s, unsigned q)
{
	return s->next[s->segments + q];
}

/* ---- FIFO and LRU ---- */

static bool fifo(struct sim *s, uint32_t x)
{
	if (s->where[x] == 0)
		return true;
	if (s->count[0] == s->room)
		take(s, oldest(s, 0));
	put(s, x, 0);
	return false;
}

static bool lru(struct sim *s, uint32_t x)
{
	bool hit = fifo(s, x);

	if (hit)
		put(s, x, 0);
	return hit;
}

/* ---- 2Q ---- */

enum { NEW, GHOSTS, MAIN };

static void make_room_2q(struct sim *s)
{
	if (s->count[NEW] + s->count[MAIN] < s->room)
		return;
	if (s->count[NEW] > s->room / 4 || !s->count[MAIN]) {
		put(s, oldest(s, NEW), GHOSTS);
		if (s->count[GHOSTS] > s->room / 2)
			take(s, oldest(s, GHOSTS));
	} else {
		take(s, oldest(s, MAIN));
	}
}

static bool two_queues(struct sim *s, uint32_t x)
{
	bool ghost = s->where[x] == GHOSTS;

	if (s->where[x] == MAIN)
		put(s, x, MAIN);
	if (s->where[x] == MAIN || s->where[x] == NEW)
		return true;
	if (ghost)
		take(s, x);
	make_room_2q(s);
	put(s, x, ghost ? MAIN : NEW);
	return false;
}

/* ---- S3-FIFO. The mark is the number of uses, up to 3. ---- */

static void make_room_s3(struct sim *s)
{
	while (s->count[NEW] + s->count[MAIN] >= s->room) {
		bool small = s->count[NEW] > s->room / 10 || !s->count[MAIN];
		uint32_t x = oldest(s, small ? NEW : MAIN);

		if (small && s->mark[x] > 1) {
			s->mark[x] = 0;
			put(s, x, MAIN);
		} else if (small) {
			put(s, x, GHOSTS);
			if (s->count[GHOSTS] > s->room - s->room / 10)
				take(s, oldest(s, GHOSTS));
		} else if (s->mark[x]) {
			s->mark[x]--;
			put(s, x, MAIN);
		} else {
			take(s, x);
		}
	}
}

static bool s3fifo(struct sim *s, uint32_t x)
{
	bool ghost = s->where[x] == GHOSTS;

	if (s->where[x] == NEW || s->where[x] == MAIN) {
		s->mark[x] += s->mark[x] < 3;
		return true;
	}
	if (ghost)
		take(s, x);
	make_room_s3(s);
	s->mark[x] = 0;
	put(s, x, ghost ? MAIN : NEW);
	return false;
}

/* ---- CLOCK-Pro. One ring has hot, cold and absent segments (ghosts) in the order of arrival. ----
 * */

enum { USED = 1, HOT = 2, COLD = 4, TESTED = 8, ABSENT = 16 };

struct clock {
	struct sim *s;
	uint32_t cold_hand, hot_hand, test_hand;
	uint32_t hot, cold, absent, cold_room;
};

static struct clock clk;

static uint32_t after(uint32_t x)
{
	uint32_t next = clk.s->next[x];

	return next == clk.s->segments ? clk.s->next[next] : next;
}

static void leave(uint32_t x)
{
	uint32_t *hands[] = { &clk.cold_hand, &clk.hot_hand, &clk.test_hand };

	for (int i = 0; i < 3; i++)
		if (*hands[i] == x)
			*hands[i] = after(x) == x ? clk.s->segments : after(x);
	take(clk.s, x);
}

/* Inserts a segment as the newest one, right after the hot hand. */
static void come(uint32_t x, uint8_t mark)
{
	struct sim *s = clk.s;
	uint32_t at = clk.hot_hand;

	s->mark[x] = mark;
	if (s->count[0] == 0) {
		put(s, x, 0);
		clk.hot_hand = clk.cold_hand = clk.test_hand = x;
		return;
	}
	s->prev[x] = s->prev[at];
	s->next[x] = at;
	s->next[s->prev[at]] = x;
	s->prev[at] = x;
	s->where[x] = 0;
	s->count[0]++;
}

static void end_test(uint32_t x)
{
	struct sim *s = clk.s;

	if (!(s->mark[x] & TESTED))
		return;
	s->mark[x] &= (uint8_t)~TESTED;
	if (clk.cold_room > 1)
		clk.cold_room--;
	if (s->mark[x] & ABSENT) {
		clk.absent--;
		leave(x);
	}
}

static void run_test_hand(void)
{
	uint32_t x = clk.test_hand;

	clk.test_hand = after(x);
	if (clk.s->mark[x] & (COLD | ABSENT))
		end_test(x);
}

/* Makes an unused hot segment cold, and ends tests on the way. */
static void run_hot_hand(void)
{
	struct sim *s = clk.s;
	uint32_t x = clk.hot_hand;

	clk.hot_hand = after(x);
	if (!(s->mark[x] & HOT)) {
		end_test(x);
	} else if (s->mark[x] & USED) {
		s->mark[x] = HOT;
	} else {
		s->mark[x] = COLD;
		clk.hot--;
		clk.cold++;
	}
}

static void run_cold_hand(void)
{
	struct sim *s = clk.s;
	uint32_t x = clk.cold_hand;

	clk.cold_hand = after(x);
	if (!(s->mark[x] & COLD))
		return;
	if ((s->mark[x] & (USED | TESTED)) == (USED | TESTED)) {
		leave(x);
		come(x, HOT);
		clk.cold--;
		clk.hot++;
	} else if (s->mark[x] & USED) {
		leave(x);
		come(x, COLD | TESTED);
	} else if (s->mark[x] & TESTED) {
		s->mark[x] = ABSENT | TESTED;
		clk.cold--;
		clk.absent++;
		while (clk.absent > s->room)
			run_test_hand();
	} else {
		clk.cold--;
		leave(x);
	}
	while (clk.hot > s->room - clk.cold_room)
		run_hot_hand();
}

static bool clock_pro(struct sim *s, uint32_t x)
{
	bool ghost = s->where[x] == 0 && s->mark[x] & ABSENT;

	if (s->where[x] == 0 && !ghost) {
		s->mark[x] |= USED;
		return true;
	}
	if (ghost) {
		if (clk.cold_room < s->room - 1)
			clk.cold_room++;
		clk.absent--;
		leave(x);
	}
	while (clk.hot + clk.cold >= s->room)
		run_cold_hand();
	come(x, ghost ? HOT : COLD | TESTED);
	if (ghost)
		clk.hot++;
	else
		clk.cold++;
	while (clk.hot > s->room - clk.cold_room)
		run_hot_hand();
	return false;
}

/* ---- Belady. A heap of resident segments by their next use. ---- */

struct future {
	size_t next;               /* number of the next use; n: none */
	uint32_t segment;
};

static void sift_up(struct future *heap, size_t at)
{
	for (; at > 0 && heap[(at - 1) / 2].next < heap[at].next; at = (at - 1) / 2) {
		struct future f = heap[at];

		heap[at] = heap[(at - 1) / 2];
		heap[(at - 1) / 2] = f;
	}
}

static void sift_down(struct future *heap, size_t n)
{
	for (size_t at = 0, child; (child = 2 * at + 1) < n; at = child) {
		struct future f = heap[at];

		child += child + 1 < n && heap[child + 1].next > heap[child].next;
		if (heap[child].next <= f.next)
			break;
		heap[at] = heap[child];
		heap[child] = f;
	}
}

/* Entries of past uses, which `due` shows, are skipped. */
static size_t belady(const uint32_t *uses, size_t n, uint32_t segments, uint32_t room)
{
	struct future *heap = malloc((n + 1) * sizeof(*heap));
	size_t *next = malloc((n + 1) * sizeof(*next)), *due = malloc(segments * sizeof(*due)),
	       entries = 0, there = 0, misses = 0;
	bool *is_there = calloc(segments, sizeof(*is_there));

	if (!heap || !next || !due || !is_there)
		die("no memory for %zu uses", n);
	for (uint32_t x = 0; x < segments; x++)
		due[x] = n;
	for (size_t i = n; i-- > 0; due[uses[i]] = i)
		next[i] = due[uses[i]];
	for (size_t i = 0; i < n; i++) {
		if (!is_there[uses[i]]) {
			misses++;
			while (there == room) {
				struct future first = heap[0];

				heap[0] = heap[--entries];
				sift_down(heap, entries);
				if (!is_there[first.segment] || due[first.segment] != first.next)
					continue;
				is_there[first.segment] = false;
				there--;
			}
			is_there[uses[i]] = true;
			there++;
		}
		due[uses[i]] = next[i];
		heap[entries] = (struct future){ next[i], uses[i] };
		sift_up(heap, entries++);
	}
	free(heap);
	free(next);
	free(due);
	free(is_there);
	return misses;
}

/* ---- All policies ---- */

static const struct {
	const char *name;
	bool (*use)(struct sim *s, uint32_t x);
} policies[] = { { "FIFO", fifo },
		 { "LRU", lru },
		 { "2Q", two_queues },
		 { "S3-FIFO", s3fifo },
		 { "CLOCK-Pro", clock_pro } };

const char *const simulated_policies[] = { "FIFO",      "LRU",    "2Q", "S3-FIFO",
					   "CLOCK-Pro", "Belady", NULL };

size_t simulate(const char *policy, const uint32_t *uses, size_t n, uint32_t segments,
		uint32_t room)
{
	size_t misses = 0;
	struct sim s;
	unsigned p = 0;

	if (!strcmp(policy, "Belady"))
		return belady(uses, n, segments, room);
	while (strcmp(policies[p].name, policy) != 0)
		p++;
	s = sim_begin(segments, room);
	clk = (struct clock){ &s, segments, segments, segments, 0, 0, 0, room > 4 ? room / 4 : 1 };
	for (size_t i = 0; i < n; i++)
		misses += !policies[p].use(&s, uses[i]);
	sim_end(&s);
	return misses;
}
