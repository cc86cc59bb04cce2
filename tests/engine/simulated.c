/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An engine without signals and without userfaultfd(2), which shows that an engine is one file and
 * one line of a table (engines.def). Programs of tests access its mappings by access_load and
 * access_store. These check the rights of each page in a table, and pass a fault to the library by
 * umfault_simulated. The memory of a mapped range always has all rights; bytes of absent pages and
 * of mapped frames are overwritten, so that the library must not rely on them. Lock: `lock`, held
 * for each access to one page and for each operation, which makes both atomic.
 */
#define SIMULATED_ENGINE
#include "access.h"

#include "engine/table.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Rights of a page; OTHER: memory that does not belong to this engine. */
enum rights { OTHER, ABSENT, READABLE, WRITABLE };

#define PAGE_SHIFT 12
#define PAGE ((size_t)1 << PAGE_SHIFT)
#define ADDRESS_BITS 47
#define GARBAGE 0x5a

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *rights; /* for each page of the address space */

static uint8_t *rights_of(const void *addr)
{
	return &rights[(uintptr_t)addr >> PAGE_SHIFT];
}

static void set_rights(const char *range, size_t len, enum rights value)
{
	memset(rights_of(range), (int)value, (len + PAGE - 1) >> PAGE_SHIFT);
}

/* ---- Accesses of the program ---- */

static void umfault_simulated(void *addr, bool write)
{
	struct fault fault = { .addr = addr, .write = write };

	if (engine_serve_fault(&fault) == FAULT_SERVED)
		return;
	fprintf(stderr, "a fault at %p is not served: error %d\n", addr, fault.error);
	exit(1);
}

static bool is_mapped(const char *addr)
{
	bool mapped;

	if (!rights)
		return false;
	pthread_mutex_lock(&lock);
	mapped = *rights_of(addr) != OTHER;
	pthread_mutex_unlock(&lock);
	return mapped;
}

/* Copies bytes of one page if the thread may access the page. */
static bool try_copy(char *to, const char *from, size_t len, const char *page, enum rights needed)
{
	bool allowed;

	pthread_mutex_lock(&lock);
	allowed = *rights_of(page) >= needed;
	if (allowed)
		memcpy(to, from, len);
	pthread_mutex_unlock(&lock);
	return allowed;
}

/* Copies bytes; `mapped` is the one of `to` and `from` that is in a mapping. */
static void copy_by_pages(char *to, const char *from, size_t len, char *mapped, bool write)
{
	if (!is_mapped(mapped)) {
		memcpy(to, from, len);
		return;
	}
	for (size_t at = 0, n; at < len; at += n) {
		size_t room = PAGE - ((uintptr_t)mapped + at) % PAGE;

		n = len - at < room ? len - at : room;
		while (!try_copy(to + at, from + at, n, mapped + at, write ? WRITABLE : READABLE))
			umfault_simulated(mapped + at, write);
	}
}

void access_load(void *buf, const void *from, size_t len)
{
	copy_by_pages(buf, from, len, (char *)from, false);
}

void access_store(void *to, const void *buf, size_t len)
{
	copy_by_pages(to, buf, len, to, true);
}

/* ---- The engine ---- */

static int start(const struct engine_wish *wish)
{
	void *table;

	(void)wish;
	if (rights)
		return 0;
	table = mmap(NULL, (size_t)1 << (ADDRESS_BITS - PAGE_SHIFT), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (table == MAP_FAILED)
		return -errno;
	rights = table;
	return 0;
}

static int prepare_range(const struct engine *e, char *range, size_t len, bool writable)
{
	(void)e, (void)writable;
	if (mprotect(range, len, PROT_READ | PROT_WRITE) < 0)
		return -errno;
	pthread_mutex_lock(&lock);
	set_rights(range, len, ABSENT);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int map_frame(const struct engine *e, char *range, char *pool, size_t len, bool was_writable,
		     bool writable)
{
	(void)e, (void)was_writable;
	pthread_mutex_lock(&lock);
	memcpy(range, pool, len);
	memset(pool, GARBAGE, len);
	set_rights(range, len, writable ? WRITABLE : READABLE);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int protect_range(const struct engine *e, char *range, size_t len, bool writable)
{
	(void)e;
	pthread_mutex_lock(&lock);
	set_rights(range, len, writable ? WRITABLE : READABLE);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int unmap_frame(const struct engine *e, char *range, char *pool, size_t len, bool writable,
		       bool exposed)
{
	(void)e, (void)writable, (void)exposed;
	pthread_mutex_lock(&lock);
	memcpy(pool, range, len);
	memset(range, GARBAGE, len);
	set_rights(range, len, ABSENT);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int discard_place(char *range, size_t len)
{
	pthread_mutex_lock(&lock);
	for (size_t at = 0; at < len; at += PAGE) {
		if (*rights_of(range + at) != ABSENT)
			memset(range + at, GARBAGE, PAGE);
	}
	set_rights(range, len, ABSENT);
	pthread_mutex_unlock(&lock);
	return 0;
}

static const struct frame_type frames = { 0 };

const struct engine engine_simulated = {
	.name = "simulated", .number = UMMAP_ENGINE_SIMULATED, .needs = "nothing",
	.frames = &frames, .start = start, .prepare = prepare_range, .map = map_frame,
	.protect = protect_range, .unmap = unmap_frame, .discard = discard_place,
};
