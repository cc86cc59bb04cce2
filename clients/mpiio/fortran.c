/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of commits and I/O ranks for Fortran: a program declares nothing but the integers. A
 * handle of a commit is an integer with the size of an address (c_intptr_t), and communicators and
 * windows are the integers of `use mpi`, or the component mpi_val of `use mpi_f08`.
 */
#include <stdlib.h>
#include <ummap-mpi.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void ummpi_io_split_(const MPI_Fint *comm, const MPI_Fint *k, MPI_Fint *compute,
			      MPI_Fint *code);
EXPORTED void ummpi_commit_begin_(const MPI_Fint *windows, const MPI_Fint *n, const MPI_Fint *comm,
				  struct ummpi_commit **commit, MPI_Fint *code);
EXPORTED void ummpi_commit_test_(struct ummpi_commit **commit, MPI_Fint *done, MPI_Fint *code);
EXPORTED void ummpi_commit_wait_(struct ummpi_commit **commit, MPI_Fint *code);

void ummpi_io_split_(const MPI_Fint *comm, const MPI_Fint *k, MPI_Fint *compute, MPI_Fint *code)
{
	MPI_Comm part;

	*code = ummpi_io_split(MPI_Comm_f2c(*comm), *k, &part);
	*compute = MPI_Comm_c2f(part);
}

void ummpi_commit_begin_(const MPI_Fint *windows, const MPI_Fint *n, const MPI_Fint *comm,
			 struct ummpi_commit **commit, MPI_Fint *code)
{
	MPI_Win *list = calloc((size_t)(*n > 0 ? *n : 1), sizeof(*list));

	if (!list) {
		*code = MPI_ERR_NO_MEM;
		return;
	}
	for (MPI_Fint i = 0; i < *n; i++)
		list[i] = MPI_Win_f2c(windows[i]);
	*code = ummpi_commit_begin(list, *n, MPI_Comm_f2c(*comm), commit);
	free(list);
}

void ummpi_commit_test_(struct ummpi_commit **commit, MPI_Fint *done, MPI_Fint *code)
{
	int ended = 0;

	*code = ummpi_commit_test(commit, &ended);
	*done = ended;
}

void ummpi_commit_wait_(struct ummpi_commit **commit, MPI_Fint *code)
{
	*code = ummpi_commit_wait(commit);
}
