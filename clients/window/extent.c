/* SPDX-License-Identifier: BSD-3-Clause */
/* The identity of a file's bytes is the same in all processes of a machine, whatever the file's
 * name. */
#include "window/extent.h"

#include <stdio.h>
#include <sys/stat.h>

/* A number that is the same in all processes of a machine, and differs between machines. */
static uint64_t machine_id(void)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	unsigned a = 0, b = 0, c = 0;

	if (f) {
		if (fscanf(f, "%8x-%4x-%4x", &a, &b, &c) != 3)
			a = b = c = 0;
		fclose(f);
	}
	return (uint64_t)a << 32 | (uint64_t)b << 16 | c;
}

void extent_file(struct extent *extent, int fd, uint64_t from, size_t size)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || size == 0)
		return;
	extent->machine = machine_id();
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
