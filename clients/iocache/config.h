/* SPDX-License-Identifier: BSD-3-Clause */
/* What an MPI_Info and the environment say about a file's cache, checked. */
#ifndef FILE_CONFIG_H
#define FILE_CONFIG_H

#include "pmpi/error.h"

#include <limits.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#define CONFIG_PATH (MPI_MAX_INFO_VAL + 1)
#define CONFIG_AT_CLOSE 1000000        /* pmem_flush: the most that cache.dirty takes */

struct config {
	bool wanted;             /* the file is to have a cache */
	bool durable_write;      /* a write returns when it is durable */
	bool populate, keep, recover;
	int flush;               /* seconds after which what is dirty is written back */
	uint64_t size;           /* of a node's cache; 0: as the file is */
	uint64_t stripe;         /* 0: contiguous parts */
	char path[CONFIG_PATH];  /* the folder */
	char old[CONFIG_PATH];   /* another one with caches of an earlier job; "": none */
};

/* Collective: all ranks have the same, or all have an error. `name`: of the file. */
void config_agree(struct config *c, MPI_Info info, const char *name, MPI_Comm comm, struct error *e);
/* MPI's file systems by name: "ufs:/d/a" is /d/a, but where there is a file or a folder of that name. */
const char *config_plain_name(const char *name);
/* The folder for a file's cache, by the hint or by the environment, without a check of anything else. */
bool config_find_folder(MPI_Info info, const char *name, char path[CONFIG_PATH]);
/* Adds what is in use to info. */
void config_write(const struct config *c, MPI_Info info);

#endif
