/* SPDX-License-Identifier: BSD-3-Clause */
/* The MPI that this library is for, and the one that a program may use instead. */
#ifndef OTHER_H
#define OTHER_H

extern const char own_mpi[];       /* name of this library's MPI */
extern const char other_mpi[];     /* name of the other MPI */
extern const char other_library[]; /* first part of the name of its shared library */
extern const char other_remedy[];  /* library to use with it */

#endif
