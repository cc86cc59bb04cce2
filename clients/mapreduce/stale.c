/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/stale.h"

#include "mapreduce/error.h"
#include "mapreduce/lock.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Returns the rank in the name of a job's file, or -1 for other names. */
static int rank_of_file(const char *name)
{
	static const char *const formats[] = {
		"ummr.lock.%d%n", "ummr.pairs.%d%n", "ummr.result.%*d.%d%n", "ummr.state.%*d.%d%n",
	};
	int rank, end;

	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
		end = 0;
		if (sscanf(name, formats[i], &rank, &end) == 1)
			return name[end] == 0 ? rank : -1;
	}
	return -1;
}

/* Returns the largest rank below `limit` that has files, or -1. */
static int find_last_rank(DIR *d, int limit)
{
	const struct dirent *e;
	int last = -1;

	rewinddir(d);
	while ((e = readdir(d))) {
		int rank = rank_of_file(e->d_name);

		if (rank > last && rank < limit)
			last = rank;
	}
	return last;
}

static int remove_files_of(const struct record *r, const char *folder, int rank)
{
	struct record other = { .files = { -1, -1 }, .folder_fd = -1 };
	struct lock lock = { NULL, -1 };
	int result = lock_take(&lock, folder, rank);

	if (result < 0)
		return -1;
	result = record_open(&other, r->header.facts, r->streams, 0);
	if (result == 0)
		result = record_find(&other, folder, rank, r->is_durable);
	record_close(&other, result == 0);
	lock_release(&lock);
	return result;
}

int stale_remove_files(const struct record *r, const char *folder, int ranks)
{
	DIR *d = opendir(folder);
	int rank = INT_MAX, result = 0;

	if (!d)
		return set_error(errno, "cannot use the storage folder '%s': %s", folder,
				 strerror(errno));
	while (result == 0 && (rank = find_last_rank(d, rank)) >= ranks)
		result = remove_files_of(r, folder, rank);
	closedir(d);
	return result;
}
