/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls that begin, end and complete epochs, for windows with parts that this process reaches by itself: each does
 * what MPI does, and says in local.h what copies may rely on. A barrier to memory stands before what may let others in.
 */
#include "mpiio/together.h"
#include "rma/shm.h"
#include "window/window.h"

static struct local *local_of(MPI_Win win)
{
	struct window *w = window_of(win);

	return w ? w->local : NULL;
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

static void set_all(struct local *l, enum access access)
{
	for (int i = 0; i < l->ranks; i++)
		set_access(&l->peers[i], access);
}

static enum access asked(int assert)
{
	return assert & MPI_MODE_NOCHECK ? ACCESS_OPEN : ACCESS_ASKED;
}

int MPI_Win_lock(int type, int rank, int assert, MPI_Win win)
{
	struct local *l = local_of(win);
	int code = PMPI_Win_lock(type, rank, assert, win);

	if (l && code == MPI_SUCCESS && rank >= 0 && rank < l->ranks) {
		l->fenced = false;
		set_access(&l->peers[rank], asked(assert));
	}
	return code;
}

int MPI_Win_lock_all(int assert, MPI_Win win)
{
	struct local *l = local_of(win);
	int code = PMPI_Win_lock_all(assert, win);

	if (l && code == MPI_SUCCESS) {
		l->fenced = false;
		set_all(l, asked(assert));
	}
	return code;
}

int MPI_Win_unlock(int rank, MPI_Win win)
{
	struct local *l = local_of(win);

	if (l && rank >= 0 && rank < l->ranks)
		set_access(&l->peers[rank], ACCESS_NONE);
	barrier();
	return PMPI_Win_unlock(rank, win);
}

int MPI_Win_unlock_all(MPI_Win win)
{
	struct local *l = local_of(win);

	if (l)
		set_all(l, ACCESS_NONE);
	barrier();
	return PMPI_Win_unlock_all(win);
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

static bool are_quiet(const struct local *l)
{
	int i = 0;

	while (i < l->ranks && is_quiet(&l->peers[i]))
		i++;
	return i == l->ranks;
}

static int done(const struct window *w)
{
	barrier();
	local_progress(w);
	return MPI_SUCCESS;
}

int MPI_Win_flush(int rank, MPI_Win win)
{
	struct window *w = window_of(win);
	struct peer *p = w && w->local && rank >= 0 && rank < w->local->ranks ? &w->local->peers[rank] : NULL;
	bool pending;
	int code;

	if (p && is_quiet(p))
		return done(w);
	pending = p && atomic_exchange(&p->pending, false);
	code = PMPI_Win_flush(rank, win);
	if (p && code == MPI_SUCCESS)
		complete(p, pending);
	barrier();
	return code;
}

int MPI_Win_flush_all(MPI_Win win)
{
	struct window *w = window_of(win);
	struct local *l = w ? w->local : NULL;
	int code;

	if (l && are_quiet(l))
		return done(w);
	/* A rank's note that comes meanwhile stays. */
	for (int i = 0; l && i < l->ranks; i++) {
		if (atomic_exchange(&l->peers[i].pending, false))
			l->peers[i].flushing = true;
	}
	code = PMPI_Win_flush_all(win);
	for (int i = 0; l && i < l->ranks && code == MPI_SUCCESS; i++)
		complete(&l->peers[i], atomic_exchange(&l->peers[i].flushing, false));
	barrier();
	return code;
}

int MPI_Win_flush_local(int rank, MPI_Win win)
{
	struct window *w = window_of(win);

	if (w && w->local && rank >= 0 && rank < w->local->ranks && is_quiet(&w->local->peers[rank]))
		return done(w);
	return PMPI_Win_flush_local(rank, win);
}

int MPI_Win_flush_local_all(MPI_Win win)
{
	struct window *w = window_of(win);

	if (w && w->local && are_quiet(w->local))
		return done(w);
	return PMPI_Win_flush_local_all(win);
}

/* ---- Active targets ---- */

/* Without MPI_MODE_NOPRECEDE no rank comes out before all have come in. */
int MPI_Win_fence(int assert, MPI_Win win)
{
	struct local *l = local_of(win);
	int code;

	if (l)
		l->fenced = false;
	barrier();
	code = PMPI_Win_fence(assert, win);
	barrier();
	if (l && code == MPI_SUCCESS)
		l->fenced = !(assert & (MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED));
	return code == MPI_SUCCESS ? collective_fence(win) : code;
}

int MPI_Win_start(MPI_Group group, int assert, MPI_Win win)
{
	struct local *l = local_of(win);
	int code = PMPI_Win_start(group, assert, win);

	if (l && code == MPI_SUCCESS)
		l->fenced = false;
	return code;
}
