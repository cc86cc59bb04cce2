/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reserve is a range in which every second page is readable, so that each page and each gap is
 * a VMA. One mprotect(2) of the range merges them into one VMA and frees the others. Without free
 * VMAs, no segment can be mapped or unmapped: mremap(2) needs six. Lock: `lock`, a leaf.
 */
#include "base/spare.h"

#include "base/sys.h"

#include <sys/mman.h>

/* Readable pages of a full reserve. Each page makes two VMAs. */
#define MAX_PAGES 64
/* Pages that spare_refill takes and leaves free again if there are not enough VMAs. */
#define PAGES_LEFT_FREE 16

static _Atomic uint32_t lock;
static char *range;         /* address of the reserve; NULL: none yet */
static unsigned kept;       /* number of readable pages, from the first one on */
static _Atomic bool needed; /* the reserve was released */

static char *page_at(unsigned k)
{
	return range + (2 * k + 1) * sys_page();
}

/* Reduces the readable pages to n, which splits no VMA. The caller holds the lock. */
static bool reduce_to_locked(unsigned n)
{
	if (n < kept && mprotect(page_at(n), (size_t)(page_at(kept - 1) - page_at(n)) + sys_page(),
				 PROT_NONE) < 0)
		return false;
	kept = n;
	return true;
}

void spare_refill(void)
{
	unsigned before, more;

	futex_lock(&lock);
	if (!range)
		range = sys_reserve((2 * MAX_PAGES + 1) * sys_page(), 0);
	before = kept;
	while (range && kept < MAX_PAGES && mprotect(page_at(kept), sys_page(), PROT_READ) == 0)
		kept++;
	more = kept - before;
	if (kept < MAX_PAGES)
		reduce_to_locked(kept - (more < PAGES_LEFT_FREE ? more : PAGES_LEFT_FREE));
	futex_unlock(&lock);
}

bool spare_release(void)
{
	bool released;

	futex_lock(&lock);
	released = kept > 0 && reduce_to_locked(0);
	futex_unlock(&lock);
	if (released)
		needed = true;
	return released;
}

bool spare_was_needed(void)
{
	return needed && atomic_exchange(&needed, false);
}

void spare_forget(void)
{
	lock = 0;
}
