/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private memory that the program maps is an allocation of whole pages in the heap. A bit for each
 * page records that the program has not unmapped it; the allocation is freed with its last page.
 * heap_lock protects the bits.
 */
#include "umrun/heap.h"

#include "umrun/config.h"
#include "umrun/next_calls.h"

#include <ummap.h>

/* Least bytes of mapped memory that the heap takes, such as an arena of an interpreter. */
#define MIN_MAPPED_BYTES ((size_t)256 << 10)

static uint64_t *begins;       /* a bit for each first page of mapped memory */
static uint64_t *mapped;       /* a bit for each page that is still mapped */
static const char *bits_base;  /* the heap that has these bits */
static _Atomic unsigned long count;

unsigned long mapped_count(void)
{
	return count;
}

/* ---- Bits ---- */

static bool make_bits_locked(void)
{
	size_t len = own_heap.size / page_bytes() / 8 + 8;
	char *bits;

	if (bits_base == own_heap.base)
		return true;
	bits = kernel_mmap(NULL, 2 * len, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (bits == MAP_FAILED)
		return false;
	begins = (uint64_t *)(void *)bits;
	mapped = (uint64_t *)(void *)(bits + len / 8 * 8);
	bits_base = own_heap.base;
	return true;
}

static bool has_bit(const uint64_t *bits, size_t page)
{
	return bits[page / 64] >> page % 64 & 1;
}

static void set_bits(uint64_t *bits, size_t first, size_t last, bool value)
{
	for (size_t page = first; page < last; page++) {
		if (value)
			bits[page / 64] |= 1ull << page % 64;
		else
			bits[page / 64] &= ~(1ull << page % 64);
	}
}

static bool any_set(const uint64_t *bits, size_t first, size_t last)
{
	for (size_t page = first; page < last;) {
		if (page % 64 == 0 && !bits[page / 64])
			page += 64;
		else if (has_bit(bits, page++))
			return true;
	}
	return false;
}

static char *address_of(size_t page)
{
	return own_heap.base + page * page_bytes();
}

static size_t page_of(const void *addr)
{
	return (size_t)((const char *)addr - own_heap.base) / page_bytes();
}

/* ---- Memory ---- */

size_t mapped_left(const void *addr)
{
	size_t at = (uintptr_t)addr - (uintptr_t)own_heap.base;

	return at < own_heap.size ? own_heap.size - at : 0;
}

/* Discards a range: it reads as zeros afterwards. */
static void discard_range(char *from, size_t len)
{
	size_t seg = config.segment, at = (size_t)(from - own_heap.base), end = at + len;
	size_t first = (at + seg - 1) / seg * seg, last = end / seg * seg;

	/* Memory that is locked cannot be discarded. */
	if (first >= last || umadvise(own_heap.base + first, last - first, UMMAP_ADV_DISCARD) < 0) {
		memset(from, 0, len);
		return;
	}
	memset(from, 0, first - at);
	memset(own_heap.base + last, 0, end - last);
}

static bool note_mapped(const char *memory, size_t len)
{
	size_t first = page_of(memory);
	bool has_bits;

	pthread_mutex_lock(&heap_lock);
	has_bits = make_bits_locked();
	if (has_bits) {
		set_bits(begins, first, first + 1, true);
		set_bits(mapped, first, first + len / page_bytes(), true);
	}
	pthread_mutex_unlock(&heap_lock);
	return has_bits;
}

void *mapped_map(void *addr, size_t len, int prot, int flags)
{
	bool has_segments = len >= 2 * config.segment;
	char *memory;

	if (addr || len < MIN_MAPPED_BYTES || len > SIZE_MAX / 2 ||
	    prot != (PROT_READ | PROT_WRITE) || !heap_ready() ||
	    (flags & ~MAP_NORESERVE) != (MAP_PRIVATE | MAP_ANONYMOUS))
		return NULL;
	len = round_to_pages(len);
	/* The first function returns whole segments, and writes no zeros. */
	memory = has_segments ? heap_alloc_zeros(1, len) : heap_alloc_aligned(page_bytes(), len);
	if (!memory)
		return MAP_FAILED;
	if (!note_mapped(memory, len)) {
		heap_free(memory);
		return NULL;
	}
	if (!has_segments)
		mapped_advise(memory, len, MADV_DONTNEED);
	count++;
	return memory;
}

/* The page behind the allocation that begins at a page. */
static size_t end_of(size_t first)
{
	return first + heap_usable_size(address_of(first)) / page_bytes();
}

/* The first page of the allocation that contains the page, or the page itself if it is free. */
static size_t find_first_page(size_t page)
{
	size_t at = page;

	while (at > 0 && !has_bit(begins, at))
		at -= at % 64 == 63 && !begins[at / 64] ? 63 : 1;
	return has_bit(begins, at) && end_of(at) > page ? at : page;
}

/* Unmaps the pages [from, last) of the allocation that begins at page `first`. Returns the page
 * behind the allocation. */
static size_t unmap_pages_locked(size_t first, size_t from, size_t last)
{
	size_t end = end_of(first);

	last = last < end ? last : end;
	set_bits(mapped, from, last, false);
	if (any_set(mapped, first, end)) {
		mapped_advise(address_of(from), (last - from) * page_bytes(), MADV_DONTNEED);
	} else {
		set_bits(begins, first, first + 1, false);
		heap_free(address_of(first));
	}
	return end;
}

int mapped_unmap(void *addr, size_t len)
{
	size_t page = page_of(addr), last = page + round_to_pages(len) / page_bytes(), first;

	if ((uintptr_t)addr % page_bytes() || len == 0 || len > mapped_left(addr)) {
		errno = EINVAL;
		return -1;
	}
	pthread_mutex_lock(&heap_lock);
	for (first = bits_base == own_heap.base ? find_first_page(page) : last; first < last;
	     first = page)
		page = has_bit(begins, first) ? unmap_pages_locked(first, page, last) : page + 1;
	pthread_mutex_unlock(&heap_lock);
	return 0;
}

void *mapped_remap(void *old, size_t old_len, size_t len, int flags)
{
	size_t whole = round_to_pages(len);
	void *memory;

	if (len == old_len && !(flags & MREMAP_FIXED))
		return old;
	if (len < old_len && !(flags & MREMAP_FIXED))
		return whole >= old_len || mapped_unmap((char *)old + whole, old_len - whole) == 0 ?
		       old : MAP_FAILED;
	memory = flags == MREMAP_MAYMOVE && old_len ?
		 mapped_map(NULL, len < MIN_MAPPED_BYTES ? MIN_MAPPED_BYTES : len,
			    PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS) : NULL;
	if (!memory || memory == MAP_FAILED) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	memcpy(memory, old, old_len);
	mapped_unmap(old, old_len);
	return memory;
}

int mapped_advise(void *addr, size_t len, int advice)
{
	if (advice == MADV_DONTNEED && len <= mapped_left(addr)) {
		is_inside = true;
		discard_range(addr, round_to_pages(len));
		is_inside = false;
	}
	return 0;
}
