/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-object-mpi.h - objects that all ranks of an MPI program put and get together; see
 * ummap-object-mpi(7). The calls are in libummap-object-openmpi and libummap-object-mpich, which
 * need libummap-object.
 *
 * Calls are collective over comm. They return 0, or -1 with errno set, the same at all ranks;
 * umobject_errormsg() returns the message, with the rank that has failed. A block is a part of an
 * array: count[d] elements of dimension d, from start[d] on, in row-major order at data. A rank has
 * an empty block if count is NULL or contains a 0.
 */
#ifndef UMMAP_OBJECT_MPI_H
#define UMMAP_OBJECT_MPI_H

#include <mpi.h>
#include <ummap-object.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * Makes a distributed array the newest version of name. Each element must be in the block of
 * exactly one rank. All ranks give the same name and shape, and have opened the same container. The
 * version is durable when the call returns 0; before that, and on error, no part of it is visible.
 * The parts of a chunk that lies in the blocks of several ranks are sent to one of them. Errors:
 * EINVAL (blocks, shape, or arguments that differ between ranks), and those of umobject_begin,
 * umobject_put_chunk and umobject_commit.
 */
int umobject_put_all(MPI_Comm comm, umobject_container *container, const char *name,
		     const struct umobject_shape *shape, const uint64_t *start,
		     const uint64_t *count, const void *data);

/*
 * Make a distributed array the newest version of name in three steps, each called once, in this
 * order. Between the second and the third step, rank 0 may call umobject_put_attribute. If a step
 * fails, the put has ended at all ranks. flags and version are those of umobject_commit.
 */
int umobject_begin_all(MPI_Comm comm, umobject_container *container, const char *name,
		       const struct umobject_shape *shape, umobject_put **put);
int umobject_put_blocks(MPI_Comm comm, umobject_put *put, const struct umobject_shape *shape,
			const uint64_t *start, const uint64_t *count, const void *data);
int umobject_commit_all(MPI_Comm comm, umobject_put *put, unsigned flags, uint64_t *version);

/* Reads the block of each rank from one version of name, the same at all ranks; version 0: the
 * newest. Blocks may overlap. Errors: those of umobject_hold and umobject_read. */
int umobject_get_all(MPI_Comm comm, umobject_container *container, const char *name,
		     uint64_t version, const uint64_t *start, const uint64_t *count, void *data);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
