/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations (engine.h) that the engines of userfaultfd(2) share, and what these need. */
#ifndef PAGED_H
#define PAGED_H

#include "engine/table.h"
#include "engine/userfaultfd.h"

#define PAGED_NEEDS "to let the process use ioctl(2) on userfaultfd, and madvise(2) (a seccomp " \
		    "filter or an emulator may forbid them), or no UMMAP_ENGINE and " \
		    "UMMAP_KERNEL, so that the library chooses the engine"

int paged_adopt(const struct engine *e, char *range, size_t len);
int paged_adopt_pool(const struct engine *e, char *pool, size_t len);
int paged_map(const struct engine *e, char *range, char *pool, size_t len, bool was_writable, bool writable);
int paged_copy_in(const struct engine *e, char *range, const char *from, size_t len, bool writable);
int paged_protect(const struct engine *e, char *range, size_t len, bool writable);
int paged_unmap(const struct engine *e, char *range, char *pool, size_t len, bool writable, bool exposed);
int paged_unmap_last(char *range, char *pool, size_t len);
int paged_discard(char *range, size_t len);
bool paged_is_one(char *at, size_t len);

/*
 * Between these two, frames that the calling thread maps and unmaps may leave copies behind, and places that it discards
 * may keep them, which are freed together at the end; or before it, when such copies have `most` bytes. Until then their
 * segments stay locked, and discarded ones keep their frames. Not nested.
 */
void engine_batch_begin(size_t most);
void engine_batch_end(void);

#endif
