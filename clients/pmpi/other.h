/* SPDX-License-Identifier: BSD-3-Clause */
/* The MPI that this library is for, and the one that a program may use instead. */
#ifndef OTHER_H
#define OTHER_H

extern const char own_mpi[];
extern const char other_mpi[];
extern const char other_library[]; /* how the name of the other MPI's shared library begins */
extern const char other_remedy[];

#endif
