/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The chain of features. The last function calls not PMPI_X but the next MPI_X that the dynamic
 * linker finds. So a tool behind this library sees the calls that go on to MPI, and a tool in
 * front of it that passes on its calls by dlsym(RTLD_NEXT) sees all calls of the program. (A tool
 * in front that calls PMPI_X bypasses the library.) No lock: nothing changes once the library is
 * loaded.
 */
#include "pmpi/pmpi.h"

#include <dlfcn.h>
#include <string.h>

typedef void (*function)(void);

#define CALLS (sizeof(struct pmpi_calls) / sizeof(function))

_Thread_local const void *pmpi_caller;

static struct pmpi_feature *top;

static function get_call(const struct pmpi_calls *calls, size_t i)
{
	function f;

	memcpy(&f, (const char *)calls + i * sizeof(f), sizeof(f));
	return f;
}

static void set_call(struct pmpi_calls *calls, size_t i, function f)
{
	memcpy((char *)calls + i * sizeof(f), &f, sizeof(f));
}

/* Sets call i of f and of the features below. Returns the function that f or they have for it. */
static function link_call(struct pmpi_feature *f, size_t i)
{
	function next;

	if (!f)
		return get_call(&pmpi_mpi, i);
	next = link_call(f->below, i);
	set_call(&f->next, i, next);
	return get_call(&f->take, i) ? get_call(&f->take, i) : next;
}

void pmpi_register(struct pmpi_feature *f)
{
	struct pmpi_feature **at = &top;

	while (*at && (*at)->place < f->place)
		at = &(*at)->below;
	f->below = *at;
	*at = f;
	for (size_t i = 0; i < CALLS; i++)
		set_call(&pmpi_first, i, link_call(top, i));
}

void pmpi_find_next(void *functions, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		void *found = dlsym(RTLD_NEXT, names[i]);

		if (found)
			memcpy((char *)functions + i * sizeof(found), &found, sizeof(found));
	}
}
