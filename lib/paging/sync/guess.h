/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guessed stores. If a program stores to one page after another, a fault for each page takes most
 * of the time. Therefore, a store behind a run of dirty segments also makes segments after it
 * writable, which the program has not stored to. Each of them has a checksum from before. Only
 * segments whose checksum has changed are written: the others may have become outdated, if another
 * process has written to the same file. Used in mappings whose segments are pages
 * (UMMAP_SEG_AUTO).
 */
#ifndef GUESS_H
#define GUESS_H

#include "paging/mapping/mapping.h"

/* Prepares checksums, once in a process. */
void guess_start(void);
/* Segment i, which the caller has locked, became writable because of a store: makes the next ones
 * writable if they continue a run of stores. */
void guess_stores(struct mapping *map, size_t i);
/* Whether the mapping allows guesses. */
bool guess_may_come(const struct mapping *map);
/* Makes segment s of number i, which is locked and clean and has its frame, dirty and writable.
 * buf: its contents, to which the program cannot store yet; stores after that change the checksum.
 * guess_unmark makes it clean again, if the program could not store to it. */
void guess_mark(struct mapping *map, size_t i, struct seg *s, const char *buf);
void guess_unmark(struct mapping *map, struct seg *s);
/* Whether the program has stored to segment i since it became dirty. If another thread has locked
 * it, the answer is false. */
bool guess_was_stored(struct mapping *map, size_t i);
/* Whether the dirty segment s became writable by a guess, and `buf`, its contents, are those from
 * before. Otherwise the checksum is forgotten: the next write of the segment must not use it. The
 * program cannot store to the segment, unless it is busy (writeback.c). */
bool guess_compare(struct mapping *map, struct seg *s, struct frame_guess *guess, const char *buf);
static inline bool guess_was_wrong(struct mapping *map, struct seg *s, const char *buf)
{
	struct frame_guess *guess = frame_guess(s->frame);

	return guess && guess->sum && guess_compare(map, s, guess, buf);
}
/* The segment, whose guess was wrong, becomes clean: gives it the time that it had before. */
void guess_end(struct seg *s);
/* A flush has failed: if it may have lost bytes of the dirty segment s which were written before a
 * guess, forgets the checksum, so that they are written again. */
void guess_note_failure(struct mapping *map, struct seg *s);

#endif
