/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls that begin, end and complete epochs. Each does what MPI does, and keeps the states on
 * which accesses rely (rma/shm.c). A memory barrier precedes everything that may let other ranks
 * in. In windows that are ours, locks and flushes are made here, and MPI gets them only for
 * operations that were left to it. Lock: `pass_lock`, while MPI gets a lock of its own.
 */
#include "rma/epoch.h"

#include <pthread.h>
#include <sched.h>

static struct pmpi_feature epochs;
static pthread_mutex_t pass_lock = PTHREAD_MUTEX_INITIALIZER;

/* Number of locks that this process holds, in all windows. */
static _Atomic int held_locks;

static struct shm *shm_of(MPI_Win win)
{
	struct window *w = window_of(win);

	return w ? w->shm : NULL;
}

/* The window if its locks are ours; NULL: they are MPI's. */
static struct window *ours_of(MPI_Win win)
{
	struct window *w = window_of(win);

	return w && w->shm && w->shm->ours ? w : NULL;
}

/* NULL: the rank is not one of the window. */
static struct target *target_of(struct shm *shm, int rank)
{
	return shm && rank >= 0 && rank < shm->ranks ? &shm->targets[rank] : NULL;
}

static void make_barrier(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

/* Orders puts. Atomic operations are barriers themselves, and gets need none. */
static void order_puts(struct target *t)
{
	if (!atomic_load_explicit(&t->stored, memory_order_relaxed))
		return;
	atomic_store_explicit(&t->stored, false, memory_order_relaxed);
	make_barrier();
}

/* ---- Locks in control memory ---- */

static void count_lock(const struct shm *shm, int change)
{
	if (shm->threads)
		atomic_fetch_add(&held_locks, change);
	else
		atomic_store_explicit(&held_locks,
				      atomic_load_explicit(&held_locks, memory_order_relaxed) +
				      change, memory_order_relaxed);
}

/* A process that holds a lock already must not wait behind others for a shared one. */
static void take_lock(struct shm *shm, struct target *t, bool exclusive)
{
	bool holds_another = atomic_load_explicit(&held_locks, memory_order_relaxed) > 0;

	count_lock(shm, 1);
	nodelock_take(t->lock, &shm->locks,
		      exclusive ? NODELOCK_EXCLUSIVE :
		      holds_another ? NODELOCK_AHEAD : NODELOCK_SHARED);
}

static void drop_lock(struct shm *shm, struct target *t)
{
	nodelock_drop(t->lock, &shm->locks);
	count_lock(shm, -1);
}

/* Of a lock of all ranks, each rank's lock is taken when it is needed, by one thread. */
static void bring_lock(struct shm *shm, struct target *t)
{
	bool held = false;

	if (!atomic_compare_exchange_strong(&t->held, &held, true)) {
		while (atomic_load(&t->epoch) == EPOCH_ASKED)
			sched_yield();
		return;
	}
	take_lock(shm, t, false);
	atomic_store(&t->epoch, EPOCH_OPEN);
}

bool epoch_bring(struct window *w, int rank)
{
	struct target *t = &w->shm->targets[rank];

	if (w->shm->ours) {
		bring_lock(w->shm, t);
		return true;
	}
	/* MPI has the lock when an operation that it was given is complete. */
	if (!atomic_exchange(&t->pending, false) || PMPI_Win_flush(rank, w->win) != MPI_SUCCESS)
		return false;
	atomic_store(&t->epoch, EPOCH_OPEN);
	return true;
}

int epoch_refuse(const struct pmpi_operation *o)
{
	struct error e = { 0 };

	error_set(&e, MPI_ERR_RMA_CONFLICT,
		  "cannot change the part of the window at rank %d: it is read-only "
		  "(storage_alloc_node_cache). Try a window without that hint", o->rank);
	return error_tell_win(o->win, &e);
}

/* ---- Operations that MPI makes ---- */

/* MPI does not know a lock of ours, so it gets a lock of its own that conflicts with nothing. */
static void pass_lock_to_mpi(struct window *w, int rank, struct target *t)
{
	int epoch = atomic_load(&t->epoch);

	if (!w->shm->ours || epoch == EPOCH_NONE)
		return;
	if (epoch == EPOCH_ASKED)
		bring_lock(w->shm, t);
	pthread_mutex_lock(&pass_lock);
	if (!atomic_load(&t->passed))
		atomic_store(&t->passed, PMPI_Win_lock(MPI_LOCK_SHARED, rank, MPI_MODE_NOCHECK,
						       w->win) == MPI_SUCCESS);
	pthread_mutex_unlock(&pass_lock);
}

int epoch_leave(const struct pmpi_operation *o, int (*next)(const struct pmpi_operation *))
{
	struct window *w = window_of(o->win);
	struct target *t = w ? target_of(w->shm, o->rank) : NULL;
	int code;

	if (t)
		pass_lock_to_mpi(w, o->rank, t);
	code = next(o);
	if (t)
		atomic_store_explicit(&t->pending, true, memory_order_release);
	return code;
}

/* ---- Calls that lock ---- */

static void set_epoch(struct target *t, enum epoch epoch)
{
	atomic_store(&t->pending, false);
	atomic_store_explicit(&t->epoch, epoch, memory_order_release);
}

static void set_all(struct shm *shm, enum epoch epoch)
{
	for (int i = 0; i < shm->ranks; i++)
		set_epoch(&shm->targets[i], epoch);
}

static enum epoch new_epoch(int assert)
{
	return assert & MPI_MODE_NOCHECK ? EPOCH_OPEN : EPOCH_ASKED;
}

static bool is_locked(const struct target *t)
{
	return atomic_load_explicit(&t->epoch, memory_order_relaxed) != EPOCH_NONE;
}

static bool is_any_locked(const struct shm *shm)
{
	int i = 0;

	while (i < shm->ranks && !is_locked(&shm->targets[i]))
		i++;
	return i < shm->ranks;
}

static int refuse_lock(MPI_Win win)
{
	struct error e = { 0 };

	error_set(&e, MPI_ERR_RMA_SYNC,
		  "cannot lock the window: a rank of it is locked already. Try to unlock that rank "
		  "first");
	return error_tell_win(win, &e);
}

static int lock_ours(struct shm *shm, struct target *t, bool exclusive, int assert, MPI_Win win)
{
	if (is_locked(t))
		return refuse_lock(win);
	shm->fenced = false;
	if (!(assert & MPI_MODE_NOCHECK)) {
		take_lock(shm, t, exclusive);
		t->exclusive = exclusive;
		atomic_store_explicit(&t->held, true, memory_order_relaxed);
	}
	/* All operations that MPI got in an epoch of another kind are complete. */
	set_epoch(t, EPOCH_OPEN);
	return MPI_SUCCESS;
}

/* Locks of other ranks are taken later. This rank's lock guards its own loads and stores. */
static int lock_all_ours(struct shm *shm, int assert, MPI_Win win)
{
	if (is_any_locked(shm))
		return refuse_lock(win);
	shm->fenced = false;
	shm->all = true;
	set_all(shm, new_epoch(assert));
	if (!(assert & MPI_MODE_NOCHECK))
		bring_lock(shm, &shm->targets[shm->locks.me]);
	return MPI_SUCCESS;
}

/* Completes the operations that were left to MPI before it gives the lock back. */
static int unlock_ours(struct window *w, int rank)
{
	struct target *t = &w->shm->targets[rank];
	int code = MPI_SUCCESS;

	if (atomic_exchange_explicit(&t->passed, false, memory_order_relaxed))
		code = PMPI_Win_unlock(rank, w->win);
	set_epoch(t, EPOCH_NONE);
	if (atomic_load_explicit(&t->held, memory_order_relaxed)) {
		t->exclusive = false;
		atomic_store_explicit(&t->held, false, memory_order_relaxed);
		/* The next lock that this process takes is a barrier. */
		drop_lock(w->shm, t);
	} else {
		order_puts(t);
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
	struct shm *shm = shm_of(win);
	struct target *t = target_of(shm, rank);
	int code;

	if (t && shm->ours && (type == MPI_LOCK_SHARED || type == MPI_LOCK_EXCLUSIVE))
		return lock_ours(shm, t, type == MPI_LOCK_EXCLUSIVE, assert, win);
	code = epochs.next.Win_lock(type, rank, assert, win);
	if (t && code == MPI_SUCCESS) {
		shm->fenced = false;
		set_epoch(t, new_epoch(assert));
	}
	return code;
}

static int lock_all(int assert, MPI_Win win)
{
	struct shm *shm = shm_of(win);
	int code;

	if (shm && shm->ours)
		return lock_all_ours(shm, assert, win);
	code = epochs.next.Win_lock_all(assert, win);
	if (shm && code == MPI_SUCCESS) {
		shm->fenced = false;
		set_all(shm, new_epoch(assert));
	}
	return code;
}

static int unlock(int rank, MPI_Win win)
{
	struct window *w = ours_of(win);
	struct shm *shm = shm_of(win);
	struct target *t = target_of(shm, rank);

	if (w && t && !shm->all && is_locked(t))
		return unlock_ours(w, rank);
	if (t && !w)
		set_epoch(t, EPOCH_NONE);
	make_barrier();
	return epochs.next.Win_unlock(rank, win);
}

static int unlock_all(MPI_Win win)
{
	struct window *w = ours_of(win);
	struct shm *shm = shm_of(win);

	if (w && shm->all)
		return unlock_all_ours(w);
	if (shm && !w)
		set_all(shm, EPOCH_NONE);
	make_barrier();
	return epochs.next.Win_unlock_all(win);
}

/* ---- Flushes ---- */

/* Whether MPI has nothing to complete, in an epoch that it knows, or that is ours. */
static bool is_quiet(const struct shm *shm, const struct target *t)
{
	int epoch = atomic_load(&t->epoch);

	return (epoch == EPOCH_OPEN || (shm->ours && epoch == EPOCH_ASKED)) &&
	       !atomic_load(&t->pending);
}

static bool are_all_quiet(const struct shm *shm)
{
	int i = 0;

	while (i < shm->ranks && is_quiet(shm, &shm->targets[i]))
		i++;
	return i == shm->ranks;
}

static int finish_flush(const struct window *w, struct target *t)
{
	if (t)
		order_puts(t);
	else
		make_barrier();
	window_progress(w);
	return MPI_SUCCESS;
}

/* MPI has completed its operations, so it has the lock. */
static void open_epoch(struct target *t, bool pending)
{
	if (pending && atomic_load(&t->epoch) == EPOCH_ASKED)
		atomic_store(&t->epoch, EPOCH_OPEN);
}

static int flush(int rank, MPI_Win win)
{
	struct window *w = window_of(win);
	struct target *t = w ? target_of(w->shm, rank) : NULL;
	bool pending;
	int code;

	if (t && is_quiet(w->shm, t))
		return finish_flush(w, t);
	pending = t && atomic_exchange(&t->pending, false);
	code = epochs.next.Win_flush(rank, win);
	if (t && code == MPI_SUCCESS && !w->shm->ours)
		open_epoch(t, pending);
	make_barrier();
	return code;
}

/* Flushes the targets that are locked. MPI has no operations on others. */
static int flush_all_ours(struct window *w)
{
	int code = MPI_SUCCESS;

	for (int i = 0; i < w->shm->ranks && code == MPI_SUCCESS; i++) {
		if (atomic_exchange(&w->shm->targets[i].pending, false))
			code = PMPI_Win_flush(i, w->win);
	}
	return code == MPI_SUCCESS ? finish_flush(w, NULL) : code;
}

static int flush_all(MPI_Win win)
{
	struct window *w = window_of(win);
	struct shm *shm = w ? w->shm : NULL;
	int code;

	if (shm && are_all_quiet(shm))
		return finish_flush(w, NULL);
	if (shm && shm->ours && is_any_locked(shm))
		return flush_all_ours(w);
	/* Operations that other threads begin meanwhile stay pending. */
	for (int i = 0; shm && i < shm->ranks; i++) {
		if (atomic_exchange(&shm->targets[i].pending, false))
			shm->targets[i].flushing = true;
	}
	code = epochs.next.Win_flush_all(win);
	for (int i = 0; shm && i < shm->ranks && code == MPI_SUCCESS; i++)
		open_epoch(&shm->targets[i], atomic_exchange(&shm->targets[i].flushing, false));
	make_barrier();
	return code;
}

static int flush_local(int rank, MPI_Win win)
{
	struct window *w = window_of(win);
	struct target *t = w ? target_of(w->shm, rank) : NULL;

	return t && is_quiet(w->shm, t) ? finish_flush(w, t) :
					  epochs.next.Win_flush_local(rank, win);
}

static int flush_local_all(MPI_Win win)
{
	struct window *w = window_of(win);

	if (w && w->shm && are_all_quiet(w->shm))
		return finish_flush(w, NULL);
	if (w && w->shm && w->shm->ours && is_any_locked(w->shm))
		return flush_all_ours(w);
	return epochs.next.Win_flush_local_all(win);
}

/* ---- Active targets ---- */

/* Without MPI_MODE_NOPRECEDE, no rank leaves the fence before all ranks have entered it. */
static int fence(int assert, MPI_Win win)
{
	struct shm *shm = shm_of(win);
	int code;

	if (shm)
		shm->fenced = false;
	make_barrier();
	code = epochs.next.Win_fence(assert, win);
	make_barrier();
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
