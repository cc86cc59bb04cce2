/* SPDX-License-Identifier: BSD-3-Clause */
/* small_fs.h - a small file system for all ranks. If it cannot be mounted, the test is skipped. */
#ifndef TESTS_MPI_SMALL_FS_H
#define TESTS_MPI_SMALL_FS_H

#include "../small_fs.h"

#include "common.h"

/* Mounts the file system at rank 0, and stores the path at which all ranks can access it. */
static inline void mount_small(int *root, char *path)
{
	int there = 0;

	if (rank == 0) {
		*root = small_file_system();
		there = *root >= 0;
		snprintf(path, 64, "/proc/%d/fd/%d", (int)getpid(), *root);
	}
	MPI_Bcast(&there, 1, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Bcast(path, 64, MPI_CHAR, 0, MPI_COMM_WORLD);
	if (there)
		return;
	if (rank == 0)
		printf("needs root, mkfs.ext4 and a loop device\n");
	fflush(stdout);
	MPI_Finalize();
	exit(77);
}

#endif
