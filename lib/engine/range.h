/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses for mapped ranges. */
#ifndef RANGE_H
#define RANGE_H

#include "engine/table.h"

/* writable: the program may store to the mapping. */

/* Reserves addresses where every access faults, with whole reserved pages before and after them.
 * Returns 0, or -errno with a sentence. */
int engine_attach(const struct engine *e, size_t len, size_t seg_size, size_t before, size_t after,
		  bool writable, char **range);
/* Makes a range longer. Returns false if other memory follows it. */
bool engine_extend(const struct engine *e, char *range, size_t len, size_t more, bool writable);
/* Makes every access fault again in a range where other memory was mapped. Returns 0, or
 * -errno. */
int engine_reset(const struct engine *e, char *range, size_t len, bool writable);
/* Frees a range. A thread that waits for a segment there then faults outside of all mappings. */
void engine_detach(const struct engine *e, char *range, size_t len);
/* Frees a range like engine_detach, and atomically moves the memory at `with` there. Returns 0, or
 * -errno if the memory has not moved. */
int engine_replace(const struct engine *e, char *range, size_t len, void *with);
/* Between these two calls no mapped range is created or extended, so that addresses which are free
 * for a moment stay free. The caller must not wait for a thread that does so. */
void engine_hold_addresses(void);
void engine_release_addresses(void);
/* Replaces the memory at these addresses by reserved addresses without rights. Returns 0 or
 * -errno. */
int engine_empty(char *range, size_t len);
/* Sets the message: `what` begins it; the refused system call (sys_first_failure) and a remedy
 * follow. Returns -errno. */
int engine_fail(const struct engine *e, const char *what, int err);
/* In a forked child: no addresses are being searched. */
void engine_forget_addresses(void);

#endif
