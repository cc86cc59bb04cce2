/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations (table.h) that the engines of userfaultfd(2) share, and the rights they need. */
#ifndef PAGED_H
#define PAGED_H

#include "engine/table.h"
#include "engine/userfaultfd.h"

#define PAGED_NEEDS "to let the process use ioctl(2) on userfaultfd, and madvise(2) (a seccomp " \
		    "filter or an emulator may forbid them), or no UMMAP_ENGINE and " \
		    "UMMAP_KERNEL, so that the library chooses the engine"

int paged_adopt(const struct engine *e, char *range, size_t len);
int paged_adopt_pool(const struct engine *e, char *pool, size_t len);
int paged_map(const struct engine *e, char *range, char *pool, size_t len, bool was_writable,
	      bool writable);
int paged_copy_in(const struct engine *e, char *range, const char *from, size_t len, bool writable);
int paged_protect(const struct engine *e, char *range, size_t len, bool writable);
int paged_unmap(const struct engine *e, char *range, char *pool, size_t len, bool writable,
		bool exposed);
int paged_unmap_last(char *range, char *pool, size_t len);
int paged_discard(char *range, size_t len);
bool paged_is_one(char *at, size_t len);

/*
 * Between these two calls, frames that the calling thread maps and unmaps may leave copies, and
 * places that it discards may keep copies. They are freed together at the end, or earlier when they
 * have `most` bytes. Until then the caller keeps their segments locked, and discarded segments keep
 * their frames. The calls do not nest.
 */
void engine_batch_begin(size_t most);
void engine_batch_end(void);

#endif
