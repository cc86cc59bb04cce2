/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks of 2 MiB of mappings with small segments, each on one huge page. */
#ifndef HUGE_BLOCKS_H
#define HUGE_BLOCKS_H

#include "paging/mapping/mapping.h"

/* Whether a mapping may have such blocks. */
static inline bool huge_blocks_come(const struct mapping *map)
{
	return map->residency.huge;
}

/* Prepares a new mapping, whose faults bring in neighbors. Without memory for the marks, or if the
 * mapping or its engine does not allow it, the mapping has no such blocks. */
void huge_blocks_begin(struct mapping *map);
void huge_blocks_end(struct mapping *map);
/* Advises the kernel about the mapped range of a mapping that has such blocks. Returns whether it
 * accepts the advice. */
bool huge_blocks_advise(const struct mapping *map);
/* In a forked child, which has none of the buffers. */
void huge_blocks_forget(void);

/* Whether segments [first, end) are a whole block that may be on a huge page. */
bool huge_blocks_fit(const struct mapping *map, size_t first, size_t end);
/* Takes a buffer of 2 MiB on a huge page, with arbitrary contents. NULL: there is none. */
char *huge_blocks_take_buffer(const struct mapping *map);
/* Returns a buffer that was not moved. */
void huge_blocks_give_buffer(char *buffer);
/* Moves the memory of a buffer to the mapped range of the whole block from segment `first` on,
 * which is absent, and returns the buffer. Returns 0, or -errno after which nothing has changed. */
int huge_blocks_map(struct mapping *map, size_t first, char *buffer);
/* Whether segment i belongs to a block that is on a huge page. */
bool huge_blocks_has(const struct mapping *map, size_t i);
/* Segment s leaves the mapped range without the rest of its block, which is not on a huge page
 * then. */
void huge_blocks_clear_mark(struct mapping *map, const struct seg *s);
static inline void huge_blocks_note_single(struct mapping *map, const struct seg *s)
{
	if (huge_blocks_come(map))
		huge_blocks_clear_mark(map, s);
}

/* Locks and removes from their list all segments of the block of segment s, which the caller has
 * locked and removed, if the block is on a huge page, and all segments are of the kind
 * (CACHE_RESIDENT or CACHE_RESIDENT_CLEAN) and can be evicted for `wanted`. Returns the first
 * segment, or SIZE_MAX if only s is locked. */
size_t huge_blocks_lock(struct mapping *map, struct seg *s, struct account *account,
			const struct mapping *wanted, enum cache_kind kind);
/* Does so for the block from segment `first` on, of which the caller has locked no segment, even if
 * it is on small pages. Returns whether the segments are locked. */
bool huge_blocks_lock_at(struct mapping *map, size_t first);
/* Empties the mapped range of such a block, whose contents are lost. Returns 0 or -errno. */
int huge_blocks_unmap(struct mapping *map, size_t first);

#endif
