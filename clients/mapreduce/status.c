/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/status.h"

#include "mapreduce/error.h"
#include "mapreduce/wait.h"

#include <string.h>

static bool is_on_one_machine(MPI_Comm comm, int ranks)
{
	MPI_Comm machine;
	int local_ranks;

	MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
	MPI_Comm_size(machine, &local_ranks);
	MPI_Comm_free(&machine);
	return local_ranks == ranks;
}

int status_open(struct status *s, MPI_Comm comm)
{
	int64_t *words;
	MPI_Aint size = STATUS_WORDS * sizeof(*words);
	int unit, code;
	bool is_shared;

	s->comm = comm;
	MPI_Comm_rank(comm, &s->rank);
	MPI_Comm_size(comm, &s->ranks);
	is_shared = is_on_one_machine(comm, s->ranks);
	code = is_shared ? MPI_Win_allocate_shared(size, sizeof(*words), MPI_INFO_NULL, comm,
						   &words, &s->win)
			 : MPI_Win_allocate(size, sizeof(*words), MPI_INFO_NULL, comm,
					    &words, &s->win);
	if (check_mpi(code, "cannot create the window for the status of tasks") < 0)
		return -1;
	/* The words of all ranks are contiguous, in order of ranks. */
	if (is_shared)
		MPI_Win_shared_query(s->win, 0, &size, &unit, &s->shared);
	s->mine = words;
	MPI_Win_lock_all(0, s->win);
	return 0;
}

void status_reset(struct status *s)
{
	MPI_Barrier(s->comm);
	memset(s->mine, 0, STATUS_WORDS * sizeof(*s->mine));
	MPI_Win_sync(s->win);
	MPI_Barrier(s->comm);
}

void status_close(struct status *s)
{
	if (s->win == MPI_WIN_NULL)
		return;
	MPI_Win_unlock_all(s->win);
	MPI_Win_free(&s->win);
}

static int64_t *shared_word(struct status *s, int rank, enum status_word word)
{
	return &s->shared[rank * STATUS_WORDS + (int)word];
}

static int64_t fetch_and_op(struct status *s, int rank, enum status_word word, int64_t n,
			    MPI_Op op)
{
	int64_t before = 0;
	MPI_Request request;

	/* This is MPI_Fetch_and_op with a request, so that the wait can give the processor away. */
	MPI_Rget_accumulate(&n, 1, MPI_INT64_T, &before, 1, MPI_INT64_T, rank, (MPI_Aint)word, 1,
			    MPI_INT64_T, op, s->win, &request);
	wait_for_request(&request);
	return before;
}

int64_t status_get(struct status *s, int rank, enum status_word word)
{
	if (s->shared)
		return __atomic_load_n(shared_word(s, rank, word), __ATOMIC_SEQ_CST);
	return fetch_and_op(s, rank, word, 0, MPI_NO_OP);
}

int64_t status_add(struct status *s, int rank, enum status_word word, int64_t n)
{
	if (s->shared)
		return __atomic_fetch_add(shared_word(s, rank, word), n, __ATOMIC_SEQ_CST);
	return fetch_and_op(s, rank, word, n, MPI_SUM);
}

void status_advance(struct status *s, enum phase from, enum phase to)
{
	int64_t old = from, new = to, before = 0;

	if (s->shared) {
		__atomic_compare_exchange_n(shared_word(s, s->rank, STATUS_PHASE), &old, new, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		return;
	}
	MPI_Compare_and_swap(&new, &old, &before, MPI_INT64_T, s->rank, STATUS_PHASE, s->win);
	MPI_Win_flush(s->rank, s->win);
}

void status_stop(struct status *s)
{
	for (int i = 0; i < s->ranks; i++)
		status_add(s, (s->rank + i) % s->ranks, STATUS_STOP, 1);
}

bool status_is_stopped(struct status *s)
{
	return status_get(s, s->rank, STATUS_STOP) != 0;
}

void status_serve(struct status *s)
{
	int flag;

	s->waits = 0;
	MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, s->comm, &flag, MPI_STATUS_IGNORE);
}

void status_wait(struct status *s)
{
	unsigned waits = s->waits;

	status_serve(s);
	s->waits = waits;
	wait_before_retry(&s->waits);
}
