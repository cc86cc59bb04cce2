/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The chain of features. MPI comes last, and what is called is not PMPI_X but the next MPI_X that the dynamic linker knows:
 * a tool that stands behind this library sees what goes on to MPI, and one that stands before it, and passes on its calls
 * by dlsym(RTLD_NEXT), sees all that the program does. (One that stands before it and calls PMPI_X leaves it out.)
 * Nothing here changes once the library is loaded, so there is no lock.
 */
#include "pmpi/pmpi.h"

#include <dlfcn.h>
#include <string.h>

typedef void (*function)(void);

#define CALLS (sizeof(struct pmpi_calls) / sizeof(function))

_Thread_local const void *pmpi_caller;

static struct pmpi_feature *top;

static function get(const struct pmpi_calls *calls, size_t i)
{
	function f;

	memcpy(&f, (const char *)calls + i * sizeof(f), sizeof(f));
	return f;
}

static void put(struct pmpi_calls *calls, size_t i, function f)
{
	memcpy((char *)calls + i * sizeof(f), &f, sizeof(f));
}

/* Returns what a call comes to that has come to f. */
static function link_call(struct pmpi_feature *f, size_t i)
{
	function next;

	if (!f)
		return get(&pmpi_mpi, i);
	next = link_call(f->below, i);
	put(&f->next, i, next);
	return get(&f->take, i) ? get(&f->take, i) : next;
}

void pmpi_register(struct pmpi_feature *f)
{
	struct pmpi_feature **at = &top;

	while (*at && (*at)->place < f->place)
		at = &(*at)->below;
	f->below = *at;
	*at = f;
	for (size_t i = 0; i < CALLS; i++)
		put(&pmpi_first, i, link_call(top, i));
}

void pmpi_find_next(void *functions, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		void *found = dlsym(RTLD_NEXT, names[i]);

		if (found)
			memcpy((char *)functions + i * sizeof(found), &found, sizeof(found));
	}
}
