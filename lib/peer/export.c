/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The owner's side of an exported mapping. An importer may die at any moment and leave its slots
 * filled. The owner learns this from the lock of the line, which the kernel has released. The
 * values in slots are only compared with segment numbers, never used as addresses or indices,
 * because other processes can write them. Lock: `reaping`, a leaf, while a line is cleared.
 */
#include "peer/export.h"

#include "base/log.h"
#include "common/process.h"
#include "common/try_lock.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The wait for an access, which takes microseconds: a slot is read SPINS times, then YIELDS times
 * between calls of sched_yield(2), and then each millisecond. Each SLEEPS_PER_REAP milliseconds,
 * the line is cleared if its importer has died. */
#define SPINS 1000
#define YIELDS 100
#define SLEEPS_PER_REAP 10

static _Atomic uint32_t reaping;

/* ---- The memory object ---- */

static size_t object_len(size_t count)
{
	return export_segs_at() + round_up(count * sizeof(struct seg), sys_page());
}

int export_open(struct export *e, size_t size, size_t seg_size, size_t count)
{
	size_t len = object_len(count);
	int fd = sys_create_memfd("ummap-segments", len);
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
	*e = (struct export){ .header = (struct export_header *)p,
			      .lines = (struct export_lines *)(p + export_lines_at()),
			      .segs = (struct seg *)(p + export_segs_at()),
			      .count = count,
			      .fd = fd };
	e->header->magic = EXPORT_MAGIC;
	e->header->version = EXPORT_VERSION;
	e->header->page = (uint32_t)sys_page();
	e->header->seg_size = seg_size;
	e->header->count = count;
	e->header->size = size;
	return 0;
}

static void close_object(struct export *e)
{
	if (e->header)
		close(e->fd);
	*e = (struct export){ 0 };
}

void export_close(struct export *e)
{
	raw_munmap(e->header, object_len(e->count));
	close_object(e);
}

/* The child may lack the thread that held `reaping`. */
void export_forget(struct export *e)
{
	close_object(e);
	reaping = 0;
}

void export_resize(struct export *e, size_t size)
{
	if (e->header)
		e->header->size = size;
}

/* ---- Descriptions ---- */

int export_describe(const struct export *e, int pool, struct umexport *exported)
{
	struct export_description d = { .magic = (uint32_t)EXPORT_MAGIC, .pid = getpid(),
					.control = e->fd, .pool = pool };
	struct stat control, frames;

	if (fstat(e->fd, &control) < 0 || fstat(pool, &frames) < 0)
		return -errno;
	d.machine = process_machine();
	d.pid_namespace = process_namespace();
	d.device = control.st_dev;
	d.control_file = control.st_ino;
	d.pool_file = frames.st_ino;
	memcpy(exported, &d, sizeof(d));
	return 0;
}

/* ---- Waiting for accesses ---- */

/* Clears line k if no process has it. Holds the lock of the line meanwhile, so that no process
 * takes it. */
static void reap_line(const struct export *e, unsigned k)
{
	futex_lock(&reaping);
	if (try_lock_bytes(e->fd, F_WRLCK, k, 1) == 0) {
		for (unsigned j = 0; j < EXPORT_LINE_SLOTS; j++)
			e->lines->line[k].slot[j] = 0;
		try_lock_bytes(e->fd, F_UNLCK, k, 1);
	}
	futex_unlock(&reaping);
}

/* Waits until the slot, which belongs to line k, no longer has the value. */
static void wait_for_slot(const struct export *e, unsigned k, const _Atomic uint64_t *slot,
			  uint64_t value)
{
	_Atomic uint32_t unchanged = 0;

	for (unsigned i = 0; atomic_load_explicit(slot, memory_order_acquire) == value; i++) {
		if (i < SPINS)
			continue;
		if (i < SPINS + YIELDS) {
			sched_yield();
			continue;
		}
		futex_wait(&unchanged, 0, 1);
		if ((i - SPINS - YIELDS) % SLEEPS_PER_REAP == SLEEPS_PER_REAP - 1)
			reap_line(e, k);
	}
}

void export_wait_for_slots(const struct export *e, const struct seg *s)
{
	uint64_t value = ((uintptr_t)s - (uintptr_t)e->segs) / sizeof(*s) + 1;
	unsigned lines;

	/* Other processes do not know the segments by which the mapping has grown. */
	if (value > e->count)
		return;
	/* The lock of the segment becomes visible before the slots are read. An importer fills its
	 * slot before it reads the lock. So one of the two sees the other. */
	atomic_thread_fence(memory_order_seq_cst);
	lines = e->lines->used;
	for (unsigned k = 0; k < lines && k < EXPORT_MAX_IMPORTS; k++) {
		for (unsigned j = 0; j < EXPORT_LINE_SLOTS; j++)
			wait_for_slot(e, k, &e->lines->line[k].slot[j], value);
	}
}
