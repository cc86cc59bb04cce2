/* SPDX-License-Identifier: BSD-3-Clause */
/* Commits of windows at all ranks in the background (ummpi_commit_begin). */
#ifndef MPIIO_COMMIT_H
#define MPIIO_COMMIT_H

struct consistent;

/* Collective over the window's ranks: waits for the checkpoint in flight, if there is one. The next
 * checkpoint needs another number, and the end of the window frees c. The handle keeps the result.
 * c: NULL without storage_alloc_consistent. */
void commit_settle(const struct consistent *c);

#endif
