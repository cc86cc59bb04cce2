/* SPDX-License-Identifier: BSD-3-Clause */
/* prog_cachehead - the head of a cache under MPI-IO: where it cannot be written, again and again, what was durable before stays. */
#include "common.h"

#include <sys/resource.h>

#include "common/header.c"
#include "iocache/head.c"

/* No file grows beyond that. */
static void limit(rlim_t bytes)
{
	struct rlimit l;

	check(getrlimit(RLIMIT_FSIZE, &l) == 0);
	l.rlim_cur = bytes;
	check(setrlimit(RLIMIT_FSIZE, &l) == 0);
}

int main(void)
{
	struct head made = { .spread = { .nodes = 1, .stripe = 4096 }, .state = HEAD_OPEN, .path = "/a/file" }, got;
	struct head_file *file;
	char path[400];

	signal(SIGXFSZ, SIG_IGN);
	snprintf(path, sizeof(path), "%s/head", temp_dir());
	check(head_open(path, &made, &file) == 0);
	for (uint64_t end = 1; end < 20; end++) {
		file->head.end = end;
		check(head_write(file) == 0);
		check(head_read(path, &got) == 0 && got.end == end);
		file->head.end = 1000;
		/* The second slot lies behind this, the first one is cut off by that. */
		limit(HEADER_SLOT);
		for (int i = 0; i < 3; i++)
			head_write(file);
		limit(100);
		for (int i = 0; i < 3; i++)
			check(head_write(file) < 0);
		limit(RLIM_INFINITY);
		check(head_read(path, &got) == 0, "no slot is whole");
		check(got.end == end || got.end == 1000, "%" PRIu64 ", not %" PRIu64, got.end, end);
	}
	check(head_write(file) == 0 && head_read(path, &got) == 0 && got.end == 1000);
	head_close(file);
	return 0;
}
