/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Commits. The moment of a commit is a moment at which its caller is the only user of the mapping:
 * all dirty segments lose the right to store and get the mark SEG_COMMIT, so each store of the
 * program is before the moment or after it. A worker then writes the marked segments and flushes.
 * Before the first store to a marked segment, its contents are copied to a frame, which the worker
 * writes instead; or, if the budget has no room for a copy, the storing thread writes the segment
 * first. Until the flush has ended, nothing else of the mapping is written, so the store gets the
 * contents of the moment and no newer ones. A thread that lacks memory waits for the commit
 * (writeback_wait), because changes that are newer cannot leave memory before its end.
 *
 * A copy belongs to the lock of its segment, as a twin does. The worker locks only segments that
 * have a mark or a copy, and waits for such a lock only while they have it (map_lock_if): another
 * thread may write the segment, drop it and load it again, and then wait for the worker with the
 * lock. A thread that waits for the commit holds the lock of no segment with a mark or a copy.
 */
#include "paging/sync/commit.h"

#include "base/log.h"
#include "base/worker.h"
#include "common/timeline.h"
#include "engine/messages.h"
#include "paging/residency/evict.h"
#include "paging/sync/sync.h"
#include "paging/sync/twin.h"
#include "paging/sync/writeback.h"

#include <stdio.h>
#include <string.h>

static _Atomic uint32_t commits_ended; /* a futex */
static unsigned forks;                 /* number of forks between the first process and this one */

/* ---- Copies ---- */

static uint32_t *copy_entry(const struct mapping *map, size_t i)
{
	const struct extent *e = map_extent(map, i);

	return e->copies ? &e->copies[i - e->first] : NULL;
}

bool commit_has_copy(const struct mapping *map, size_t i)
{
	const uint32_t *copy = copy_entry(map, i);

	/* Other threads set the entry while the scan of the worker looks for it. */
	return copy && __atomic_load_n(copy, __ATOMIC_RELAXED);
}

char *commit_copy(const struct mapping *map, size_t i)
{
	return frame_addr(*copy_entry(map, i) - 1);
}

static void set_copy(struct mapping *map, size_t i, uint32_t entry)
{
	__atomic_store_n(copy_entry(map, i), entry, __ATOMIC_RELAXED);
}

static void drop_copy(struct mapping *map, size_t i)
{
	uint32_t frame = *copy_entry(map, i) - 1;

	account_refund(map_account(map), map->seg_size);
	frame_free(frame);
	set_copy(map, i, 0);
}

void commit_note_copy(struct mapping *map, size_t i, struct seg *s, bool stored)
{
	if (stored)
		seg_change(s, 0, SEG_STORED);
	map->sync.commit_left--;
	if (!twin_has(map, i)) {
		drop_copy(map, i);
		return;
	}
	twin_replace(map, i, *copy_entry(map, i) - 1);
	set_copy(map, i, 0);
}

/* Copies the contents of segment i to a frame within the budget. */
static bool make_copy(struct mapping *map, size_t i, const char *buf)
{
	uint32_t frame = evict_take_spare(map);

	if (frame == FRAME_NONE)
		return false;
	if (!frame_writable(frame) && frame_make_writable(frame, 1) < 0) {
		evict_return_frame(map, frame);
		return false;
	}
	frame_use_blank(frame);
	memcpy(frame_addr(frame), buf, map_len(map, i));
	set_copy(map, i, frame + 1);
	return true;
}

void commit_keep_contents(struct mapping *map, size_t i, struct seg *s, const char *buf)
{
	int err = 0;

	if (make_copy(map, i, buf)) {
		seg_change(s, SEG_COMMIT, 0);
		return;
	}
	messages_pass_turn(map->engine);
	err = writeback_locked(map, i, i + 1);
	if (!err)
		return;
	/* The store goes on, and the commit fails. */
	map->sync.commit_error = err;
	map->sync.commit_left--;
	seg_change(s, SEG_COMMIT, 0);
}

/* ---- Beginning and end ---- */

/* The commit has failed: the marks and copies that are left go. Their segments stay dirty. */
static void cancel(struct mapping *map)
{
	for (size_t i = map_next_dirty(map, 0); i < map->segs; i = map_next_dirty(map, i + 1)) {
		struct seg *s = map_seg(map, i);

		if (!map_lock_if(map, i, s, commit_needs))
			continue;
		if (commit_has_copy(map, i))
			drop_copy(map, i);
		seg_change(s, SEG_COMMIT, 0);
		map_unlock(map, i, s);
	}
	map->sync.commit_left = 0;
}

int commit_begin(struct mapping *map, struct umsync_handle *h)
{
	int err = map_make_copies(map);

	h->began = timeline_begin();
	if (!err)
		err = writeback_mark(map);
	if (err) {
		cancel(map);
		return err;
	}
	h->process = forks;
	h->bytes = commit_bytes(map);
	/* Also between two writes, threads that lack memory wait for the end of the commit. */
	map_account(map)->commits++;
	map->sync.commit_error = 0;
	map->sync.commit = h;
	/* Evictions leave the mapping alone: the worker writes it. */
	map->member.retry = UINT64_MAX;
	return 0;
}

/* Sleeps as long as the rate of the mapping demands after so many bytes since `began`. */
static void keep_rate(const struct mapping *map, uint64_t began, uint64_t bytes)
{
	static _Atomic uint32_t unchanged;
	uint64_t passed = sys_now() - began, due;

	if (!map->flush_rate)
		return;
	due = (uint64_t)((double)bytes / (double)map->flush_rate * 1000);
	if (due > passed)
		futex_wait(&unchanged, 0, (int)min_size(due - passed, INT32_MAX));
}

static int write_all(struct mapping *map)
{
	uint64_t began = sys_now(), bytes = 0;
	size_t at = 0;
	long n;

	while ((n = writeback_commit(map, &at)) > 0 && !map->sync.commit_error) {
		bytes += (uint64_t)n;
		keep_rate(map, began, bytes);
	}
	return n < 0 ? (int)n : map->sync.commit_error;
}

/* The handle may be freed as soon as it is done. */
static void end(struct umsync_handle *h, int err)
{
	h->error = err;
	snprintf(h->message, sizeof(h->message), "%s", err ? fail_message() : "");
	h->done = true;
	commits_ended++;
	futex_wake(&commits_ended, INT32_MAX);
}

static void commit_job(void *arg, uint64_t a, uint64_t b)
{
	struct mapping *map = arg;
	struct account *account = map_account(map);
	struct umsync_handle *h = map->sync.commit;
	int err;

	(void)a;
	(void)b;
	fail_clear();
	err = write_all(map);
	if (err)
		cancel(map);
	else
		err = flush_written(map);
	if (!err && flush_has_lost(map))
		err = -EIO;
	if (err)
		sync_explain(map, err);
	timeline_end(h->began, "", "commit", h->bytes, map->name);
	map->sync.commit = NULL;
	map->member.retry = 0;
	account->commits--;
	writeback_note_end();
	end(h, err);
	map_leave(map);
}

void commit_run(struct mapping *map)
{
	map_use(map);
	if (!worker_post_long(commit_job, map, 0, 0))
		commit_job(map, 0, 0);
}

void commit_at_once(struct mapping *map, struct umsync_handle *h)
{
	h->process = forks;
	end(h, sync_all(map));
}

bool commit_await_end(const struct mapping *map, int ms)
{
	uint32_t seen = commits_ended;

	if (!commit_runs(map))
		return false;
	futex_wait(&commits_ended, seen, ms);
	return commit_runs(map);
}

bool commit_wait(const struct umsync_handle *h, int ms)
{
	uint32_t seen = commits_ended;

	if (h->process != forks)
		return false;
	while (!h->done && ms) {
		futex_wait(&commits_ended, seen, ms);
		seen = commits_ended;
	}
	return true;
}

void commit_forget(void)
{
	forks++;
}
