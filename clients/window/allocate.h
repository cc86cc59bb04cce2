/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows of window memory, for the layer's own features. */
#ifndef WINDOW_ALLOCATE_H
#define WINDOW_ALLOCATE_H

#include "window/window.h"

/*
 * Collective: makes a window of memory that each rank has opened, or has failed to open (NULL, with
 * an error). The memory still belongs to the caller, who closes it after MPI_Win_free, or after an
 * error. Returns NULL with an error at all ranks if any rank has one.
 */
struct window *window_over(struct region *region, MPI_Aint unit, MPI_Comm comm, struct error *e);

#endif
