/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The owner's side of an exported mapping. A process that imports it may die at any moment, and then leaves its slots
 * filled: the kernel releases its lock, by which the owner knows. The values in slots are only compared with segment
 * numbers, never used as addresses or indices. Lock: `reaping`, a leaf, while the lines of dead processes are cleared.
 */
#include "peer/export.h"

#include "base/log.h"
#include "common/try_lock.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A copy takes microseconds: how often to look at once, how often after giving the processor away, and after how many
 * milliseconds more to see whether the accessor still lives. */
#define SPINS 1000
#define YIELDS 100
#define NAPS 10

static _Atomic uint32_t reaping;

/* ---- The object ---- */

static size_t object_len(size_t count)
{
	return export_segs_at() + round_up(count * sizeof(struct seg), sys_page());
}

int export_open(struct export *r, size_t size, size_t seg_size, size_t count)
{
	size_t len = object_len(count);
	int fd = sys_object("ummap-segments", len);
	char *p;

	if (fd < 0)
		return fail(-fd, "cannot create shared memory for the headers of %zu segments: %s",
			    count, strerror(-fd));
	p = sys_map(len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (p == MAP_FAILED) {
		close(fd);
		return fail(ENOMEM, "cannot map %zu segments: no address space for their headers. "
			    "Try a larger RLIMIT_AS (ulimit -v)", count);
	}
	raw_madvise(p, len, MADV_DONTFORK);
	*r = (struct export){ (struct export_head *)p, (struct export_lines *)(p + export_lines_at()),
			     (struct seg *)(p + export_segs_at()), count, fd };
	r->head->magic = EXPORT_MAGIC;
	r->head->version = REACH_VERSION;
	r->head->page = (uint32_t)sys_page();
	r->head->seg_size = seg_size;
	r->head->count = count;
	r->head->size = size;
	return 0;
}

static void close_object(struct export *r)
{
	if (r->head)
		close(r->fd);
	*r = (struct export){ 0 };
}

void export_close(struct export *r)
{
	raw_munmap(r->head, object_len(r->count));
	close_object(r);
}

/* The thread that held `reaping` may be missing in the child. */
void export_forget(struct export *r)
{
	close_object(r);
	reaping = 0;
}

void export_resize(struct export *r, size_t size)
{
	if (r->head)
		r->head->size = size;
}

/* ---- Offers ---- */

void export_place(uint64_t *machine, uint64_t *space)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	unsigned a = 0, b = 0, c = 0;
	struct stat st;

	if (f) {
		if (fscanf(f, "%8x-%4x-%4x", &a, &b, &c) != 3)
			a = b = c = 0;
		fclose(f);
	}
	*machine = (uint64_t)a << 32 | (uint64_t)b << 16 | c;
	*space = stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

int export_offer(const struct export *r, int pool, struct umexport *offer)
{
	struct export_offer o = { .magic = (uint32_t)EXPORT_MAGIC, .pid = getpid(), .control = r->fd, .pool = pool };
	struct stat control, frames;

	if (fstat(r->fd, &control) < 0 || fstat(pool, &frames) < 0)
		return -errno;
	export_place(&o.machine, &o.space);
	o.device = control.st_dev;
	o.control_file = control.st_ino;
	o.pool_file = frames.st_ino;
	memcpy(offer, &o, sizeof(o));
	return 0;
}

/* ---- Accessors ---- */

/* Clears line k if no process has it. Its lock is held meanwhile, so that no process takes it. */
static void reap(const struct export *r, unsigned k)
{
	futex_lock(&reaping);
	if (try_lock_bytes(r->fd, F_WRLCK, k, 1) == 0) {
		for (unsigned j = 0; j < EXPORT_SLOTS; j++)
			r->lines->line[k].slot[j] = 0;
		try_lock_bytes(r->fd, F_UNLCK, k, 1);
	}
	futex_unlock(&reaping);
}

static void wait_for(const struct export *r, unsigned k, const _Atomic uint64_t *slot, uint64_t visited)
{
	_Atomic uint32_t nobody = 0;

	for (unsigned i = 0; atomic_load_explicit(slot, memory_order_acquire) == visited; i++) {
		if (i < SPINS)
			continue;
		if (i < SPINS + YIELDS) {
			sched_yield();
			continue;
		}
		futex_wait(&nobody, 0, 1);
		if ((i - SPINS - YIELDS) % NAPS == NAPS - 1)
			reap(r, k);
	}
}

void export_wait(const struct export *r, const struct seg *s)
{
	uint64_t visited = ((uintptr_t)s - (uintptr_t)r->segs) / sizeof(*s) + 1;
	unsigned lines;

	/* Other processes do not know the segments by which the mapping has grown. */
	if (visited > r->count)
		return;
	/* The segment's lock is seen before its accessors are looked for; they look for it when they can be seen. */
	atomic_thread_fence(memory_order_seq_cst);
	lines = r->lines->used;
	for (unsigned k = 0; k < lines && k < EXPORT_PEERS; k++) {
		for (unsigned j = 0; j < EXPORT_SLOTS; j++)
			wait_for(r, k, &r->lines->line[k].slot[j], visited);
	}
}
