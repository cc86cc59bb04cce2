/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPICH 4 over UCX. It accesses windows by its own copies, whichever transport UCX selects. But for
 * a large message from or to window memory, the kernel copies between processes (CMA), and the
 * program ends at EFAULT. So with the engine segv, UCX is restricted to shared memory, if all ranks
 * are on this machine.
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
		setenv("UCX_TLS", "posix,self", 0);
}

void transport_check(enum engine engine, struct error *e)
{
	(void)engine, (void)e;
}

/* UCX rounds the address of a window to a multiple of this, and MPICH puts data there. */
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
