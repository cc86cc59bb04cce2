/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-object-mpi.h - objects that all ranks of MPI put and get together; see ummap-object-mpi(7). In libummap-object-openmpi and
 * libummap-object-mpich, beside libummap-object.
 *
 * Calls are collective over comm, and return 0, or -1 with errno set, at all ranks alike; umobject_errormsg() has the sentence, with
 * the rank that it is of. A block is a part of an array: count[d] elements of dimension d, from start[d] on, in row-major order at
 * data. A rank whose block has no elements (a 0 in count, or count NULL) gives nothing, and takes nothing.
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
 * Makes an array the newest version of name, of which each rank has a block: all elements are in some block, and none in two. All ranks
 * give the same name and shape, and an open container that is the same. Durable when it returns 0; before, and where it fails, nobody
 * sees anything of it. Chunks that lie in the blocks of several ranks are brought together by messages. Errors: EINVAL (blocks, shape,
 * or what differs between ranks), and those of umobject_begin, umobject_put_chunk and umobject_commit.
 */
int umobject_put_all(MPI_Comm comm, umobject_container *container, const char *name, const struct umobject_shape *shape,
		     const uint64_t *start, const uint64_t *count, const void *data);

/*
 * The same in steps: between the second and the third, rank 0 may call umobject_put_attribute. A put that has failed, in any of them,
 * has ended at all ranks. Commit: flags and version as umobject_commit has them.
 */
int umobject_begin_all(MPI_Comm comm, umobject_container *container, const char *name, const struct umobject_shape *shape,
		       umobject_put **put);
int umobject_put_blocks(MPI_Comm comm, umobject_put *put, const struct umobject_shape *shape, const uint64_t *start, const uint64_t *count,
			const void *data);
int umobject_commit_all(MPI_Comm comm, umobject_put *put, unsigned flags, uint64_t *version);

/* Reads each rank's block of one version of name, the same at all ranks; version 0: the newest. Blocks may overlap. Errors: those of
 * umobject_hold and umobject_read. */
int umobject_get_all(MPI_Comm comm, umobject_container *container, const char *name, uint64_t version, const uint64_t *start,
		     const uint64_t *count, void *data);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
