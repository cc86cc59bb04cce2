/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_cachehead - the header of a part of an MPI-IO cache: writes that fail repeatedly leave the
 * header that was durable before.
 */
#include "common.h"

#include <sys/resource.h>

#include "common/header.c"
#include "iocache/head.c"

/* Limits the size of files. */
static void limit_file_size(rlim_t bytes)
{
	struct rlimit l;

	check(getrlimit(RLIMIT_FSIZE, &l) == 0);
	l.rlim_cur = bytes;
	check(setrlimit(RLIMIT_FSIZE, &l) == 0);
}

int main(void)
{
	struct head made = { .spread = { .nodes = 1, .stripe = 4096 },
			     .state = HEAD_OPEN,
			     .path = "/a/file" },
		    got;
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
		/*
		 * The first limit excludes the second slot; the second limit truncates the first.
		 */
		limit_file_size(HEADER_SLOT);
		for (int i = 0; i < 3; i++)
			head_write(file);
		limit_file_size(100);
		for (int i = 0; i < 3; i++)
			check(head_write(file) < 0);
		limit_file_size(RLIM_INFINITY);
		check(head_read(path, &got) == 0, "no slot is whole");
		check(got.end == end || got.end == 1000, "%" PRIu64 ", not %" PRIu64, got.end, end);
	}
	check(head_write(file) == 0 && head_read(path, &got) == 0 && got.end == 1000);
	head_close(file);
	return 0;
}
