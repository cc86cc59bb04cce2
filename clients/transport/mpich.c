/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPICH 4, over UCX. It reaches windows by its own copies, whichever transport UCX takes. But where memory of a window is
 * sent or received as a message, a large one has the kernel copy between processes (CMA), and the program ends at
 * EFAULT: so with the engine segv UCX is kept to shared memory, where that is enough.
 */
#include "transport/engine.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RANKS "PMI_SIZE"

static bool all_are_here(void)
{
	const char *all = getenv(RANKS), *here = getenv("MPI_LOCALNRANKS");

	return !all || (here && strcmp(all, here) == 0);
}

bool transport_is_local(void)
{
	const char *all = getenv(RANKS);

	return all && strcmp(all, "1") != 0 && all_are_here();
}

void transport_prepare(int threads)
{
	(void)threads;
	if (!engine_expects_uffd() && all_are_here())
		engine_default("UCX_TLS", "posix,self");
}

void transport_check(enum engine engine, struct error *e)
{
	(void)engine, (void)e;
}

/* MPICH takes UCX's word for where memory begins, which is a multiple of this, and puts to there. */
#define ALIGN 16

void transport_check_base(const void *base, struct error *e)
{
	if ((uintptr_t)base % ALIGN)
		error_set(e, MPI_ERR_SIZE,
			  "cannot use window memory that does not begin at a multiple of %d bytes: "
			  "MPICH 4 cannot access it. Try sizes and offsets that are such "
			  "multiples, or alloc_shared_noncontig",
			  ALIGN);
}

void transport_check_mapped(const void *base, MPI_Comm comm, struct error *e)
{
	(void)base, (void)comm, (void)e;
}

bool transport_accumulates_right(void)
{
	return true;
}

bool transport_writes_together(void)
{
	return true;
}
