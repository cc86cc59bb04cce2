/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one place that chooses the engine. Accesses of the kernel's to an absent segment fail where SIGSEGV is what
 * tells of them (EFAULT), so then transports must not have the kernel copy; see transport_*.c.
 */
#include "engine.h"

#include <errno.h>
#include <stdlib.h>

void engine_choose(struct hints *h, struct ummap_attr *attr, struct trouble *t)
{
	(void)attr;
	if (h->engine == HINT_UFFD)
		trouble_set(t, MPI_ERR_INFO_VALUE, "storage_alloc_engine is \"uffd\", which this libummap does not have: "
			    "it must be \"segv\" or \"auto\"");
	h->engine = HINT_SEGV;
}

void engine_default(const char *name, const char *value)
{
	setenv(name, value, 0);
}

int MPI_Init(int *argc, char ***argv)
{
	transport_prepare(MPI_THREAD_SINGLE);
	return PMPI_Init(argc, argv);
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	transport_prepare(required);
	return PMPI_Init_thread(argc, argv, required, provided);
}
