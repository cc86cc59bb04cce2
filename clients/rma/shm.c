/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of one machine reach each other's parts by loads and stores, without MPI, in so far as the memory can be mapped
 * twice: what the kernel has mapped from a file (the engine `kernel`, and shared windows), and the part of a window
 * that is in memory, which is a memory object for that. Its owner offers a descriptor; the others open it by way of
 * /proc, look whether it is what was offered, and map it. What the library pages with the engine segv is reached
 * segment by segment (umexport(3)): what is in memory can be read, and what is changed already can be changed again.
 * The own part is reached in any case, where it stands.
 *
 * A window is ours (`ours`) where every rank reaches every byte of every part, which the ranks agree on when they make it.
 * Then they are all on one machine, among processes that see each other, and stay so, for the ranks of a window do not
 * change. So nobody takes part in its locks who does not see those in the object that they share (rma/control.c): these
 * replace MPI's, and atomic operations are made by the calling process as well. In all other windows, some rank may be on
 * another machine or reach a part only by MPI, and MPI has all locks and atomic operations, for all ranks. Never both: an
 * operation of MPI's at the target is not atomic to one of ours. What is not an error is left to MPI in a window of
 * ours in two cases only. In epochs of groups, and of fences that some rank may not have begun, all ranks leave all to MPI, for
 * MPI_MODE_NOPRECEDE and _NOSUCCEED are the same at all; and a part that is in such an epoch may not be locked. The other
 * one are puts and gets of datatypes that are not understood, within a lock of ours: MPI makes these under a lock of
 * its own that conflicts with nothing.
 *
 * Elsewhere MPI keeps the locks, and all that is not a plain copy, and sees the same memory. So a copy here has to be one
 * that MPI could have made at that moment:
 *  - Only within an epoch. With a lock, MPI may give it before it has it: the first operation is left to MPI, and once
 *    that is complete at the target, which is what a flush says, the lock is there, and copies may follow. Where
 *    nothing conflicts (MPI_MODE_NOCHECK), they may begin at once. With fences, if all ranks are known to be in the
 *    epoch: MPI_MODE_NOPRECEDE lets a rank go ahead of the others. Epochs of groups are MPI's.
 *  - A copy is complete when the call returns. MPI orders it with other operations only by calls that complete those,
 *    so flushes go to MPI where it has some that may not be, and all calls of epochs are barriers to memory.
 *  - Whatever is not as it should be (bounds, types, ranks, epochs) is left to MPI, errors included.
 * A rank that waits for another by such calls alone still has to let MPI work, for what others ask of its own part.
 *
 * Each rank decides for itself whether it offers, and whether it makes use of offers. One lock, `passing`, while MPI is
 * given a lock of its own; else what is here changes only with the window, states of epochs excepted, which are atomic.
 */
#include "rma/shm.h"

#include "common/memory_calls.h"
#include "pmpi/pmpi.h"
#include "rma/pager.h"
#include "window/shared.h"
#include "window/window.h"

#include <ummap.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct pmpi_feature parts;

/* What a rank tells the others. */
struct offer {
	struct extent object;    /* its machine, and the bytes of the object; `to` 0: it offers none */
	uint64_t from;           /* where in its part they begin */
	uint64_t size;
	int64_t unit;
	uint64_t processes;      /* among these is pid */
	int pid, fd;
	bool pages;              /* there is something that the library pages, too: */
	struct umexport paged;
	uint64_t paged_from;     /* where in its part that begins */
	struct remote_offer remote; /* ... in another way */
	struct control_offer control; /* of the first rank's */
	struct pager_offer pager;
};

/* ---- Mappings ---- */

static size_t page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* Opens what is offered; -1: it cannot be, or is something else by now. */
static int open_offer(const struct offer *o)
{
	struct extent found = { 0 };
	char path[64];
	int fd;

	if (o->processes != extent_processes())
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", o->pid, o->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -1;
	extent_file(&found, fd, o->object.from, o->object.to - o->object.from);
	if (memcmp(&found, &o->object, sizeof(found)) == 0)
		return fd;
	close(fd);
	return -1;
}

static void map_offer(struct peer *p, const struct offer *o)
{
	size_t head = o->object.from % page(), len = o->object.to - o->object.from;
	int fd = o->object.to ? open_offer(o) : -1;
	void *map;

	if (fd < 0)
		return;
	map = mmap(NULL, head + len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(o->object.from - head));
	close(fd);
	if (map == MAP_FAILED)
		return;
	p->map = map;
	p->map_len = head + len;
	p->at = p->map + head;
	p->from = o->from;
	p->to = o->from + len;
}

static void make_offer(struct offer *o, const struct region *region)
{
	o->processes = extent_processes();
	o->pages = region->shared && umexport(region->stored, &o->paged) == 0;
	o->paged_from = region->stored_from;
	if (region->stored && region->hints.engine == ENGINE_UFFD)
		remote_make(&o->remote, region->stored);
	if (region->object.fd < 0)
		return;
	o->pid = (int)getpid();
	o->fd = region->object.fd;
	o->from = region->object.from;
	extent_file(&o->object, o->fd, region->object.at, region->object.len);
}

/* ---- Windows ---- */

static void idle(void *w)
{
	int found;

	PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, ((struct window *)w)->comm, &found, MPI_STATUS_IGNORE);
}

static struct shm *new_shm(struct window *w)
{
	struct shm *shm = calloc(1, sizeof(*shm));
	int threads;

	if (!shm)
		return NULL;
	PMPI_Query_thread(&threads);
	shm->threads = threads == MPI_THREAD_MULTIPLE;
	PMPI_Comm_size(w->comm, &shm->ranks);
	PMPI_Comm_rank(w->comm, &shm->locks.me);
	shm->locks.ranks = shm->ranks;
	shm->locks.idle = idle;
	shm->locks.arg = w;
	shm->peers = calloc((size_t)shm->ranks, sizeof(*shm->peers));
	if (shm->peers)
		return shm;
	free(shm);
	return NULL;
}

static void reach_self(struct peer *p, char *base, size_t size)
{
	p->at = base;
	p->from = 0;
	p->to = size;
}

static void take_offers(struct shm *shm, const struct region *region, int rank, const struct offer *offers)
{
	for (int i = 0; i < shm->ranks; i++) {
		shm->peers[i].unit = offers[i].unit;
		shm->peers[i].size = offers[i].size;
		if (i == rank) {
			/* Behind the window, its file may have a trailer. */
			reach_self(&shm->peers[i], region->base, offers[i].size);
			continue;
		}
		map_offer(&shm->peers[i], &offers[i]);
		/* Whom it does not reach, for whatever reason, MPI does. */
		if (offers[i].pages && umimport_open(&offers[i].paged, &shm->peers[i].paged) < 0)
			shm->peers[i].paged = NULL;
		if (offers[i].remote.at && offers[i].processes == extent_processes() && remote_find(&offers[i].remote)) {
			shm->peers[i].remote = offers[i].remote.at;
			shm->peers[i].pid = offers[i].remote.pid;
		}
		shm->peers[i].paged_from = offers[i].paged_from;
		shm->peers[i].key = offers[i].pager.key;
		if (shm->peers[i].paged && offers[i].pager.fd >= 0)
			shm->peers[i].door = pager_enter(&offers[i].pager);
	}
}

static void close_parts(struct shm *shm)
{
	for (int i = 0; i < shm->ranks; i++) {
		if (shm->peers[i].map)
			raw_munmap(shm->peers[i].map, shm->peers[i].map_len);
		if (shm->peers[i].paged)
			umimport_close(shm->peers[i].paged);
		if (shm->peers[i].door)
			pager_leave(shm->peers[i].door);
	}
	control_close(shm);
	free(shm->peers);
	free(shm);
}

/* Every byte of a part is mapped, or can be asked for. */
static bool is_reached(const struct peer *p)
{
	if (p->from == 0 && p->to == p->size)
		return true;
	if (!(p->paged && p->door) && !p->remote)
		return false;
	return p->paged_from == 0 ? p->to == 0 || p->to == p->size : p->from == 0 && p->to == p->paged_from;
}

/* Whether this rank reaches all that all have, among processes of one machine. */
static bool are_reached(struct shm *shm, const struct offer *offers)
{
	int i = 0;

	while (i < shm->ranks && is_reached(&shm->peers[i]) && offers[i].processes == extent_processes())
		i++;
	return i == shm->ranks && (shm->control || control_find(shm, &offers[0].control));
}

/* What this rank has, for all. */
static void prepare_offer(struct window *w, struct shm *shm, struct offer *mine)
{
	if (w->region)
		make_offer(mine, w->region);
	else
		mine->processes = extent_processes();
	if (mine->pages)
		shm->pager = pager_open(w->region->stored, w->region->stored_len, &mine->pager);
	if (shm->locks.me == 0)
		control_make(shm, &mine->control);
}

static void take_shared(struct shm *shm, const struct shared *s)
{
	for (int i = 0; i < s->ranks; i++) {
		struct peer *p = &shm->peers[i];

		reach_self(p, s->first + s->places[i].at, s->places[i].size);
		p->unit = (int64_t)s->places[i].unit;
		p->size = s->places[i].size;
	}
}

/* Whether the window is ours, which is for all ranks to say. */
static void take_all(struct window *w, struct shm *shm, const struct offer *offers)
{
	if (w->region)
		take_offers(shm, w->region, shm->locks.me, offers);
	else
		take_shared(shm, w->shared);
	shm->ours = are_reached(shm, offers);
	if (shm->pager && shm->control)
		pager_answer(shm->pager, shm->peers[shm->locks.me].answers, shm->ranks);
}

static void stop_pager(struct shm *shm)
{
	if (shm->pager)
		pager_close(shm->pager);
	shm->pager = NULL;
}

int shm_open_window(struct window *w, MPI_Aint unit)
{
	struct shm *shm = new_shm(w);
	struct offer *offers = shm ? calloc((size_t)shm->ranks, sizeof(*offers)) : NULL;
	struct offer mine = { .unit = unit, .control = { .fd = -1 }, .pager = { .fd = -1 } };
	int ready = offers != NULL, ours = false;
	bool local = window_hints(w)->local;

	PMPI_Allreduce(MPI_IN_PLACE, &ready, 1, MPI_INT, MPI_LAND, w->comm);
	if (ready && w->region)
		mine.size = w->region->size;
	if (ready && local)
		prepare_offer(w, shm, &mine);
	if (ready)
		PMPI_Allgather(&mine, sizeof(mine), MPI_BYTE, offers, sizeof(mine), MPI_BYTE, w->comm);
	if (ready && local) {
		take_all(w, shm, offers);
		ours = shm->ours;
	}
	/* Descriptors are offered until all have taken them. */
	PMPI_Allreduce(MPI_IN_PLACE, &ours, 1, MPI_INT, MPI_LAND, w->comm);
	control_hide(&mine.control);
	if (w->region)
		region_close_object(w->region);
	free(offers);
	if (shm && !ours)
		stop_pager(shm);
	if (ready && local) {
		w->shm = shm;
		shm->ours = ours;
	} else if (shm) {
		close_parts(shm);
	}
	return ready ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

/* ---- Copies ---- */

/* The lock is on its way with an operation of MPI's: once that is complete, it is there. */
static bool become_open(struct window *w, int rank)
{
	struct peer *p = &w->shm->peers[rank];

	if (!atomic_exchange(&p->pending, false) || PMPI_Win_flush(rank, w->win) != MPI_SUCCESS)
		return false;
	atomic_store(&p->access, ACCESS_OPEN);
	return true;
}

static pthread_mutex_t passing = PTHREAD_MUTEX_INITIALIZER;

/* Locks that this process has, of all windows. */
static _Atomic int locks;

void shm_take(struct shm *shm, struct peer *p, bool exclusive)
{
	int before;

	if (shm->threads) {
		before = atomic_fetch_add(&locks, 1);
	} else {
		before = atomic_load_explicit(&locks, memory_order_relaxed);
		atomic_store_explicit(&locks, before + 1, memory_order_relaxed);
	}
	nodelock_take(p->lock, &shm->locks, exclusive ? NODELOCK_EXCLUSIVE : before ? NODELOCK_AHEAD : NODELOCK_SHARED);
}

void shm_drop(struct shm *shm, struct peer *p)
{
	nodelock_drop(p->lock, &shm->locks);
	if (shm->threads)
		atomic_fetch_sub(&locks, 1);
	else
		atomic_store_explicit(&locks, atomic_load_explicit(&locks, memory_order_relaxed) - 1, memory_order_relaxed);
}

/* Of a lock of all ranks, each comes when it is needed; one thread brings it. */
static bool bring_lock(struct window *w, int rank)
{
	struct peer *p = &w->shm->peers[rank];
	bool taken = false;

	if (!atomic_compare_exchange_strong(&p->held, &taken, true)) {
		while (atomic_load(&p->access) == ACCESS_ASKED)
			sched_yield();
		return true;
	}
	shm_take(w->shm, p, false);
	atomic_store(&p->access, ACCESS_OPEN);
	return true;
}

bool shm_may_access(struct window *w, int rank, bool fences)
{
	switch (atomic_load_explicit(&w->shm->peers[rank].access, memory_order_acquire)) {
	case ACCESS_OPEN: return true;
	case ACCESS_ASKED: return w->shm->ours ? bring_lock(w, rank) : become_open(w, rank);
	default: return fences && atomic_load_explicit(&w->shm->fenced, memory_order_acquire);
	}
}

/* A lock of ours MPI does not know: it gets one that conflicts with nothing. */
void shm_pass(struct window *w, int rank)
{
	struct peer *p = w->shm && w->shm->ours && rank >= 0 && rank < w->shm->ranks ? &w->shm->peers[rank] : NULL;

	if (!p || atomic_load(&p->access) == ACCESS_NONE || !shm_may_access(w, rank, false))
		return;
	pthread_mutex_lock(&passing);
	if (!atomic_load(&p->passed))
		atomic_store(&p->passed, PMPI_Win_lock(MPI_LOCK_SHARED, rank, MPI_MODE_NOCHECK, w->win) == MPI_SUCCESS);
	pthread_mutex_unlock(&passing);
}

/* The rank, and where in its part the stretch begins; NULL: only MPI can tell. */
static inline struct peer *find_peer(const struct window *w, const struct stretch *s, uint64_t *at)
{
	struct peer *p;
	int64_t begin;

	if (s->bytes == 0 || s->rank < 0 || s->rank >= w->shm->ranks)
		return NULL;
	p = &w->shm->peers[s->rank];
	if (s->disp < 0 || __builtin_mul_overflow((int64_t)s->disp, p->unit, &begin))
		return NULL;
	*at = (uint64_t)begin;
	return p;
}

static inline bool is_mapped(const struct peer *p, uint64_t at, uint64_t bytes)
{
	return at >= p->from && at < p->to && bytes <= p->to - at;
}

static inline bool is_paged(const struct peer *p, const struct stretch *s, uint64_t at)
{
	return (p->paged || p->remote) && at >= p->paged_from && s->bytes <= p->size && at <= p->size - s->bytes;
}

/* Where a stretch can be copied without MPI: in what is mapped here, or in the rank's segments. NULL: nowhere. */
static inline struct peer *find_copy(struct window *w, const struct stretch *s, uint64_t *at, bool *mapped)
{
	struct peer *p = find_peer(w, s, at);

	*mapped = p && is_mapped(p, *at, s->bytes);
	return p && (*mapped || is_paged(p, s, *at)) && shm_may_access(w, s->rank, s->fences) ? p : NULL;
}

/* By the kernel, where it is all in one piece. */
static bool copy_remote(const struct peer *p, void *here, uint64_t bytes, uint64_t at, bool put)
{
	struct remote list;
	uint64_t there;

	if (!reach_is_remote(p, at) || reach_remote(p, at, bytes, &there) != bytes)
		return false;
	remote_begin(&list, p->pid, put);
	return remote_copy(&list, here, there, bytes) && remote_end(&list);
}

static bool put_paged(struct peer *p, const void *from, uint64_t bytes, uint64_t at)
{
	atomic_store_explicit(&p->stored, true, memory_order_relaxed);
	if (p->remote)
		return copy_remote(p, (void *)from, bytes, at, true);
	return umimport_put(p->paged, from, bytes, at - p->paged_from) == bytes;
}

static bool get_paged(const struct peer *p, void *to, uint64_t bytes, uint64_t at)
{
	if (p->remote)
		return copy_remote(p, to, bytes, at, false);
	return umimport_get(p->paged, to, bytes, at - p->paged_from) == bytes;
}

bool shm_put(struct window *w, const struct stretch *s, const void *from)
{
	uint64_t at;
	bool mapped;
	struct peer *p = find_copy(w, s, &at, &mapped);

	if (!p)
		return false;
	if (!mapped)
		return put_paged(p, from, s->bytes, at);
	memmove(p->at + (at - p->from), from, s->bytes);
	atomic_store_explicit(&p->stored, true, memory_order_relaxed);
	return true;
}

bool shm_get(struct window *w, const struct stretch *s, void *to)
{
	uint64_t at;
	bool mapped;
	struct peer *p = find_copy(w, s, &at, &mapped);

	if (!p)
		return false;
	if (!mapped)
		return get_paged(p, to, s->bytes, at);
	memmove(to, p->at + (at - p->from), s->bytes);
	return true;
}

int shm_failed(const struct window *w, int rank)
{
	struct error e = { 0 };
	int err = errno;

	/* ummap-cafrun(1) searches its output for the words "the rank has ended". */
	if (err == EOWNERDEAD)
		error_set(&e, MPI_ERR_OTHER,
			  "cannot access the part of the window at rank %d: the rank has ended",
			  rank);
	else
		error_errno(&e, err, "cannot load the part of the window at rank %d: %s", rank,
			    strerror(err));
	return error_tell_win(w->win, &e);
}

void shm_note(struct window *w, int rank)
{
	if (rank >= 0 && rank < w->shm->ranks)
		atomic_store_explicit(&w->shm->peers[rank].pending, true, memory_order_release);
}

/* ---- The calls: the window is there before its parts are opened, and they are closed behind it. ---- */

static int allocate(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win)
{
	int code = parts.next.Win_allocate(size, unit, info, comm, base, win);
	struct window *w = code == MPI_SUCCESS ? window_of(*win) : NULL;

	return w ? shm_open_window(w, unit) : code;
}

static int allocate_shared(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win)
{
	int code = parts.next.Win_allocate_shared(size, unit, info, comm, base, win);
	struct window *w = code == MPI_SUCCESS ? window_of(*win) : NULL;

	return w ? shm_open_window(w, unit) : code;
}

static int free_window(MPI_Win *win)
{
	struct window *w = window_of(*win);
	struct shm *shm = w ? w->shm : NULL;
	int code;

	/* Nobody asks for what is going. */
	if (shm && shm->ours) {
		PMPI_Barrier(w->comm);
		stop_pager(shm);
	}
	code = parts.next.Win_free(win);
	if (code == MPI_SUCCESS && shm)
		close_parts(shm);
	return code;
}

static struct pmpi_feature parts = {
	.place = PMPI_RMA,
	.take = { .Win_allocate = allocate, .Win_allocate_shared = allocate_shared, .Win_free = free_window },
};
PMPI_FEATURE(parts)
