/* SPDX-License-Identifier: BSD-3-Clause */
/* The frames of huge pages, without a mapping: after frames are taken and returned in any order,
 * the blocks are complete again. */
#include "memory/frame.h"
#include "huge.h"

#include <criterion/criterion.h>

#define SEG (256 * KIB)
#define FRAMES_PER_BLOCK (2 * MIB / SEG)
#define BUDGET (64 * MIB)
#define BLOCKS 8
#define FRAMES (BLOCKS * FRAMES_PER_BLOCK)

static const struct frame_type type = { .whole = true, .block = HUGE_PAGE };
static struct frame_class *class;

static void take_all(uint32_t *frames)
{
	frame_start(1 << 20);
	class = frame_find_class(&type, false, SEG);
	for (size_t i = 0; i < FRAMES; i++) {
		frames[i] = frame_take(class, 1, BUDGET);
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

/* Takes the frames of a huge page. Returns the first one. */
static uint32_t take_block(void)
{
	uint32_t first = frame_take(class, 1, BUDGET);

	cr_assert_eq(first % FRAMES_PER_BLOCK, 0, "%u", first);
	for (uint32_t i = 1; i < FRAMES_PER_BLOCK; i++)
		cr_assert_eq(frame_take(class, 1, BUDGET), first + i);
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

		cr_assert_lt(first / FRAMES_PER_BLOCK, BLOCKS);
		cr_assert(!seen[first / FRAMES_PER_BLOCK], "%u twice", first);
		seen[first / FRAMES_PER_BLOCK] = true;
	}
	cr_expect_eq(frame_used(), FRAMES);
}

/* Frames of an incomplete huge page are taken first. A huge page is complete when its last frame is
 * returned. */
Test(blocks, breaks_few)
{
	uint32_t frames[FRAMES], first, other;

	take_all(frames);
	give_shuffled(frames, FRAMES);
	first = take_block();
	other = take_block();
	frame_free(first + 3);
	frame_free(other + 1);
	cr_expect_eq(frame_take(class, 1, BUDGET), other + 1);
	cr_expect_eq(frame_take(class, 1, BUDGET), first + 3);
	for (uint32_t i = 0; i < FRAMES_PER_BLOCK - 1; i++)
		frame_free(first + (i * 3) % FRAMES_PER_BLOCK);
	cr_expect_eq(frame_take(class, 1, BUDGET) / FRAMES_PER_BLOCK, first / FRAMES_PER_BLOCK,
		     "it lacks one");
	frame_free(first + (FRAMES_PER_BLOCK - 2) * 3 % FRAMES_PER_BLOCK);
	frame_free(first + (FRAMES_PER_BLOCK - 1) * 3 % FRAMES_PER_BLOCK);
	frame_free(other + 2);
	cr_expect_eq(frame_take(class, 1, BUDGET), other + 2, "what is whole comes last");
	cr_expect_eq(take_block(), first);
}

/* Unused frames are returned to the system, and new blocks are complete. */
/* A request for a huge page gets one that is free as a whole, even if there are single frames. */
Test(blocks, takes_a_whole_one)
{
	uint32_t frames[FRAMES], first;

	take_all(frames);
	for (size_t i = 0; i < FRAMES; i++) {
		if (i % FRAMES_PER_BLOCK || i == 2 * FRAMES_PER_BLOCK)
			frame_free(frames[i]);
	}
	first = frame_take_whole(class, 1);
	cr_expect_eq(first, frames[2 * FRAMES_PER_BLOCK]);
	cr_expect_eq(frame_take_whole(class, 1), FRAME_NONE);
	cr_expect_eq(frame_used(), BLOCKS - 1 + FRAMES_PER_BLOCK);
	for (uint32_t i = 0; i < FRAMES_PER_BLOCK; i++)
		frame_free(first + i);
	cr_expect_eq(frame_take_whole(class, 1), first);
}

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

/* A block that was moved in parts becomes a writable huge page when it is repaired. */
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
	frame_collapse(first, FRAMES_PER_BLOCK);
	cr_expect(!frame_is_split(first));
	if (has_huge_pages())
		cr_expect_eq(huge_bytes((uint8_t *)frame_addr(first) - GIB, 2 * GIB),
			     huge + 2 * MIB);
	for (uint32_t i = 0; i < FRAMES_PER_BLOCK; i++)
		cr_expect(frame_writable(first + i));
	memset(frame_addr(first), 2, FRAMES_PER_BLOCK * SEG);
}
