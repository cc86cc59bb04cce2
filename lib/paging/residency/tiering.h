/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves segments between tiers (memory/tiers.h). Only mappings whose frames move as a whole have
 * tiers; the frames of others have a place of their own.
 *
 * To learn which segments are used, the background thread takes the rights of a few segments each
 * second. The time to the next access tells how often a segment is used. After two samples, a
 * segment is promoted to the fastest tier if one there is used much less often. A segment that is
 * not accessed for a second is cold.
 *
 * A load finds a frame as without tiers: a free one in the fastest tier that has any, or that of a
 * segment of the last tier, which alone loses segments to storage. If a faster tier has a cold
 * segment, that one is demoted to this frame, and the load gets the frame of the cold segment. A
 * segment that replaces only segments in use stays where it was loaded until it is promoted:
 * otherwise, segments that are used once would expel those that are used often.
 */
#ifndef TIERING_H
#define TIERING_H

#include "paging/mapping/mapping.h"

/* Sets the policy (UMMAP_TIERS_POLICY). Returns 0, or -EINVAL with a message. */
int tiering_start(const char *name);
/* Gives a new mapping its tiers: those of these names, NULL: all. reason: the flag or variable that
 * has led to the engine of the mapping, NULL: the caller has chosen the engine. Returns 0, or
 * -EINVAL with a message. */
int tiering_begin(struct mapping *map, const char *names, const char *reason);

/* Bytes of frames that a mapping with tiers may have in them, beside pinned segments. */
size_t tiering_find_room(const struct mapping *map);
static inline size_t tiering_room(const struct mapping *map)
{
	return map->tiers ? tiering_find_room(map) : SIZE_MAX;
}

/* Exchanges a taken frame for one of a faster tier whose segment moves to it. Returns the frame to
 * use. */
uint32_t tiering_improve(struct mapping *map, uint32_t frame);

/* Records that a segment, which is locked and absent, has got this frame. */
void tiering_note_load(struct seg *s, uint32_t frame);
static inline void tiering_set_frame(const struct mapping *map, struct seg *s, uint32_t frame)
{
	s->frame = frame;
	if (map->tiers)
		tiering_note_load(s, frame);
}

/* Records an access to segment i, which is locked and resident, and may move it. */
void tiering_note_use(struct mapping *map, size_t i, struct seg *s);
/* The process exceeds its budget: moves a segment of the class of a mapping to a tier that is a
 * file, and frees its memory. Returns false if there is none, or those tiers are full. */
bool tiering_shrink(struct mapping *map);
/* For the background thread, once a second: takes samples. */
void tiering_sample(void);

/* Keeps the segments of [first, last) in a tier; tier_count: in any. Returns 0, or -ENOSPC: the
 * mapping has too many such ranges. */
int tiering_pin(struct mapping *map, size_t first, size_t last, unsigned tier);

/* Fills in the counters of the tiers; in a forked child, they begin at 0. */
void tiering_count(struct umstat *st);
void tiering_forget(void);

#endif
