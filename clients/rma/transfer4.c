/* SPDX-License-Identifier: BSD-3-Clause */
/* For an MPI that has them: puts, gets and what else is noted, with large counts. */
#include "rma/transfer.h"

#include <stddef.h>

int MPI_Put_c(const void *from, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_count,
	      MPI_Datatype target_type, MPI_Win win)
{
	struct transfer t = { from, NULL, count, type, rank, disp, target_count, target_type };

	if (transfer_put(&t, win, NULL))
		return MPI_SUCCESS;
	return transfer_noted(PMPI_Put_c(from, count, type, rank, disp, target_count, target_type, win), rank, win);
}

int MPI_Get_c(void *to, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_count,
	      MPI_Datatype target_type, MPI_Win win)
{
	struct transfer t = { NULL, to, count, type, rank, disp, target_count, target_type };

	if (transfer_get(&t, win, NULL))
		return MPI_SUCCESS;
	return transfer_noted(PMPI_Get_c(to, count, type, rank, disp, target_count, target_type, win), rank, win);
}

int MPI_Rput_c(const void *from, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_count,
	       MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
{
	struct transfer t = { from, NULL, count, type, rank, disp, target_count, target_type };

	if (transfer_put(&t, win, request))
		return MPI_SUCCESS;
	return transfer_noted(PMPI_Rput_c(from, count, type, rank, disp, target_count, target_type, win, request), rank,
			      win);
}

int MPI_Rget_c(void *to, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_count,
	       MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
{
	struct transfer t = { NULL, to, count, type, rank, disp, target_count, target_type };

	if (transfer_get(&t, win, request))
		return MPI_SUCCESS;
	return transfer_noted(PMPI_Rget_c(to, count, type, rank, disp, target_count, target_type, win, request), rank,
			      win);
}

int MPI_Accumulate_c(const void *from, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint disp,
		     MPI_Count target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win)
{
	return transfer_noted(PMPI_Accumulate_c(from, count, type, rank, disp, target_count, target_type, op, win), rank,
			      win);
}

int MPI_Raccumulate_c(const void *from, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint disp,
		      MPI_Count target_count, MPI_Datatype target_type, MPI_Op op, MPI_Win win, MPI_Request *request)
{
	return transfer_noted(PMPI_Raccumulate_c(from, count, type, rank, disp, target_count, target_type, op, win,
						 request), rank, win);
}

int MPI_Get_accumulate_c(const void *from, MPI_Count count, MPI_Datatype type, void *to, MPI_Count to_count,
			 MPI_Datatype to_type, int rank, MPI_Aint disp, MPI_Count target_count, MPI_Datatype target_type,
			 MPI_Op op, MPI_Win win)
{
	return transfer_noted(PMPI_Get_accumulate_c(from, count, type, to, to_count, to_type, rank, disp, target_count,
						    target_type, op, win), rank, win);
}

int MPI_Rget_accumulate_c(const void *from, MPI_Count count, MPI_Datatype type, void *to, MPI_Count to_count,
			  MPI_Datatype to_type, int rank, MPI_Aint disp, MPI_Count target_count,
			  MPI_Datatype target_type, MPI_Op op, MPI_Win win, MPI_Request *request)
{
	return transfer_noted(PMPI_Rget_accumulate_c(from, count, type, to, to_count, to_type, rank, disp, target_count,
						     target_type, op, win, request), rank, win);
}
