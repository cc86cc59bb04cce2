/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine of window memory, and the MPI's transports that work with it. */
#ifndef ENGINE_H
#define ENGINE_H

#include "pmpi/error.h"

#include <mpi.h>
#include <stdbool.h>
#include <ummap.h>

enum engine { ENGINE_AUTO, ENGINE_SEGV, ENGINE_UFFD, ENGINE_KERNEL, ENGINE_SIGBUS };

/*
 * Returns the engine to use, and sets it in attr. `reached`: ranks of the machine access each
 * other's memory without MPI, if they can.
 */
enum engine engine_choose(enum engine wanted, bool reached, struct ummap_attr *attr);
/* Guesses whether the engine will be uffd. */
bool engine_expects_uffd(void);
/* Whether the kernel gets EFAULT from absent segments. */
static inline bool engine_hides_from_kernel(enum engine engine)
{
	return engine == ENGINE_SEGV || engine == ENGINE_SIGBUS;
}

/* ---- Defined in openmpi.c and mpich.c ---- */

/*
 * Before MPI_Init: selects transports that access windows, unless the user has. `threads` is the
 * level of MPI_Init_thread.
 */
void transport_prepare(int threads);
/* Whether the launcher says that the job has several ranks, all of them on this machine. */
bool transport_is_local(void);
/* Sets an error if the selected transports cannot access windows of the engine. */
void transport_check(enum engine engine, struct error *e);
/*
 * Collective if the job is on several machines: sets an error if the transports cannot access
 * memory that is in a mapping of the library.
 */
void transport_check_mapped(const void *base, MPI_Comm comm, struct error *e);
/* Whether a collective write of MPI-IO returns an error at all ranks if storage fails at one. */
bool transport_writes_together(void);
/*
 * Whether the MPI makes accumulates with operations other than MPI_SUM and MPI_REPLACE right and
 * atomic.
 */
bool transport_accumulates_right(void);
/* Sets an error if the transports cannot access a window that begins at an address. */
void transport_check_base(const void *base, struct error *e);

#endif
