/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/others.h"

#include "mapreduce/error.h"
#include "mapreduce/lock.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Whose file it is, by its name; -1: nobody's. */
static int rank_of_file(const char *name)
{
	int rank, end = 0;

	if (sscanf(name, "ummr.lock.%d%n", &rank, &end) < 1 && sscanf(name, "ummr.pairs.%d%n", &rank, &end) < 1 &&
	    sscanf(name, "ummr.result.%*d.%d%n", &rank, &end) < 1 && sscanf(name, "ummr.state.%*d.%d%n", &rank, &end) < 1)
		return -1;
	return name[end] == 0 ? rank : -1;
}

/* The largest such rank below one; -1: there is none. */
static int last_rank(DIR *d, int below)
{
	const struct dirent *e;
	int last = -1;

	rewinddir(d);
	while ((e = readdir(d))) {
		int rank = rank_of_file(e->d_name);

		if (rank > last && rank < below)
			last = rank;
	}
	return last;
}

static int clear(const struct state *s, const char *folder, int rank)
{
	struct state other = { .files = { -1, -1 }, .folder_fd = -1 };
	struct lock lock = { NULL, -1 };
	int result = lock_take(&lock, folder, rank);

	if (result < 0)
		return -1;
	result = state_open(&other, s->facts, s->streams, 0);
	if (result == 0)
		result = state_find(&other, folder, rank, s->writes);
	state_close(&other, result == 0);
	lock_release(&lock);
	return result;
}

int others_clear(const struct state *s, const char *folder, int ranks)
{
	DIR *d = opendir(folder);
	int rank = INT_MAX, result = 0;

	if (!d)
		return fail(errno, "cannot use the storage folder '%s': %s", folder,
			    strerror(errno));
	while (result == 0 && (rank = last_rank(d, rank)) >= ranks)
		result = clear(s, folder, rank);
	closedir(d);
	return result;
}
