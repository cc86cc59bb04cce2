/* SPDX-License-Identifier: BSD-3-Clause */
/* other - a program that must not start: other.sh preloads the library for the other MPI. */
#include "common.h"

int main(int argc, char **argv)
{
	start_mpi(&argc, &argv, MPI_THREAD_SINGLE);
	MPI_Finalize();
	return 0;
}
