/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The keys of the driver mpiio. The driver takes its list of keys and the types in its messages
 * from here; `ummap help settings` and ummap-settings(7) print the rows.
 *
 * KEY(name, type, default, meaning)
 */
#ifndef MPIIO_KEYS_H
#define MPIIO_KEYS_H

#define MPIIO_KEYS(KEY)                                                                            \
	KEY("offset", A_SIZE, "0", "First byte of the file, or of the first stripe.")              \
	KEY("stripe", A_SIZE " of at least 1", "none", "Size of a stripe.")                        \
	KEY("rank", "a number less than ranks", "0",                                               \
	    "Stripes of the mapping: rank, rank + ranks ...")                                      \
	KEY("ranks", "a number", "1", "Number of mappings that the stripes are divided among.")    \
	KEY("hints", "hints for MPI-IO (NAME=VALUE;NAME=VALUE)", "none",                           \
	    "Hints passed to MPI_File_open.")

#define KEY_NAME(name, type, default, meaning) name " "

#endif
