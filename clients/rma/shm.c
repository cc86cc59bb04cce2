/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows whose memory ranks of one machine access without MPI, as far as two processes can map it
 * or the kernel copies it (rma/reach.h). Each rank offers descriptors of its memory; the others
 * open them by way of /proc, check that they are what was offered, and map them. Each rank decides
 * for itself whether it offers, and whether it uses offers. Its own memory it accesses in any case.
 *
 * A window is ours (`ours`) if every rank accesses every byte of the window. The ranks agree on
 * that when they make the window. They are then processes of one machine that see each other, and
 * stay so. Locks in control memory replace MPI's locks, and the calling process makes atomic
 * operations. In all other windows, MPI has all locks and atomic operations, for all ranks, because
 * MPI's operation at a target is not atomic to one of ours. In a window of ours, MPI makes an
 * operation without an error in two cases only. Epochs of groups, and epochs of fences that some
 * rank may not have begun, are MPI's at all ranks, because MPI_MODE_NOPRECEDE and
 * MPI_MODE_NOSUCCEED are the same at all ranks; a target in such an epoch may not be locked. Within
 * a lock of ours, MPI makes operations with datatypes whose layout is unknown, under a lock of its
 * own that conflicts with nothing.
 *
 * In other windows, a copy must be one that MPI could have made at that moment:
 *  - Only within an epoch. MPI may return from a lock before it has the lock. So the first
 *    operation is left to MPI, and once that is complete at the target, as a flush says, the lock
 *    is there and copies follow. With MPI_MODE_NOCHECK they may begin at once. With fences, all
 *    ranks must be known to be in the epoch.
 *  - A copy is complete when the call returns. MPI orders it with other operations only by calls
 *    that complete those. So flushes go to MPI while it has incomplete operations, and all calls of
 *    epochs are memory barriers.
 *  - Everything that may be an error (bounds, types, ranks, epochs) is left to MPI.
 * A rank that waits for another one must let MPI work meanwhile, for operations on its own memory.
 *
 * No lock: a structure changes only with its window, except for the atomic states of epochs.
 */
#include "rma/shm.h"

#include "common/memory_calls.h"
#include "common/process.h"
#include "pmpi/pmpi.h"
#include "rma/remote.h"
#include "window/shared.h"
#include "window/window.h"

#include <ummap.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct pmpi_feature shared_memory;

/* The memory of a rank, as it tells the others: plain bytes. */
struct offer {
	uint64_t processes;      /* processes for which the process IDs are valid */
	uint64_t size;           /* size of its window memory */
	int64_t unit;            /* displacement unit */
	struct descriptor object; /* object that others map; fd -1: none */
	uint64_t machine;        /* machine on which the object is */
	uint64_t object_at;      /* first byte of the window memory in the object */
	uint64_t from, len;      /* offset and number of these bytes in the window memory */
	bool pages;              /* `exported` is valid */
	struct umexport exported; /* segments that the library pages */
	struct remote_offer remote; /* segments that only the kernel copies */
	uint64_t paged_from;     /* offset of the first segment in the window memory */
	bool readonly;           /* the window memory is that of a node copy */
	struct descriptor pipe;  /* pipe for requests to load segments */
	uint64_t key;            /* key of the mapping in these requests */
	struct descriptor control; /* of the first rank: control memory */
};

/* ---- Offers ---- */

/* The machine of an open file. Process IDs may be the same on several machines. */
static uint64_t find_machine(int fd)
{
	struct extent extent = { 0 };

	extent_file(&extent, fd, 0, 1);
	return extent.machine;
}

static void offer_region(struct offer *o, const struct region *region)
{
	o->pages = region->shared && umexport(region->stored, &o->exported) == 0;
	o->paged_from = region->stored_from;
	if (region->stored && region->hints.engine == ENGINE_UFFD)
		remote_make(&o->remote, region->stored);
	if (region->object.fd < 0 || !descriptor_describe(&o->object, region->object.fd))
		return;
	o->machine = find_machine(region->object.fd);
	o->object_at = region->object.at;
	o->from = region->object.from;
	o->len = region->object.len;
}

static void make_offer(struct window *w, struct shm *shm, struct offer *o)
{
	o->processes = process_namespace();
	if (w->region)
		offer_region(o, w->region);
	if (o->pages)
		shm->pager = pager_open(w->region->stored, w->region->stored_len, &o->pipe,
					&o->key);
	if (shm->locks.me == 0)
		control_make(shm, &o->control);
}

static void map_object(struct target *t, const struct offer *o)
{
	size_t head = o->object_at % (size_t)sysconf(_SC_PAGESIZE);
	int fd = o->len ? descriptor_open(&o->object) : -1;
	void *map = MAP_FAILED;

	if (fd < 0)
		return;
	if (find_machine(fd) == o->machine)
		map = mmap(NULL, head + o->len, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			   (off_t)(o->object_at - head));
	close(fd);
	if (map == MAP_FAILED)
		return;
	t->map = map;
	t->map_len = head + o->len;
	t->at = (char *)map + head;
	t->from = o->from;
	t->to = o->from + o->len;
}

static void open_target(struct target *t, const struct offer *o)
{
	if (o->processes != process_namespace())
		return;
	map_object(t, o);
	if (o->pages && umimport_open(&o->exported, &t->import) < 0)
		t->import = NULL;
	if (o->remote.at && remote_find(&o->remote)) {
		t->remote = o->remote.at;
		t->pid = o->remote.pid;
	}
	t->paged_from = o->paged_from;
	t->key = o->key;
	if (t->import)
		t->pipe = pager_connect(&o->pipe);
}

static void set_address(struct target *t, char *base, size_t size)
{
	t->at = base;
	t->from = 0;
	t->to = t->size = size;
}

/* ---- Windows ---- */

static void let_mpi_work(void *w)
{
	int found;

	PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, ((struct window *)w)->comm, &found,
		    MPI_STATUS_IGNORE);
}

static struct shm *new_shm(struct window *w)
{
	struct shm *shm = calloc(1, sizeof(*shm));
	int level;

	if (!shm)
		return NULL;
	PMPI_Query_thread(&level);
	shm->threads = level == MPI_THREAD_MULTIPLE;
	PMPI_Comm_size(w->comm, &shm->ranks);
	PMPI_Comm_rank(w->comm, &shm->locks.me);
	shm->locks.ranks = shm->ranks;
	shm->locks.idle = let_mpi_work;
	shm->locks.arg = w;
	shm->targets = calloc((size_t)shm->ranks, sizeof(*shm->targets));
	if (shm->targets)
		return shm;
	free(shm);
	return NULL;
}

static void stop_pager(struct shm *shm)
{
	if (shm->pager)
		pager_close(shm->pager);
	shm->pager = NULL;
}

static void free_shm(struct shm *shm)
{
	for (int i = 0; i < shm->ranks; i++) {
		const struct target *t = &shm->targets[i];

		if (t->map)
			raw_munmap(t->map, t->map_len);
		umimport_close(t->import);
		if (t->pipe)
			pager_disconnect(t->pipe);
	}
	control_close(shm);
	free(shm->targets);
	free(shm);
}

/* Whether this process accesses every byte of the window memory. */
static bool is_reached(const struct target *t)
{
	if (t->from == 0 && t->to == t->size)
		return true;
	if (!(t->import && t->pipe) && !t->remote)
		return false;
	if (t->paged_from == 0)
		return t->to == 0 || t->to == t->size;
	return t->from == 0 && t->to == t->paged_from;
}

static bool are_all_reached(struct shm *shm, const struct offer *offers)
{
	int i = 0;

	while (i < shm->ranks && is_reached(&shm->targets[i]) &&
	       offers[i].processes == process_namespace())
		i++;
	return i == shm->ranks && (shm->control || control_find(shm, &offers[0].control));
}

/* Opens the memory of all ranks. Returns whether all of it is accessed. */
static bool open_targets(struct window *w, struct shm *shm, const struct offer *offers)
{
	int me = shm->locks.me;

	for (int i = 0; i < shm->ranks; i++) {
		struct target *t = &shm->targets[i];

		t->unit = offers[i].unit;
		t->size = offers[i].size;
		t->readonly = offers[i].readonly;
		if (!w->region) {
			set_address(t, w->shared->first + w->shared->places[i].at,
				    w->shared->places[i].size);
			t->unit = (int64_t)w->shared->places[i].unit;
		} else if (i == me) {
			set_address(t, w->region->base, t->size);
		} else {
			open_target(t, &offers[i]);
		}
	}
	if (!are_all_reached(shm, offers))
		return false;
	if (shm->pager)
		pager_answer(shm->pager, shm->targets[me].answers, shm->ranks);
	return true;
}

int shm_open_window(struct window *w, MPI_Aint unit)
{
	struct shm *shm = new_shm(w);
	struct offer *offers = shm ? calloc((size_t)shm->ranks, sizeof(*offers)) : NULL;
	struct offer mine = { .size = w->region ? w->region->size : 0, .unit = unit,
			      .readonly = window_hints(w)->node_cache,
			      .object.fd = -1, .pipe.fd = -1, .control.fd = -1 };
	int ready = offers != NULL, ours = false;
	bool local = window_hints(w)->local;

	PMPI_Allreduce(MPI_IN_PLACE, &ready, 1, MPI_INT, MPI_LAND, w->comm);
	if (ready && local)
		make_offer(w, shm, &mine);
	if (ready)
		PMPI_Allgather(&mine, sizeof(mine), MPI_BYTE, offers, sizeof(mine), MPI_BYTE,
			       w->comm);
	if (ready && local)
		ours = open_targets(w, shm, offers);
	/* Descriptors stay open until all ranks have opened them. */
	PMPI_Allreduce(MPI_IN_PLACE, &ours, 1, MPI_INT, MPI_LAND, w->comm);
	if (mine.control.fd >= 0)
		close(mine.control.fd);
	if (w->region)
		region_close_object(w->region);
	free(offers);
	if (shm && !ours)
		stop_pager(shm);
	if (ready && local) {
		w->shm = shm;
		shm->ours = ours;
	} else if (shm) {
		free_shm(shm);
	}
	return ready ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

int shm_fail(const struct window *w, int rank)
{
	struct error e = { 0 };
	int err = errno;

	/* ummap-cafrun(1) searches its output for the words "the rank has ended". */
	if (err == EOWNERDEAD)
		error_set(&e, MPI_ERR_OTHER,
			  "cannot access the part of the window at rank %d: the rank has ended",
			  rank);
	else
		error_errno(&e, err, "cannot load the part of the window at rank %d: %m", rank);
	return error_tell_win(w->win, &e);
}

/* ---- The calls ---- */

/* code: the result of the call that has made the window. */
static int open_made(int code, const MPI_Win *win, MPI_Aint unit)
{
	struct window *w = code == MPI_SUCCESS ? window_of(*win) : NULL;

	return w ? shm_open_window(w, unit) : code;
}

static int allocate(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base,
		    MPI_Win *win)
{
	return open_made(shared_memory.next.Win_allocate(size, unit, info, comm, base, win), win,
			 unit);
}

static int allocate_shared(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base,
			   MPI_Win *win)
{
	return open_made(shared_memory.next.Win_allocate_shared(size, unit, info, comm, base, win),
			 win, unit);
}

static int free_window(MPI_Win *win)
{
	struct window *w = window_of(*win);
	struct shm *shm = w ? w->shm : NULL;
	int code;

	/* After the barrier, no rank sends requests. */
	if (shm && shm->ours) {
		PMPI_Barrier(w->comm);
		stop_pager(shm);
	}
	code = shared_memory.next.Win_free(win);
	if (code == MPI_SUCCESS && shm)
		free_shm(shm);
	return code;
}

static struct pmpi_feature shared_memory = {
	.place = PMPI_RMA,
	.take = {
		.Win_allocate = allocate,
		.Win_allocate_shared = allocate_shared,
		.Win_free = free_window,
	},
};
PMPI_FEATURE(shared_memory)
