/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A range in which every other page has different rights, so that each page, and each gap, is a VMA of the kernel. One
 * call merges all of them into one VMA, which frees the others. Without free VMAs no segment can be mapped or unmapped:
 * mremap(2) needs six of them. Lock: `lock`, a leaf.
 */
#include "base/spare.h"

#include "base/sys.h"

#include <sys/mman.h>

/* Pages, which are two mappings each; and how many are left where there are not enough. */
#define MOST 64
#define LEFT 16

static _Atomic uint32_t lock;
static char *range;
static unsigned kept;   /* of its pages, from the first on */
static _Atomic bool needed;

static char *place(unsigned k)
{
	return range + (2 * k + 1) * sys_page();
}

/* Under the lock: so many remain. From the first page that is apart to the last, so that no mapping is split for it. */
static bool keep_only(unsigned n)
{
	if (n < kept && mprotect(place(n), (size_t)(place(kept - 1) - place(n)) + sys_page(), PROT_NONE) < 0)
		return false;
	kept = n;
	return true;
}

void spare_keep(void)
{
	unsigned before, more;

	futex_lock(&lock);
	if (!range)
		range = sys_reserve((2 * MOST + 1) * sys_page(), 0);
	before = kept;
	while (range && kept < MOST && mprotect(place(kept), sys_page(), PROT_READ) == 0)
		kept++;
	more = kept - before;
	if (kept < MOST)
		keep_only(kept - (more < LEFT ? more : LEFT));
	futex_unlock(&lock);
}

bool spare_give(void)
{
	bool given;

	futex_lock(&lock);
	given = kept > 0 && keep_only(0);
	futex_unlock(&lock);
	if (given)
		needed = true;
	return given;
}

bool spare_was_needed(void)
{
	return needed && atomic_exchange(&needed, false);
}

void spare_forget(void)
{
	lock = 0;
}
