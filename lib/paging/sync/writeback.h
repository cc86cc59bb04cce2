/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes dirty segments to their store. */
#ifndef WRITEBACK_H
#define WRITEBACK_H

#include "paging/mapping/mapping.h"

/* All functions return 0 or -errno. Segments that could not be written stay dirty and in memory. */

/* Writes the segments of [*at, last) that became dirty before the time `before` (ms), until the
 * time `until` (sys_now) or until all are written, but one run at least. *at: where it stopped. */
int writeback_scan(struct mapping *map, size_t *at, size_t last, uint64_t before, uint64_t until);
/* The same for all segments of [first, last); and for those that are dirty now. */
static inline int writeback_range(struct mapping *map, size_t first, size_t last, uint64_t before)
{
	return writeback_scan(map, &first, last, before, UINT64_MAX);
}
static inline int writeback_some(struct mapping *map, size_t *at, size_t last, uint64_t until)
{
	return writeback_scan(map, at, last, UINT64_MAX, until);
}
/* Returns the largest number of segments that are written together. */
size_t writeback_run(const struct mapping *map);
/* Writes segment i, which is valid and locked by the caller, and its unlocked neighbours as far as
 * `last`. */
int writeback_locked(struct mapping *map, size_t i, size_t last);
/* Writes the dirty ones of segments [first, end), which are resident, and which the caller has
 * locked; they stay locked. One call makes all read-only, so that the kernel does not split a huge
 * page. Returns 0 or the first error. */
int writeback_stretch(struct mapping *map, size_t first, size_t end);

/* Writes the dirty segment of the account, and of a mapping unless that is NULL, that has been
 * inactive longest, with neighbours. Returns false if there is none, or if it cannot be written
 * now. */
bool writeback_inactive(struct account *account, struct mapping *map);
/* For a commit (commit.c). writeback_mark: the caller is the only user of the mapping; all dirty
 * segments lose the right to store and get SEG_COMMIT. writeback_commit: writes a run of segments
 * that the commit needs, from *at on, and advances *at; returns its bytes, 0 if none is left, or
 * -errno. */
int writeback_mark(struct mapping *map);
long writeback_commit(struct mapping *map, size_t *at);

/* Wakes the threads that wait for the end of a write or of a commit. */
void writeback_note_end(void);
/* Waits until a write that is in progress has ended; or, with `commits`, a commit in flight. seen:
 * what writeback_seen has returned before the caller looked for commits. Returns false if neither
 * is in progress. */
uint32_t writeback_seen(void);
bool writeback_wait(uint32_t seen, bool commits);
/* In a forked child: no write is in progress. */
void writeback_forget(void);
/* Makes workers write dirty inactive segments until none is left. The caller holds the lock of a
 * segment or a use of the mapping. */
void writeback_behind(struct mapping *map);
/* Keeps the error of a background write for the next sync, unless one is kept already; returns
 * whether it was kept. writeback_take_error takes it for the sync. */
bool writeback_keep_error(struct mapping *map, int err);
static inline int writeback_take_error(struct mapping *map)
{
	return atomic_exchange(&map->sync.error, 0);
}

/* Returns the errno of the last write of the mapping; 0: it succeeded. */
static inline int writeback_error(const struct mapping *map)
{
	return map->sync.write_error;
}

#endif
