/* SPDX-License-Identifier: BSD-3-Clause */
/* Patterns of accesses to the pages of a file, and the time that they take with fixed transfer
 * sizes and with the library's adaptation (lib/paging/residency/transfer_size.h). */
#ifndef BENCH_TRANSFERS_H
#define BENCH_TRANSFERS_H

#include <stddef.h>
#include <stdint.h>

extern const char *const transfer_patterns[]; /* names of patterns, up to NULL */

/* Returns the pages that a pattern accesses one after the other in a file of `pages` pages; *n:
 * their number. */
uint32_t *make_pattern(const char *pattern, uint32_t pages, size_t *n);

/* Result of a simulation. */
struct transfers {
	uint64_t loads, pages;     /* read requests, and pages that they read */
	uint64_t returns;          /* faults without I/O */
	double seconds;            /* time of all these by the cost model */
};

/* Plays n uses of pages with transfers of 2^level pages, and memory for `room` pages. */
struct transfers play_fixed(const uint32_t *uses, size_t n, uint32_t pages, uint32_t room,
			    unsigned level);
/* Plays the uses with the adaptation. */
struct transfers play_adaptive(const uint32_t *uses, size_t n, uint32_t pages,
			       uint32_t room);

#endif
