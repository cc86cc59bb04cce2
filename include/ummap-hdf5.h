/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ummap-hdf5.h - HDF5 files in stores of libummap: a virtual file driver (H5FD) for HDF5 1.10 and
 * newer. With the filter wal+, a crash at any moment leaves the file as it was at the last flush.
 * ummap-hdf5(7) describes the driver.
 */
#ifndef UMMAP_HDF5_H
#define UMMAP_HDF5_H

#include <hdf5.h>
#include <ummap.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * Makes a file access property list open files by libummap.
 *
 * fapl  file access property list
 * uri   URI of the store (ummap_open(3)). If its path is empty, such as in "wal+uring:" or
 *       "wal+uring:?wal.keep=8", the name that H5Fcreate or H5Fopen receives is the path.
 *       Otherwise that name must end in the same component as the path. A name that is a URI itself
 *       replaces `uri`. NULL: "wal+posix:"
 * attr  attributes of the mapping, which are copied; NULL: the defaults. Unlike in ummap_open, the
 *       default segment has 64 KiB, and writes that fail return an error to HDF5
 *       (UMMAP_FULL_SIGBUS). The driver sets the flags UMMAP_CREATE and UMMAP_GROWS itself
 *
 * Returns a negative value on failure, as calls of HDF5 do.
 */
herr_t H5Pset_fapl_ummap(hid_t fapl, const char *uri, const struct ummap_attr *attr);

/* Registers the driver with HDF5, if necessary, and returns its ID; a negative value on failure. */
hid_t H5FD_ummap_init(void);
#define H5FD_UMMAP (H5FD_ummap_init())

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
