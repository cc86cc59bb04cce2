/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes blocks of commits to the store (overlay.h: orders 5 and 8). A pass first notes the places
 * of all blocks of the commit that the store lacks, then writes them in the order of the store, up
 * to MAX_FLIGHTS requests at a time. While it runs, `hold` keeps these slots from being retired, so
 * that it needs no lock to read them.
 *
 * Lock: `lock`, for MAX_VISITED entries of the index at a time, because writers wait for it.
 */
#include "overlay.h"

#include "common/futex.h"
#include "common/memory_calls.h"
#include "common/minmax.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_FLIGHTS 4   /* requests to the store that are under way */
#define MAX_VISITED 256 /* entries of the index */

struct flight {
	struct ummap_io io;
	char *blocks;                  /* OVERLAY_RUN_BYTES */
	bool flying;
};

struct pass {
	struct overlay *o;
	struct behind *store;
	uint64_t size;                 /* bytes of the store at the commit */
	uint64_t bad;                  /* block that differs from its sum; OVERLAY_EMPTY: none */
	struct blockmap places;        /* offsets in the file of the blocks to be written */
	char *memory;                  /* blocks of all flights */
	struct flight flights[MAX_FLIGHTS];
	unsigned flying;
};

/* ---- The blocks of a commit ---- */

struct found {
	uint64_t block, place;
};

/*
 * The slot that has the block at commit `number`, if the store lacks it; OVERLAY_NO_SLOT: none. A
 * slot behind `older` may have been freed and taken again since, and then has a later commit than
 * the slot before it, or none. The caller holds the lock.
 */
static uint32_t find_version(const struct overlay *o, uint32_t slot, uint64_t number, uint64_t home)
{
	uint64_t later = overlay_slot(o, slot)->commit;

	while (later > number) {
		slot = overlay_slot(o, slot)->older;
		if (slot == OVERLAY_NO_SLOT || overlay_slot(o, slot)->commit >= later)
			return OVERLAY_NO_SLOT;
		later = overlay_slot(o, slot)->commit;
	}
	return later > home ? slot : OVERLAY_NO_SLOT;
}

/* Notes the places of blocks from *block on. Returns how many entries of the index it has visited;
 * *n is the number of places. */
static unsigned visit_some(struct overlay *o, uint64_t number, uint64_t home, uint64_t *block,
			   struct found *found, unsigned *n)
{
	unsigned visited = 0;
	uint64_t place;

	*n = 0;
	futex_lock(&o->lock);
	for (; visited < MAX_VISITED && blockmap_next(&o->index, block, &place); ++*block) {
		uint32_t slot = find_version(o, overlay_slot_at(o, place), number, home);

		visited++;
		if (slot != OVERLAY_NO_SLOT)
			found[(*n)++] = (struct found){ *block, overlay_block_at(o, slot) };
	}
	futex_unlock(&o->lock);
	return visited;
}

static int note_places(struct pass *p, uint64_t number, uint64_t home)
{
	struct found found[MAX_VISITED];
	uint64_t block = 0;
	unsigned n;
	int err = 0;

	while (!err && visit_some(p->o, number, home, &block, found, &n) > 0) {
		for (unsigned i = 0; i < n && !err; i++) {
			err = blockmap_reserve(&p->places, found[i].block, 1);
			if (!err)
				blockmap_set(&p->places, found[i].block, found[i].place);
		}
	}
	return err;
}

/* ---- Writing ---- */

/* Waits for at least so many requests. */
static int land(struct pass *p, unsigned min)
{
	struct ummap_io *done[MAX_FLIGHTS];
	int got = behind_reap(p->store, done, MAX_FLIGHTS, min), err = 0;

	/* A driver that fails here reports nothing about its requests. */
	if (got < 0)
		p->flying = 0;
	for (int i = 0; i < got; i++) {
		((struct flight *)done[i]->owner)->flying = false;
		p->flying--;
		if (done[i]->res)
			err = done[i]->res;
	}
	return got < 0 ? got : err;
}

static int take_flight(struct pass *p, struct flight **f)
{
	int err = p->flying == MAX_FLIGHTS ? land(p, 1) : 0;

	for (*f = p->flights; !err && (*f)->flying;)
		++*f;
	return err;
}

static int start_write(struct pass *p, struct flight *f, size_t len, uint64_t off)
{
	int got = 0;

	f->io = (struct ummap_io){
		.op = UMMAP_IO_WRITE, .buf = f->blocks, .len = len, .off = off, .owner = f
	};
	if (behind_is_async(p->store))
		got = behind_submit(p->store, &f->io);
	if (got == 0)
		return behind_write(p->store, f->blocks, len, off);
	f->flying = got == 1;
	p->flying += f->flying;
	return got < 0 ? got : 0;
}

/* Compares n blocks in memory with their sums. */
static int check_sums(struct pass *p, uint64_t first, uint64_t n, const char *blocks)
{
	struct overlay *o = p->o;

	for (uint64_t k = 0; k < n; k++) {
		uint32_t slot = overlay_slot_at(o, blockmap_get(&p->places, first + k));

		if (overlay_sum(blocks + k * OVERLAY_BLOCK) == overlay_slot(o, slot)->data)
			continue;
		p->bad = first + k;
		return -EBADMSG;
	}
	return 0;
}

/* Begins to write the blocks from `first` on that are consecutive in the store; *n of them. */
static int write_run(struct pass *p, uint64_t first, uint64_t *n)
{
	uint64_t off = first * OVERLAY_BLOCK;
	struct flight *f;
	int err = take_flight(p, &f);

	if (err)
		return err;
	*n = side_collect(&p->o->file, &p->places, first, OVERLAY_RUN, OVERLAY_BLOCK, f->blocks,
			  &err);
	if (!err)
		err = check_sums(p, first, *n, f->blocks);
	if (err || off >= p->size)
		return err;
	return start_write(p, f, min_u64(*n * OVERLAY_BLOCK, p->size - off), off);
}

static int write_all(struct pass *p)
{
	uint64_t block = 0, place, n = 0;
	int err = 0, late;

	for (; !err && blockmap_next(&p->places, &block, &place); block += n)
		err = write_run(p, block, &n);
	while (p->flying > 0) {
		late = land(p, p->flying);
		err = err ? err : late;
	}
	return err;
}

/* Makes the store as long as at the commit, which may be longer than any block says. */
static int lengthen_store(struct pass *p)
{
	uint64_t now;
	int err = behind_size(p->store, &now);

	if (err || now >= p->size)
		return err;
	err = behind_resize(p->store, p->size);
	return err == -EOPNOTSUPP ? behind_write(p->store, "", 1, p->size - 1) : err;
}

static int begin_pass(struct pass *p)
{
	p->memory = raw_mmap(NULL, MAX_FLIGHTS * OVERLAY_RUN_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p->memory == MAP_FAILED)
		return -ENOMEM;
	for (size_t i = 0; i < MAX_FLIGHTS; i++)
		p->flights[i].blocks = p->memory + i * OVERLAY_RUN_BYTES;
	return 0;
}

int overlay_apply(struct overlay *o, uint64_t number, struct behind *store, uint64_t *block)
{
	struct pass p = { .o = o, .store = store, .bad = OVERLAY_EMPTY };
	struct overlay_commit commit;
	uint64_t home;
	int err = begin_pass(&p);

	*block = OVERLAY_EMPTY;
	if (err)
		return err;
	futex_lock(&o->file_lock);
	overlay_find_commit(o, number, &commit);
	home = o->head.home;
	futex_unlock(&o->file_lock);
	p.size = commit.size;
	err = note_places(&p, number, home);
	if (!err)
		err = write_all(&p);
	if (!err)
		err = lengthen_store(&p);
	if (!err)
		err = behind_flush(store, 0, UINT64_MAX);
	blockmap_free(&p.places);
	raw_munmap(p.memory, MAX_FLIGHTS * OVERLAY_RUN_BYTES);
	*block = p.bad;
	return err > 0 ? -err : err;
}

/* ---- Afterwards ---- */

/* Some of the blocks from *block on: those whose newest contents are of a commit up to `number` are
 * in the store. Returns how many entries of the index it has visited. */
static unsigned drop_some(struct overlay *o, uint64_t number, uint64_t *block)
{
	unsigned visited = 0;
	uint64_t place;

	futex_lock(&o->lock);
	for (; visited < MAX_VISITED && blockmap_next(&o->index, block, &place); ++*block) {
		uint32_t slot = overlay_slot_at(o, place);

		visited++;
		if (overlay_slot(o, slot)->commit > number)
			continue;
		blockmap_drop(&o->index, *block, place);
		overlay_retire(o, slot);
	}
	futex_unlock(&o->lock);
	return visited;
}

int overlay_set_home(struct overlay *o, uint64_t number)
{
	struct overlay_commit commit;
	struct overlay_head before;
	uint64_t block = 0;
	int err;

	futex_lock(&o->file_lock);
	before = o->head;
	overlay_find_commit(o, number, &commit);
	o->head.home = number;
	o->head.home_slots = commit.slots;
	o->head.floor = max_u64(o->head.floor, number);
	err = overlay_write_head(o);
	/* The file may have either header. Until a later call succeeds, all slots stay, and so
	 * either header is right. */
	if (err)
		o->head = before;
	futex_unlock(&o->file_lock);
	while (!err && drop_some(o, number, &block) > 0)
		;
	futex_lock(&o->lock);
	overlay_end_hold(o);
	futex_unlock(&o->lock);
	return err;
}
