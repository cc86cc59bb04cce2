/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of one machine reach each other's parts by loads and stores, without MPI, in so far as the memory can be mapped
 * twice: what the kernel has mapped from a file (the engine `kernel`, and shared windows), and the part of a window
 * that is in memory, which is a memory object for that. Its owner offers a descriptor; the others open it by way of
 * /proc, look whether it is what was offered, and map it. What the library pages with the engine segv is reached
 * segment by segment (umoffer(3)): what is in memory can be read, and what is changed already can be changed again.
 * The own part is reached in any case, where it stands.
 *
 * MPI keeps the windows, the locks, and all that is not a plain copy, and sees the same memory. So a copy here has
 * to be one that MPI could have made at that moment:
 *  - Only within an epoch. With a lock, MPI may give it before it has it: the first operation is left to MPI, and once
 *    that is complete at the target, which is what a flush says, the lock is there, and copies may follow. Where
 *    nothing conflicts (MPI_MODE_NOCHECK), they may begin at once. With fences, if all ranks are known to be in the
 *    epoch: MPI_MODE_NOPRECEDE lets a rank go ahead of the others. Epochs of groups are MPI's.
 *  - A copy is complete when the call returns. MPI orders it with other operations only by calls that complete those,
 *    so flushes go to MPI where it has some that may not be, and all calls of epochs are barriers to memory.
 *  - Whatever is not as it should be (bounds, types, ranks, epochs) is left to MPI, errors included.
 * A rank that waits for another by such calls alone still has to let MPI work, for what others ask of its own part.
 *
 * Each rank decides for itself whether it offers, and whether it makes use of offers. No lock: what is here changes
 * only with the window, states of epochs excepted, which are atomic.
 */
#include "rma/shm.h"

#include "pmpi/pmpi.h"
#include "window/shared.h"
#include "window/window.h"

#include <ummap.h>

#include <fcntl.h>
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
	int64_t unit;
	uint64_t processes;      /* among these is pid */
	int pid, fd;
	bool pages;              /* there is something that the library pages, too: */
	struct umoffer paged;
	uint64_t paged_from;     /* where in its part that begins */
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
	o->pages = region->shared && umoffer(region->stored, &o->paged) == 0;
	o->paged_from = region->stored_from;
	if (region->object.fd < 0)
		return;
	o->processes = extent_processes();
	o->pid = (int)getpid();
	o->fd = region->object.fd;
	o->from = region->object.from;
	extent_file(&o->object, o->fd, region->object.at, region->object.len);
}

/* ---- Windows ---- */

static struct shm *new_shm(MPI_Comm comm)
{
	struct shm *shm = calloc(1, sizeof(*shm));

	if (!shm)
		return NULL;
	PMPI_Comm_size(comm, &shm->ranks);
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
		if (i == rank) {
			reach_self(&shm->peers[i], region->base, region->size);
			continue;
		}
		map_offer(&shm->peers[i], &offers[i]);
		/* Whom it does not reach, for whatever reason, MPI does. */
		if (offers[i].pages && umpeer_open(&offers[i].paged, &shm->peers[i].paged) < 0)
			shm->peers[i].paged = NULL;
		shm->peers[i].paged_from = offers[i].paged_from;
	}
}

static void close_parts(struct shm *shm)
{
	for (int i = 0; i < shm->ranks; i++) {
		if (shm->peers[i].map)
			munmap(shm->peers[i].map, shm->peers[i].map_len);
		if (shm->peers[i].paged)
			umpeer_close(shm->peers[i].paged);
	}
	free(shm->peers);
	free(shm);
}

/* Collective over w->comm, once its memory is there: ranks open to each other what they have. Where that is not wanted,
 * w->shm stays NULL. Returns an MPI code, the same at all. */
static int open_parts(struct window *w, MPI_Aint unit)
{
	struct shm *shm = new_shm(w->comm);
	struct offer *offers = shm ? calloc((size_t)shm->ranks, sizeof(*offers)) : NULL;
	struct offer mine = { .unit = unit };
	int rank, ready = offers != NULL;

	PMPI_Comm_rank(w->comm, &rank);
	PMPI_Allreduce(MPI_IN_PLACE, &ready, 1, MPI_INT, MPI_LAND, w->comm);
	if (ready && w->region->hints.local)
		make_offer(&mine, w->region);
	if (ready)
		PMPI_Allgather(&mine, sizeof(mine), MPI_BYTE, offers, sizeof(mine), MPI_BYTE, w->comm);
	if (ready && w->region->hints.local) {
		take_offers(shm, w->region, rank, offers);
		w->shm = shm;
		shm = NULL;
	}
	free(offers);
	if (shm)
		close_parts(shm);
	/* Descriptors are offered until all have taken them. */
	PMPI_Barrier(w->comm);
	region_close_object(w->region);
	return ready ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

/* The same for a window whose memory all have mapped. Not collective. */
static int open_shared(struct window *w)
{
	const struct shared *s = w->shared;

	if (!s->first || !s->hints.local)
		return MPI_SUCCESS;
	w->shm = new_shm(w->comm);
	if (!w->shm)
		return MPI_ERR_NO_MEM;
	for (int i = 0; i < s->ranks; i++) {
		reach_self(&w->shm->peers[i], s->first + s->places[i].at, s->places[i].size);
		w->shm->peers[i].unit = (int64_t)s->places[i].unit;
	}
	return MPI_SUCCESS;
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

static inline bool may_copy(struct window *w, int rank, bool fences)
{
	switch (atomic_load_explicit(&w->shm->peers[rank].access, memory_order_acquire)) {
	case ACCESS_OPEN: return true;
	case ACCESS_ASKED: return become_open(w, rank);
	default: return fences && atomic_load_explicit(&w->shm->fenced, memory_order_acquire);
	}
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

static inline bool is_paged(const struct peer *p, uint64_t at)
{
	return p->paged && at >= p->paged_from;
}

/* Where a stretch can be copied without MPI: in what is mapped here, or in the rank's segments. NULL: nowhere. */
static inline struct peer *find_copy(struct window *w, const struct stretch *s, uint64_t *at, bool *mapped)
{
	struct peer *p = find_peer(w, s, at);

	*mapped = p && is_mapped(p, *at, s->bytes);
	return p && (*mapped || is_paged(p, *at)) && may_copy(w, s->rank, s->fences) ? p : NULL;
}

bool shm_put(struct window *w, const struct stretch *s, const void *from)
{
	uint64_t at;
	bool mapped;
	struct peer *p = find_copy(w, s, &at, &mapped);

	if (!p)
		return false;
	if (!mapped)
		return umpeer_put(p->paged, from, s->bytes, at - p->paged_from) == s->bytes;
	memmove(p->at + (at - p->from), from, s->bytes);
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
		return umpeer_get(p->paged, to, s->bytes, at - p->paged_from) == s->bytes;
	memmove(to, p->at + (at - p->from), s->bytes);
	return true;
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

	return w ? open_parts(w, unit) : code;
}

static int allocate_shared(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win)
{
	int code = parts.next.Win_allocate_shared(size, unit, info, comm, base, win);
	struct window *w = code == MPI_SUCCESS ? window_of(*win) : NULL;

	return w ? open_shared(w) : code;
}

static int free_window(MPI_Win *win)
{
	struct window *w = window_of(*win);
	struct shm *shm = w ? w->shm : NULL;
	int code = parts.next.Win_free(win);

	if (code == MPI_SUCCESS && shm)
		close_parts(shm);
	return code;
}

static struct pmpi_feature parts = {
	.place = PMPI_RMA,
	.take = { .Win_allocate = allocate, .Win_allocate_shared = allocate_shared, .Win_free = free_window },
};
PMPI_FEATURE(parts)
