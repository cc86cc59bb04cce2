/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations (table.h) that the engines of userfaultfd(2) share, and the rights they need. The
 * data of such an engine is its struct userfaultfd. */
#ifndef PAGED_H
#define PAGED_H

#include "engine/discard.h"
#include "engine/table.h"
#include "engine/userfaultfd.h"

#define PAGED_NEEDS "to let the process use ioctl(2) on userfaultfd, and madvise(2) (a seccomp " \
		    "filter or an emulator may forbid them), or no UMMAP_ENGINE and " \
		    "UMMAP_KERNEL, so that the library chooses the engine"

int paged_prepare(const struct engine *e, char *range, size_t len, bool writable);
int paged_map(const struct engine *e, char *range, char *pool, size_t len, bool was_writable,
	      bool writable);
int paged_copy_in(const struct engine *e, char *range, const char *from, size_t len, bool writable);
/* Whether the kernel can move memory. */
bool paged_moves(const struct engine *e);
int paged_move_in(const struct engine *e, char *range, char *from, size_t len, bool writable);
int paged_move_out(const struct engine *e, char *range, char *to, size_t len, bool writable);
int paged_protect(const struct engine *e, char *range, size_t len, bool writable);
int paged_unmap(const struct engine *e, char *range, char *pool, size_t len, bool writable,
		bool exposed);

#endif
