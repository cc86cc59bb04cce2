/* SPDX-License-Identifier: BSD-3-Clause */
/* Commits with a handle: the contents of a mapping at one moment become durable in the
 * background, while the program goes on. */
#ifndef COMMIT_H
#define COMMIT_H

#include "paging/mapping/mapping.h"

/* A commit and its result. It belongs to the caller of umsync_begin, who frees it. */
struct umsync_handle {
	_Atomic bool done;       /* whether the commit has ended; set last */
	int error;               /* 0 or -errno; valid if done */
	unsigned process;        /* number of forks before it began */
	char message[512];       /* error message; valid if done */
	uint64_t began;          /* its moment, for the timeline */
	uint64_t bytes;          /* bytes of its segments */
};

/* Begins a commit of the contents of this moment for the only user of a mapping, which has none in
 * flight. Returns 0 or -errno. Afterwards the caller thaws the mapping and calls commit_run. */
int commit_begin(struct mapping *map, struct umsync_handle *h);
/* Has the commit written in the background; or here, if the queue of jobs is full. */
void commit_run(struct mapping *map);
/* For a mapping that cannot change during a sync, or needs one: the commit ends at once. */
void commit_at_once(struct mapping *map, struct umsync_handle *h);

static inline bool commit_runs(const struct mapping *map)
{
	return map->sync.commit != NULL;
}
/* Bytes that it has yet to write. */
static inline size_t commit_bytes(const struct mapping *map)
{
	return map->sync.commit_left << map->shift;
}
/* Waits until no commit is in flight; commit_await_for: for `ms` at most, returns whether one still
 * is. The caller has a use of the mapping, so none begins before the caller leaves. */
bool commit_await_end(const struct mapping *map, int ms); /* only for commit_await_for */
static inline bool commit_await_for(const struct mapping *map, int ms)
{
	return commit_runs(map) && commit_await_end(map, ms);
}
static inline void commit_await(const struct mapping *map)
{
	while (commit_await_for(map, -1))
		;
}
/* Waits until the commit of the handle has ended, for `ms` at most (-1: without bound). Returns
 * false if the parent of this forked child has begun it. */
bool commit_wait(const struct umsync_handle *h, int ms);
/* In a forked child. */
void commit_forget(void);

/* For a segment that the caller has locked. */

/* Whether the segment must not be written, because it is newer than the commit in flight. */
static inline bool commit_bars(const struct mapping *map, const struct seg *s)
{
	return commit_runs(map) && !seg_has(s, SEG_COMMIT);
}
/* Whether the commit has yet to write the segment, or a copy of it; its address. */
bool commit_has_copy(const struct mapping *map, size_t i);
char *commit_copy(const struct mapping *map, size_t i);
static inline bool commit_needs(const struct mapping *map, size_t i, const struct seg *s)
{
	return seg_has(s, SEG_COMMIT) || commit_has_copy(map, i);
}
/* The store has the copy of a segment. stored: because it was written now, not before. */
void commit_note_copy(struct mapping *map, size_t i, struct seg *s, bool stored);
/* Must be called before the program can store to segment i, whose contents are in buf. If the
 * commit needs them, they are copied, or written if memory has no room for a copy. */
void commit_keep_contents(struct mapping *map, size_t i, struct seg *s, const char *buf);
static inline void commit_keep(struct mapping *map, size_t i, struct seg *s, const char *buf)
{
	if (seg_has(s, SEG_COMMIT))
		commit_keep_contents(map, i, s, buf);
}

#endif
