/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The superblock of an HDF5 file, version 3. In each commit it must be that of a closed file: HDF5
 * refuses a file whose superblock says that a program writes it, and reads no byte behind the end
 * that the superblock gives. Both would be wrong after a crash of a program that writes as a single
 * writer with multiple readers (SWMR).
 */
#ifndef HDF5_SUPERBLOCK_H
#define HDF5_SUPERBLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the superblock at an address of a mapping says that a program writes the file as SWMR.
 * eof: end of the file, in bytes from the superblock on. */
bool hdf5_superblock_is_swmr(const char *at, uint64_t eof);
/* Clears the marks of writers, and raises the end of the file to `end` if `raises`. Other versions
 * and damaged superblocks stay unchanged. Returns 0, or -1 with errno set. */
int hdf5_superblock_settle(char *at, uint64_t eof, uint64_t end, bool raises);

#endif
