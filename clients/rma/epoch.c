/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls that begin, end and complete epochs, for windows with parts that this process reaches by itself: each does
 * what MPI does, and says in rma/shm.h what copies may rely on. A barrier to memory stands before what may let others in.
 * Where the window is ours (rma/shm.c), locks and flushes are made here, and MPI has them only for what was left to it.
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

/* A window whose locks are ours; NULL: they are MPI's. */
static struct window *ours(MPI_Win win)
{
	struct window *w = window_of(win);

	return w && w->shm && w->shm->ours ? w : NULL;
}

static void barrier(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

/* Atomic operations are barriers themselves, and what was only got needs none. */
static void order(struct peer *p)
{
	if (!atomic_load_explicit(&p->stored, memory_order_relaxed))
		return;
	atomic_store_explicit(&p->stored, false, memory_order_relaxed);
	barrier();
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

static int is_locked(MPI_Win win)
{
	struct error e = { 0 };

	error_set(&e, MPI_ERR_RMA_SYNC,
		  "cannot lock the window: a rank of it is locked already. Try to unlock that rank "
		  "first");
	return error_tell_win(win, &e);
}

static int lock_ours(struct window *w, bool exclusive, int rank, int assert)
{
	struct shm *shm = w->shm;
	struct peer *p = &shm->peers[rank];

	if (atomic_load(&p->access) != ACCESS_NONE)
		return is_locked(w->win);
	shm->fenced = false;
	if (!(assert & MPI_MODE_NOCHECK)) {
		shm_take(shm, p, exclusive);
		p->exclusive = exclusive;
		atomic_store_explicit(&p->held, true, memory_order_relaxed);
	}
	/* What MPI was asked to do in an epoch of another kind is complete. */
	set_access(p, ACCESS_OPEN);
	return MPI_SUCCESS;
}

/* Those of others come when they are needed; one's own keeps others from what is loaded and stored there. */
static int lock_all_ours(struct window *w, int assert)
{
	struct shm *shm = w->shm;

	for (int i = 0; i < shm->ranks; i++) {
		if (atomic_load(&shm->peers[i].access) != ACCESS_NONE)
			return is_locked(w->win);
	}
	shm->fenced = false;
	shm->all = true;
	set_all(shm, asked(assert));
	shm_may_access(w, shm->locks.me, false);
	return MPI_SUCCESS;
}

/* First what was left to MPI is complete. */
static int unlock_ours(struct window *w, int rank)
{
	struct peer *p = &w->shm->peers[rank];
	int code = MPI_SUCCESS;

	if (atomic_exchange_explicit(&p->passed, false, memory_order_relaxed))
		code = PMPI_Win_unlock(rank, w->win);
	set_access(p, ACCESS_NONE);
	if (atomic_load_explicit(&p->held, memory_order_relaxed)) {
		p->exclusive = false;
		atomic_store_explicit(&p->held, false, memory_order_relaxed);
		/* Taking another one is a barrier. */
		shm_drop(w->shm, p);
	} else {
		order(p);
	}
	window_progress(w);
	return code;
}

static int unlock_all_ours(struct window *w)
{
	int code = MPI_SUCCESS;

	for (int i = 0; i < w->shm->ranks; i++) {
		int one = unlock_ours(w, i);

		code = code == MPI_SUCCESS ? one : code;
	}
	w->shm->all = false;
	return code;
}

static int lock(int type, int rank, int assert, MPI_Win win)
{
	struct window *w = ours(win);
	struct shm *shm = shm_of(win);
	int code;

	if (w && rank >= 0 && rank < shm->ranks && (type == MPI_LOCK_SHARED || type == MPI_LOCK_EXCLUSIVE))
		return lock_ours(w, type == MPI_LOCK_EXCLUSIVE, rank, assert);
	code = epochs.next.Win_lock(type, rank, assert, win);
	if (shm && code == MPI_SUCCESS && rank >= 0 && rank < shm->ranks) {
		shm->fenced = false;
		set_access(&shm->peers[rank], asked(assert));
	}
	return code;
}

static int lock_all(int assert, MPI_Win win)
{
	struct window *w = ours(win);
	struct shm *shm = shm_of(win);
	int code;

	if (w)
		return lock_all_ours(w, assert);
	code = epochs.next.Win_lock_all(assert, win);
	if (shm && code == MPI_SUCCESS) {
		shm->fenced = false;
		set_all(shm, asked(assert));
	}
	return code;
}

static int unlock(int rank, MPI_Win win)
{
	struct window *w = ours(win);
	struct shm *shm = shm_of(win);
	bool known = shm && rank >= 0 && rank < shm->ranks;

	if (w && known && !shm->all && atomic_load_explicit(&shm->peers[rank].access, memory_order_relaxed) != ACCESS_NONE)
		return unlock_ours(w, rank);
	if (known && !w)
		set_access(&shm->peers[rank], ACCESS_NONE);
	barrier();
	return epochs.next.Win_unlock(rank, win);
}

static int unlock_all(MPI_Win win)
{
	struct window *w = ours(win);
	struct shm *shm = shm_of(win);

	if (w && shm->all)
		return unlock_all_ours(w);
	if (shm && !w)
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

/* Whether MPI knows of nothing that is not complete, in an epoch that it knows of, or that is ours. */
static bool is_quiet(const struct shm *shm, const struct peer *p)
{
	int access = atomic_load(&p->access);

	return (access == ACCESS_OPEN || (shm->ours && access == ACCESS_ASKED)) && !atomic_load(&p->pending);
}

static bool are_quiet(const struct shm *shm)
{
	int i = 0;

	while (i < shm->ranks && is_quiet(shm, &shm->peers[i]))
		i++;
	return i == shm->ranks;
}

static int done(const struct window *w, struct peer *p)
{
	order(p);
	window_progress(w);
	return MPI_SUCCESS;
}

static int all_done(const struct window *w)
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

	if (p && is_quiet(w->shm, p))
		return done(w, p);
	pending = p && atomic_exchange(&p->pending, false);
	code = epochs.next.Win_flush(rank, win);
	if (p && code == MPI_SUCCESS && !w->shm->ours)
		complete(p, pending);
	barrier();
	return code;
}

/* Those that are locked; nothing was done to others. */
static int flush_all_ours(struct window *w)
{
	int code = MPI_SUCCESS;

	for (int i = 0; i < w->shm->ranks && code == MPI_SUCCESS; i++) {
		if (atomic_exchange(&w->shm->peers[i].pending, false))
			code = PMPI_Win_flush(i, w->win);
	}
	return code == MPI_SUCCESS ? all_done(w) : code;
}

static bool is_any_locked(const struct shm *shm)
{
	int i = 0;

	while (i < shm->ranks && atomic_load(&shm->peers[i].access) == ACCESS_NONE)
		i++;
	return i < shm->ranks;
}

static int flush_all(MPI_Win win)
{
	struct window *w = window_of(win);
	struct shm *shm = w ? w->shm : NULL;
	int code;

	if (shm && are_quiet(shm))
		return all_done(w);
	if (shm && shm->ours && is_any_locked(shm))
		return flush_all_ours(w);
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

	if (w && w->shm && rank >= 0 && rank < w->shm->ranks && is_quiet(w->shm, &w->shm->peers[rank]))
		return done(w, &w->shm->peers[rank]);
	return epochs.next.Win_flush_local(rank, win);
}

static int flush_local_all(MPI_Win win)
{
	struct window *w = window_of(win);

	if (w && w->shm && are_quiet(w->shm))
		return all_done(w);
	if (w && w->shm && w->shm->ours && is_any_locked(w->shm))
		return flush_all_ours(w);
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
