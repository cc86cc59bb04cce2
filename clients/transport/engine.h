/* SPDX-License-Identifier: BSD-3-Clause */
/* Which engine serves the faults of windows, and what that asks of the MPI's transports. */
#ifndef ENGINE_H
#define ENGINE_H

#include "pmpi/error.h"

#include <mpi.h>
#include <stdbool.h>
#include <ummap.h>

enum engine { ENGINE_AUTO, ENGINE_SEGV, ENGINE_UFFD, ENGINE_KERNEL, ENGINE_SIGBUS };

/* The engine that will be in use where this one is wanted; makes attr say so. `reached`: other ranks of the machine are to
 * reach the memory by themselves, where they can. */
enum engine engine_choose(enum engine wanted, bool reached, struct ummap_attr *attr);
/* Whether that will most likely be userfaultfd. */
bool engine_expects_uffd(void);
/* Whether the kernel gets EFAULT where a segment is absent. */
static inline bool engine_hides_from_kernel(enum engine engine)
{
	return engine == ENGINE_SEGV || engine == ENGINE_SIGBUS;
}

/* Sets a variable of the environment that the user has left open. */
void engine_default(const char *name, const char *value);

/* Of each MPI its own (transport_*.c). Before MPI_Init: the transports that can reach windows, where the user has not
 * chosen; `threads` is the level of MPI_Init_thread. */
void transport_prepare(int threads);
/* Whether the job has several ranks, all of them on this machine, as its launcher says. */
bool transport_is_local(void);
/* Whether those in use can. */
void transport_check(enum engine engine, struct error *e);
/* Collective where the job is on several machines: whether they reach memory that is a mapping, or a part of one. */
void transport_check_mapped(const void *base, MPI_Comm comm, struct error *e);
/* Whether a collective write of MPI-IO's ends at all ranks, and says so, when storage fails it at one. */
bool transport_writes_together(void);
/* Whether accumulates with operations other than MPI_SUM and MPI_REPLACE are right and atomic in windows of the MPI. */
bool transport_accumulates_right(void);
/* Whether they reach a window that begins there. */
void transport_check_base(const void *base, struct error *e);

#endif
