/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The C library's calls for memory mappings are replaced, as communication libraries replace them
 * to learn which memory is unmapped. The replacement of mremap(3) drops the fifth argument, as UCX
 * does. The library must not call the replacements for its own memory, but must call them for
 * memory of the program before it is unmapped.
 */
#include "common/memory_calls.h"
#include "common.h"

#define SEG (16 * KIB)
#define SIZE (64 * SEG)
#define BUDGET (SIZE / 8)
#define OLD 1

#define HOOK __attribute__((visibility("default")))

static _Atomic bool watches;
static const uint8_t *own[2];         /* ranges of SIZE bytes that the program has, or NULL */
static _Atomic unsigned heard_of[2];  /* number of calls about each of these ranges */
static _Atomic unsigned others;       /* number of calls about other memory */

/* Signal handlers call this function, too. */
static void note(const void *at, size_t len)
{
	bool known = false;

	if (!watches)
		return;
	for (unsigned i = 0; i < 2; i++) {
		if (at == own[i] && len == SIZE) {
			heard_of[i]++;
			known = true;
		}
	}
	others += !known;
}

HOOK void *mremap(void *old, size_t old_len, size_t len, int flags, ...)
{
	check(!(flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)), "mremap(3) with a fifth argument");
	note(old, old_len);
	return (void *)syscall(SYS_mremap, old, old_len, len, flags, NULL);
}

HOOK int munmap(void *at, size_t len)
{
	note(at, len);
	return (int)syscall(SYS_munmap, at, len);
}

HOOK int madvise(void *at, size_t len, int advice)
{
	note(at, len);
	return (int)syscall(SYS_madvise, at, len, advice);
}

HOOK void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	if (flags & MAP_FIXED)
		note(at, len);
	return (void *)syscall(SYS_mmap, at, len, prot, flags, fd, off);
}

static void watch(const void *first, const void *second)
{
	own[0] = first;
	own[1] = second;
	watches = true;
}

static uint8_t *map_old(void)
{
	int fd = filled_file(SIZE, OLD);
	uint8_t *m = map_file(fd, SIZE, SEG, READ_WRITE, 0);

	close(fd);
	return m;
}

/* Loads, changes and evicts more segments than the budget has. */
static void use_mapping(uint8_t *m)
{
	for (int pass = 0; pass < 3; pass++) {
		check_bytes(m, SIZE, 0, OLD);
		for (size_t i = 0; i < SIZE; i += SEG)
			*(volatile uint8_t *)(m + i) = m[i];
		check(umsync(m, pass == 1) == 0);
	}
}

static void hear_of_mappings_only(void *unused)
{
	uint8_t *m;

	(void)unused;
	set_budget(BUDGET);
	m = map_old();
	watch(m, NULL);
	use_mapping(m);
	check(umadvise(m, SIZE, UMMAP_ADV_DONTNEED) == 0 && others == 0 && heard_of[0] == 0,
	      "%u others", others);
	check(umunmap(m, 1) == 0);
	check(others == 0 && heard_of[0] == 1, "%u others, %u of the mapping", others, heard_of[0]);
}

static void hear_of_pages_that_move(void *unused)
{
	uint8_t *m, *pages = mmap(NULL, SIZE, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)unused;
	set_budget(BUDGET);
	m = map_old();
	use_mapping(m);
	check(pages != MAP_FAILED);
	fill(pages, SIZE, 0, OLD + 1);
	watch(m, pages);
	check(umunmap_onto(m, 1, pages) == 0, "%s", umerrormsg());
	check(others == 0 && heard_of[0] > 0 && heard_of[1] > 0, "%u others, %u, %u", others,
	      heard_of[0], heard_of[1]);
	check_bytes(m, SIZE, 0, OLD + 1);
	check(syscall(SYS_msync, pages, SIZE, MS_ASYNC) < 0 && errno == ENOMEM);
}

/* The process leaves the node's registry at exit. Ends of other mappings are not watched. */
static void hear_nothing_at_exit(void *unused)
{
	(void)unused;
	set_group();
	use_mapping(map_old());
	exit(0);
}

int main(void)
{
	check_exits(run_child(hear_of_mappings_only, NULL), 0);
	check_exits(run_child(hear_of_pages_that_move, NULL), 0);
	check_exits(run_child(hear_nothing_at_exit, NULL), 0);
	return 0;
}
