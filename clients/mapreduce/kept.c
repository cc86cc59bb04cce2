/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/kept.h"

#include "mapreduce/infile.h"

#include <stdlib.h>
#include <sys/resource.h>

static rlim_t most(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 8 < KEPT_MOST ? limit.rlim_cur / 8 : KEPT_MOST;
}

/* Without memory for more, the file is opened anew as those behind the last. */
static bool has_room(struct kept *k)
{
	unsigned room = 2 * k->room + 8;
	struct infile *files;

	if (k->count >= most())
		return false;
	if (k->count < k->room)
		return true;
	files = realloc(k->files, room * sizeof(*files));
	if (!files)
		return false;
	k->files = files;
	k->room = room;
	return true;
}

void kept_put(struct kept *k, struct infile *s)
{
	if (s->way && s->way->stays && has_room(k))
		k->files[k->count++] = *s;
	else
		infile_close(s);
	*s = (struct infile){ 0 };
}

bool kept_take(struct kept *k, uint64_t number, struct infile *s)
{
	for (unsigned i = 0; i < k->count; i++) {
		if (k->files[i].number != number)
			continue;
		*s = k->files[i];
		k->files[i] = k->files[--k->count];
		return true;
	}
	return false;
}

void kept_close(struct kept *k)
{
	while (k->count > 0)
		infile_close(&k->files[--k->count]);
	free(k->files);
	*k = (struct kept){ 0 };
}
