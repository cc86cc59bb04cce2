/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Commits of windows at all ranks in the background. A rank begins its commits when all ranks have
 * made the call, and returns when all of them have begun: no store that follows the call at one
 * rank can be in the contents of another rank. When its own commits have ended, a rank joins a sum
 * of errors without blocking; the ranks agree on the message only if there is one. The windows of a
 * commit may be freed before its handle is.
 */
#include "mpiio/commit.h"

#include "pmpi/error.h"
#include "window/consistent.h"
#include "window/window.h"

#include <errno.h>
#include <stdlib.h>
#include <ummap-mpi.h>

struct ummpi_commit {
	MPI_Comm comm;
	MPI_Request request;    /* sum of the ranks' errors; MPI_REQUEST_NULL: not begun */
	int failed, any_failed; /* whether this rank, or any rank, has an error */
	bool settled;           /* whether the commit has ended at all ranks */
	struct error error;
	int n;
	struct part {
		struct region *region;        /* memory of the window; NULL: nothing in storage;
						 valid until ummpi_commit_begin returns */
		struct consistent *consistent; /* with storage_alloc_consistent, until the
						  checkpoint has ended; NULL: without */
		struct umsync_handle *handle; /* commit in flight; NULL: none */
	} part[];
};

static struct region *stored_part(MPI_Win win, struct error *e)
{
	const struct window *w = window_of(win);

	if (w && (w->shared || w->versioned || (w->region && w->region->kernel)))
		error_set(e, MPI_ERR_WIN,
			  "cannot commit the window in the background: it is a shared window, an "
			  "object window, or mapped by the kernel. Try MPI_Win_sync or "
			  "ummpi_sync_all(3)");
	return w && w->region && w->region->stored_len ? w->region : NULL;
}

static void begin_part(struct part *p, struct error *e)
{
	if (p->consistent)
		consistent_stamp(p->region, e);
	else
		region_wait_sync(p->region, e);
	if (e->class == MPI_SUCCESS && umsync_begin(p->region->stored, 0, &p->handle) < 0)
		error_errno(e, errno, "cannot commit '%s': %s", p->region->hints.filename,
			    umerrormsg());
}

/* Ends the commit of a part, if it has ended or if `wait`. Returns whether it has. */
static bool end_part(struct part *p, bool wait, struct error *e)
{
	int done = 1, failed = 0;

	if (p->handle)
		failed = wait ? umsync_wait(&p->handle) : umsync_test(&p->handle, &done);
	if (failed)
		error_errno(e, errno, "cannot commit a window: %s", umerrormsg());
	return done;
}

/* Frees the handle, after all ranks have agreed on the error. Returns what the call returns. */
static int free_commit(struct ummpi_commit *c)
{
	int code = c->error.class == MPI_SUCCESS ? MPI_SUCCESS :
						   error_tell_comm(c->comm, &c->error);

	PMPI_Comm_free(&c->comm);
	free(c);
	return code;
}

/* Returns whether a rank may have begun. */
static bool begin_all(struct ummpi_commit *c, const MPI_Win *windows)
{
	struct error *e = &c->error;

	for (int i = 0; i < c->n; i++) {
		struct region *r = stored_part(windows[i], e);

		c->part[i].region = r;
		c->part[i].consistent = r ? r->consistent : NULL;
		consistent_is_whole(c->comm, c->part[i].consistent, e);
	}
	/* All ranks are here, so their stores before the call precede the moment. */
	error_agree(c->comm, e);
	if (e->class != MPI_SUCCESS)
		return false;
	for (int i = 0; i < c->n; i++)
		commit_settle(c->part[i].consistent);
	for (int i = 0; i < c->n && e->class == MPI_SUCCESS; i++) {
		if (c->part[i].region)
			begin_part(&c->part[i], e);
	}
	/* All ranks have begun. After an error, some of them may have committed the checkpoint. */
	error_agree(c->comm, e);
	return true;
}

static void end_checkpoints(struct ummpi_commit *c)
{
	for (int i = 0; i < c->n; i++) {
		struct consistent *part = c->part[i].consistent;

		if (!part)
			continue;
		part->commit = NULL;
		consistent_end(part, &c->error);
		c->part[i].consistent = NULL;
	}
}

int ummpi_commit_begin(const MPI_Win *windows, int n, MPI_Comm comm, struct ummpi_commit **commit)
{
	struct ummpi_commit *c =
		n < 0 ? NULL : calloc(1, sizeof(*c) + (size_t)n * sizeof(*c->part));
	struct error e = { 0 };
	bool begun;
	int code;

	*commit = NULL;
	if (n < 0)
		error_set(&e, MPI_ERR_ARG, "cannot commit %d windows. Try a number from 0", n);
	else if (!c)
		error_errno(&e, ENOMEM, "cannot commit %d windows: no memory", n);
	error_agree(comm, &e);
	if (e.class != MPI_SUCCESS) {
		free(c);
		return error_tell_comm(comm, &e);
	}
	code = PMPI_Comm_dup(comm, &c->comm);
	if (code != MPI_SUCCESS) {
		free(c);
		return code;
	}
	c->request = MPI_REQUEST_NULL;
	c->n = n;
	begun = begin_all(c, windows);
	if (c->error.class == MPI_SUCCESS) {
		for (int i = 0; i < n; i++)
			if (c->part[i].consistent)
				c->part[i].consistent->commit = c;
		*commit = c;
		return MPI_SUCCESS;
	}
	for (int i = 0; i < n; i++)
		end_part(&c->part[i], true, &c->error);
	if (begun)
		end_checkpoints(c);
	return free_commit(c);
}

/* Returns whether the commit has ended at all ranks. */
static int has_ended(struct ummpi_commit *c, bool wait)
{
	int done = 1;

	for (int i = 0; i < c->n; i++)
		done &= end_part(&c->part[i], wait, &c->error);
	if (!done)
		return 0;
	if (c->request == MPI_REQUEST_NULL) {
		c->failed = c->error.class != MPI_SUCCESS;
		PMPI_Iallreduce(&c->failed, &c->any_failed, 1, MPI_INT, MPI_MAX, c->comm,
				&c->request);
	}
	if (wait)
		PMPI_Wait(&c->request, MPI_STATUS_IGNORE);
	else
		PMPI_Test(&c->request, &done, MPI_STATUS_IGNORE);
	return done;
}

/* Ends a commit, if it has ended at all ranks or if `wait`. Returns whether it has. */
static bool settle(struct ummpi_commit *c, bool wait)
{
	if (c->settled)
		return true;
	c->settled = has_ended(c, wait);
	if (!c->settled)
		return false;
	if (c->any_failed)
		error_agree(c->comm, &c->error);
	end_checkpoints(c);
	return true;
}

void commit_settle(const struct consistent *c)
{
	if (c && c->commit)
		settle(c->commit, true);
}

static int end_commit(struct ummpi_commit **commit, bool wait, int *done)
{
	struct ummpi_commit *c = *commit;

	*done = !c || settle(c, wait);
	if (!c || !*done)
		return MPI_SUCCESS;
	*commit = NULL;
	return free_commit(c);
}

int ummpi_commit_wait(struct ummpi_commit **commit)
{
	int done;

	return end_commit(commit, true, &done);
}

int ummpi_commit_test(struct ummpi_commit **commit, int *done)
{
	return end_commit(commit, false, done);
}
