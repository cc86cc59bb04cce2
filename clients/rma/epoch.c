/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls that begin, end and complete epochs, for windows with parts that this process reaches by itself: each does
 * what MPI does, and says in rma/shm.h what copies may rely on. A barrier to memory stands before what may let others in.
 */
#include "pmpi/pmpi.h"
#include "rma/shm.h"
#include "window/window.h"

static struct pmpi_feature epochs;

static struct shm *shm_of(MPI_Win win)
{
	struct window *w = window_of(win);

	return w ? w->shm : NULL;
}

static void barrier(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

/* ---- Locks ---- */

static void set_access(struct peer *p, enum access access)
{
	atomic_store(&p->pending, false);
	atomic_store_explicit(&p->access, access, memory_order_release);
}

static void set_all(struct shm *shm, enum access access)
{
	for (int i = 0; i < shm->ranks; i++)
		set_access(&shm->peers[i], access);
}

static enum access asked(int assert)
{
	return assert & MPI_MODE_NOCHECK ? ACCESS_OPEN : ACCESS_ASKED;
}

static int lock(int type, int rank, int assert, MPI_Win win)
{
	struct shm *shm = shm_of(win);
	int code = epochs.next.Win_lock(type, rank, assert, win);

	if (shm && code == MPI_SUCCESS && rank >= 0 && rank < shm->ranks) {
		shm->fenced = false;
		set_access(&shm->peers[rank], asked(assert));
	}
	return code;
}

static int lock_all(int assert, MPI_Win win)
{
	struct shm *shm = shm_of(win);
	int code = epochs.next.Win_lock_all(assert, win);

	if (shm && code == MPI_SUCCESS) {
		shm->fenced = false;
		set_all(shm, asked(assert));
	}
	return code;
}

static int unlock(int rank, MPI_Win win)
{
	struct shm *shm = shm_of(win);

	if (shm && rank >= 0 && rank < shm->ranks)
		set_access(&shm->peers[rank], ACCESS_NONE);
	barrier();
	return epochs.next.Win_unlock(rank, win);
}

static int unlock_all(MPI_Win win)
{
	struct shm *shm = shm_of(win);

	if (shm)
		set_all(shm, ACCESS_NONE);
	barrier();
	return epochs.next.Win_unlock_all(win);
}

/* ---- Flushes ---- */

/* What MPI was asked to do is complete, so it has the lock. */
static void complete(struct peer *p, bool pending)
{
	if (pending && atomic_load(&p->access) == ACCESS_ASKED)
		atomic_store(&p->access, ACCESS_OPEN);
}

/* Whether MPI knows of nothing that is not complete, in an epoch that it knows of. */
static bool is_quiet(const struct peer *p)
{
	return atomic_load(&p->access) == ACCESS_OPEN && !atomic_load(&p->pending);
}

static bool are_quiet(const struct shm *shm)
{
	int i = 0;

	while (i < shm->ranks && is_quiet(&shm->peers[i]))
		i++;
	return i == shm->ranks;
}

static int done(const struct window *w)
{
	barrier();
	window_progress(w);
	return MPI_SUCCESS;
}

static int flush(int rank, MPI_Win win)
{
	struct window *w = window_of(win);
	struct peer *p = w && w->shm && rank >= 0 && rank < w->shm->ranks ? &w->shm->peers[rank] : NULL;
	bool pending;
	int code;

	if (p && is_quiet(p))
		return done(w);
	pending = p && atomic_exchange(&p->pending, false);
	code = epochs.next.Win_flush(rank, win);
	if (p && code == MPI_SUCCESS)
		complete(p, pending);
	barrier();
	return code;
}

static int flush_all(MPI_Win win)
{
	struct window *w = window_of(win);
	struct shm *shm = w ? w->shm : NULL;
	int code;

	if (shm && are_quiet(shm))
		return done(w);
	/* A rank's note that comes meanwhile stays. */
	for (int i = 0; shm && i < shm->ranks; i++) {
		if (atomic_exchange(&shm->peers[i].pending, false))
			shm->peers[i].flushing = true;
	}
	code = epochs.next.Win_flush_all(win);
	for (int i = 0; shm && i < shm->ranks && code == MPI_SUCCESS; i++)
		complete(&shm->peers[i], atomic_exchange(&shm->peers[i].flushing, false));
	barrier();
	return code;
}

static int flush_local(int rank, MPI_Win win)
{
	struct window *w = window_of(win);

	if (w && w->shm && rank >= 0 && rank < w->shm->ranks && is_quiet(&w->shm->peers[rank]))
		return done(w);
	return epochs.next.Win_flush_local(rank, win);
}

static int flush_local_all(MPI_Win win)
{
	struct window *w = window_of(win);

	if (w && w->shm && are_quiet(w->shm))
		return done(w);
	return epochs.next.Win_flush_local_all(win);
}

/* ---- Active targets ---- */

/* Without MPI_MODE_NOPRECEDE no rank comes out before all have come in. */
static int fence(int assert, MPI_Win win)
{
	struct shm *shm = shm_of(win);
	int code;

	if (shm)
		shm->fenced = false;
	barrier();
	code = epochs.next.Win_fence(assert, win);
	barrier();
	if (shm && code == MPI_SUCCESS)
		shm->fenced = !(assert & (MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED));
	return code;
}

static int start(MPI_Group group, int assert, MPI_Win win)
{
	struct shm *shm = shm_of(win);
	int code = epochs.next.Win_start(group, assert, win);

	if (shm && code == MPI_SUCCESS)
		shm->fenced = false;
	return code;
}

static struct pmpi_feature epochs = {
	.place = PMPI_RMA,
	.take = {
		.Win_lock = lock,
		.Win_lock_all = lock_all,
		.Win_unlock = unlock,
		.Win_unlock_all = unlock_all,
		.Win_flush = flush,
		.Win_flush_all = flush_all,
		.Win_flush_local = flush_local,
		.Win_flush_local_all = flush_local_all,
		.Win_fence = fence,
		.Win_start = start,
	},
};
PMPI_FEATURE(epochs)
