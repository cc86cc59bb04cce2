/* SPDX-License-Identifier: BSD-3-Clause */
/* The identity of a file's bytes is the same in all processes of a machine, whatever the file's
 * name. */
#include "window/extent.h"

#include "common/process.h"

#include <sys/stat.h>

void extent_file(struct extent *extent, int fd, uint64_t from, size_t size)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || size == 0)
		return;
	extent->machine = process_machine();
	extent->dev = S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev;
	extent->ino = S_ISBLK(st.st_mode) ? 0 : st.st_ino;
	extent->from = from;
	extent->to = from + size;
}

bool extent_overlaps(const struct extent *a, const struct extent *b)
{
	return a->machine == b->machine && a->dev == b->dev && a->ino == b->ino &&
	       a->from < b->to && b->from < a->to;
}
