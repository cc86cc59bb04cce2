/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A request for one frame gets a frame of a partly used huge page, so that other huge pages stay
 * whole for requests that need all of one. The links are in the arenas. Takes no lock: the caller
 * holds the pool's.
 */
#include "memory/freelist.h"

static void link_in(_Atomic uint32_t *head, uint32_t frame)
{
	struct arena *a = arena_of(frame);

	a->prev[frame & 0xffff] = FRAME_NONE;
	a->next[frame & 0xffff] = *head;
	if (*head != FRAME_NONE)
		arena_of(*head)->prev[*head & 0xffff] = frame;
	*head = frame;
}

static void link_out(_Atomic uint32_t *head, uint32_t frame)
{
	const struct arena *a = arena_of(frame);
	uint32_t prev = a->prev[frame & 0xffff], next = a->next[frame & 0xffff];

	if (prev == FRAME_NONE)
		*head = next;
	else
		arena_of(prev)->next[prev & 0xffff] = next;
	if (next != FRAME_NONE)
		arena_of(next)->prev[next & 0xffff] = prev;
}

/* Moves all frames of a huge page except `frame` from one list to the other, so that the lowest is
 * taken first. */
static void move_others(uint32_t frame, uint32_t n, _Atomic uint32_t *from, _Atomic uint32_t *to)
{
	uint32_t first = frame - frame % n;

	for (uint32_t i = n; i-- > 0;) {
		if (first + i == frame)
			continue;
		link_out(from, first + i);
		link_in(to, first + i);
	}
}

void freelist_push(struct freelist *l, uint32_t frame)
{
	struct arena *a = arena_of(frame);
	uint32_t n = a->tracked, first = (frame & 0xffff) / n * n;

	l->count++;
	if (++a->free[first] == n && n > 1) {
		move_others(frame, n, &l->loose, &l->whole);
		link_in(&l->whole, frame);
	} else {
		link_in(&l->loose, frame);
	}
}

uint32_t freelist_pop(struct freelist *l)
{
	bool is_loose = l->loose != FRAME_NONE;
	uint32_t frame = is_loose ? l->loose : l->whole, n;

	if (frame == FRAME_NONE)
		return FRAME_NONE;
	n = arena_of(frame)->tracked;
	if (is_loose) {
		link_out(&l->loose, frame);
	} else {
		frame -= frame % n;
		link_out(&l->whole, frame);
		move_others(frame, n, &l->whole, &l->loose);
	}
	arena_of(frame)->free[(frame & 0xffff) / n * n]--;
	l->count--;
	if (l->count < l->least)
		l->least = l->count;
	return frame;
}
