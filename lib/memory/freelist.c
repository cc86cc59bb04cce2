/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A request for one frame gets a frame of a partly used huge page, so that other huge pages stay whole for requests
 * that need all of one. The links are in the arenas. Takes no lock: the caller holds the pool's.
 */
#include "memory/freelist.h"

/* Frames of a huge page; 1: too many to care, or only one. */
static uint32_t block_of(const struct arena *a)
{
	uint32_t n = arena_maps(a->kind) ? arena_per_huge(a->len) : 1;

	return n <= FREELIST_BLOCK ? n : 1;
}

static uint32_t *next_of(uint32_t frame)
{
	return &arena_of(frame)->next[frame & 0xffff];
}

static uint32_t *prev_of(uint32_t frame)
{
	return &arena_of(frame)->prev[frame & 0xffff];
}

/* How many of its huge page are free. */
static uint8_t *free_of(uint32_t frame)
{
	struct arena *a = arena_of(frame);
	uint32_t i = frame & 0xffff;

	return &a->free[i - i % block_of(a)];
}

static bool is_whole(uint32_t frame)
{
	uint32_t block = block_of(arena_of(frame));

	return block > 1 && *free_of(frame) == block;
}

static void link_in(_Atomic uint32_t *head, uint32_t frame)
{
	*prev_of(frame) = FRAME_NONE;
	*next_of(frame) = *head;
	if (*head != FRAME_NONE)
		*prev_of(*head) = frame;
	*head = frame;
}

static void link_out(_Atomic uint32_t *head, uint32_t frame)
{
	uint32_t prev = *prev_of(frame), next = *next_of(frame);

	if (prev == FRAME_NONE)
		*head = next;
	else
		*next_of(prev) = next;
	if (next != FRAME_NONE)
		*prev_of(next) = prev;
}

/* All of frame's huge page but itself, from one list to the other; the lowest comes out first. */
static void move_others(uint32_t frame, _Atomic uint32_t *from, _Atomic uint32_t *to)
{
	uint32_t block = block_of(arena_of(frame)), first = frame - frame % block;

	for (uint32_t i = block; i-- > 0;) {
		if (first + i == frame)
			continue;
		link_out(from, first + i);
		link_in(to, first + i);
	}
}

void freelist_push(struct freelist *l, uint32_t frame)
{
	++*free_of(frame);
	l->count++;
	if (is_whole(frame)) {
		move_others(frame, &l->loose, &l->whole);
		link_in(&l->whole, frame);
	} else {
		link_in(&l->loose, frame);
	}
}

uint32_t freelist_pop(struct freelist *l)
{
	uint32_t frame = l->loose;

	if (frame != FRAME_NONE) {
		link_out(&l->loose, frame);
	} else {
		frame = l->whole;
		if (frame == FRAME_NONE)
			return FRAME_NONE;
		frame -= frame % block_of(arena_of(frame));
		link_out(&l->whole, frame);
		move_others(frame, &l->whole, &l->loose);
	}
	--*free_of(frame);
	l->count--;
	if (l->count < l->least)
		l->least = l->count;
	return frame;
}
