/* SPDX-License-Identifier: BSD-3-Clause */
/* Of MPI 4: the calls of MPI-IO that count in MPI_Count. */
#define COUNT MPI_Count
#define CALL(name) MPI_File_##name##_c
#define PCALL(name) PMPI_File_##name##_c
#include "window/buffers_calls.h"
