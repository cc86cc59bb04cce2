/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Syncs of all ranks: ummpi_sync_all, and those of windows at MPI_Win_fence and MPI_Win_free. If
 * possible, the ranks write collectively first. In any case, each rank then syncs its own mapping:
 * this writes what has changed since, and tells libummap what is durable. All ranks get the same
 * error.
 */
#include "mpiio/commit.h"
#include "mpiio/driver.h"
#include "pmpi/pmpi.h"
#include "window/consistent.h"
#include "window/shared.h"
#include "window/versioned.h"
#include "window/window.h"

#include <errno.h>
#include <ummap-mpi.h>

static struct pmpi_feature together;

static void sync_own(char *base, size_t len, const char *name, struct error *e)
{
	struct region *region = region_find(base);

	if (region)
		region_sync(region, base, len, e);
	else if ((len ? umsync_range(base, len, 0) : umsync(base, 0)) < 0)
		error_errno(e, errno, *name ? "cannot sync '%s': %s" : "%s%s", name, umerrormsg());
}

/* Syncs [base, base + len), or the mapping that begins at base if len is 0. base NULL: this rank
 * has no mapping. skip: its mapping is not synced. */
static void sync_mappings(MPI_Comm comm, char *base, size_t len, bool skip, struct error *e)
{
	struct mpiio_handle *h = base && !skip ? mpiio_find(base) : NULL;

	write_collectively(comm, h, base && !h, base, len || !h ? len : h->size, e);
	if (base && !skip)
		sync_own(base, len, h ? h->path : "", e);
	error_agree(comm, e);
}

/* skip: the part of this rank is not synced. */
static void sync_window(struct window *w, bool skip, struct error *e)
{
	struct region *region = w->region && w->region->stored_len ? w->region : NULL;

	if (region && region->consistent) {
		commit_settle(region->consistent);
		consistent_sync(w->comm, w->region, e);
		return;
	}
	if (!w->shared && !w->versioned && !w->alone) {
		sync_mappings(w->comm, region ? region->stored : NULL,
			      region ? region->stored_len : 0, skip, e);
		return;
	}
	if (!skip && w->shared)
		shared_sync(w->shared, e);
	if (!skip && region)
		region_sync(region, region->stored, region->stored_len, e);
	error_agree(w->comm, e);
	if (!skip && w->versioned && e->class == MPI_SUCCESS)
		versioned_commit(w->comm, w->versioned, e);
}

/* ---- The calls ---- */

/* Only a part of a region may be in storage, or nothing. */
static void sync_address(MPI_Comm comm, void *addr, const struct region *region, struct error *e)
{
	if (region)
		sync_mappings(comm, region->stored_len ? region->stored : NULL, region->stored_len,
			      false, e);
	else
		sync_mappings(comm, addr, 0, false, e);
	if (e->class == MPI_SUCCESS)
		versioned_commit(comm, region ? region->versioned : NULL, e);
}

int ummpi_sync_all(MPI_Comm comm, void *addr)
{
	struct region *region = addr ? region_find(addr) : NULL;
	struct error e = { 0 };

	if (consistent_is_whole(comm, region ? region->consistent : NULL, &e)) {
		commit_settle(region->consistent);
		consistent_sync(comm, region, &e);
	} else if (e.class == MPI_SUCCESS) {
		sync_address(comm, addr, region, &e);
	}
	return e.class == MPI_SUCCESS ? MPI_SUCCESS : error_tell_comm(comm, &e);
}

/* Windows with the hint storage_alloc_fencesync are synced at each fence. */
static int fence(int assert, MPI_Win win)
{
	int code = together.next.Win_fence(assert, win);
	struct window *w = window_of(win);
	struct error e = { 0 };

	if (code != MPI_SUCCESS || !w || !w->fencesync)
		return code;
	sync_window(w, false, &e);
	return e.class == MPI_SUCCESS ? MPI_SUCCESS : error_tell_win(win, &e);
}

/* If a rank cannot write its changes, the window remains, because they are in memory only. */
static int free_window(MPI_Win *win)
{
	struct window *w = window_of(*win);
	struct error e = { 0 };

	commit_settle(w && w->region ? w->region->consistent : NULL);
	if (w && w->comm != MPI_COMM_NULL && !w->discarded) {
		/* Other ranks may still access this part until they have made the call. */
		PMPI_Barrier(w->comm);
		sync_window(w, !window_hints(w) || window_hints(w)->discard, &e);
	}
	return e.class == MPI_SUCCESS ? together.next.Win_free(win) : error_tell_win(*win, &e);
}

static struct pmpi_feature together = {
	.place = PMPI_TOGETHER,
	.take = { .Win_fence = fence, .Win_free = free_window },
};
PMPI_FEATURE(together)
