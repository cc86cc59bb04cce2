/* SPDX-License-Identifier: BSD-3-Clause */
/* The frames of huge pages, without any mapping: taken and given back in any order, they come whole again. */
#include "memory/frame.h"
#include "huge.h"

#include <criterion/criterion.h>

#define SEG (256 * KIB)
#define PIECE (2 * MIB / SEG)
#define BUDGET (64 * MIB)
#define BLOCKS 8
#define FRAMES (BLOCKS * PIECE)

static const struct frame_type type = { .whole = true, .block = HUGE_PAGE };
static struct frame_class *class;

static void take_all(uint32_t *frames)
{
	frame_start(1 << 20);
	class = frame_find_class(&type, false, SEG);
	for (size_t i = 0; i < FRAMES; i++) {
		frames[i] = frame_take(class, BUDGET);
		cr_assert_neq(frames[i], FRAME_NONE);
	}
}

static void give_shuffled(uint32_t *frames, size_t n)
{
	uint64_t seed = 11;

	for (size_t left = n; left > 0; left--) {
		size_t i = next_random(&seed) % left;
		uint32_t frame = frames[i];

		frames[i] = frames[left - 1];
		frame_free(frame);
	}
}

/* The next frames to be taken are a huge page: its first. */
static uint32_t take_block(void)
{
	uint32_t first = frame_take(class, BUDGET);

	cr_assert_eq(first % PIECE, 0, "%u", first);
	for (uint32_t i = 1; i < PIECE; i++)
		cr_assert_eq(frame_take(class, BUDGET), first + i);
	return first;
}

Test(blocks, whole_again)
{
	uint32_t frames[FRAMES];
	bool seen[BLOCKS] = { false };

	take_all(frames);
	give_shuffled(frames, FRAMES);
	for (size_t b = 0; b < BLOCKS; b++) {
		uint32_t first = take_block();

		cr_assert_lt(first / PIECE, BLOCKS);
		cr_assert(!seen[first / PIECE], "%u twice", first);
		seen[first / PIECE] = true;
	}
	cr_expect_eq(frame_used(), FRAMES);
}

/* What is left of a huge page goes first, and a huge page is whole once the last one of it is back. */
Test(blocks, breaks_few)
{
	uint32_t frames[FRAMES], first, other;

	take_all(frames);
	give_shuffled(frames, FRAMES);
	first = take_block();
	other = take_block();
	frame_free(first + 3);
	frame_free(other + 1);
	cr_expect_eq(frame_take(class, BUDGET), other + 1);
	cr_expect_eq(frame_take(class, BUDGET), first + 3);
	for (uint32_t i = 0; i < PIECE - 1; i++)
		frame_free(first + (i * 3) % PIECE);
	cr_expect_eq(frame_take(class, BUDGET) / PIECE, first / PIECE, "it lacks one");
	frame_free(first + (PIECE - 2) * 3 % PIECE);
	frame_free(first + (PIECE - 1) * 3 % PIECE);
	frame_free(other + 2);
	cr_expect_eq(frame_take(class, BUDGET), other + 2, "what is whole comes last");
	cr_expect_eq(take_block(), first);
}

/* Frames that nobody needed go, and what comes in their place is whole. */
Test(blocks, ages)
{
	uint32_t frames[FRAMES];

	take_all(frames);
	give_shuffled(frames, FRAMES);
	frame_age();
	frame_age();
	cr_expect_eq(frame_held(), 0);
	for (size_t b = 0; b < BLOCKS; b++)
		take_block();
	cr_expect_eq(frame_held(), FRAMES * SEG);
}

/* What has moved in parts is on a huge page again when it is mended, and may be written. */
Test(blocks, mends)
{
	uint32_t frames[FRAMES], first;
	size_t huge;

	take_all(frames);
	give_shuffled(frames, FRAMES);
	first = take_block();
	cr_expect(!frame_is_split(first));
	cr_assert_eq(mprotect(frame_addr(first) + SEG, SEG, PROT_READ), 0);
	frame_note_unmapped(first + 1, 1, false);
	cr_expect(frame_is_split(first));
	huge = huge_bytes((uint8_t *)frame_addr(first) - GIB, 2 * GIB);
	frame_collapse(first, PIECE);
	cr_expect(!frame_is_split(first));
	if (has_huge_pages())
		cr_expect_eq(huge_bytes((uint8_t *)frame_addr(first) - GIB, 2 * GIB), huge + 2 * MIB);
	for (uint32_t i = 0; i < PIECE; i++)
		cr_expect(frame_writable(first + i));
	memset(frame_addr(first), 2, PIECE * SEG);
}
