/* SPDX-License-Identifier: BSD-3-Clause */
/* Hints and variables of the MPI-IO cache. */
#ifndef IOCACHE_CONFIG_H
#define IOCACHE_CONFIG_H

#include "pmpi/error.h"

#include <limits.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#define CONFIG_PATH (MPI_MAX_INFO_VAL + 1)
#define CONFIG_AT_CLOSE 1000000 /* pmem_flush=close: the maximum of cache.dirty, in seconds */

struct config {
	bool wanted;             /* the file gets a cache */
	bool durable_write;      /* pmem_durable=write */
	bool populate;           /* pmem_populate */
	bool keep;               /* pmem_close=keep */
	int flush;               /* pmem_flush: seconds until dirty data is written back */
	uint64_t size;           /* pmem_size: bytes of a near file; 0: by the size of the part */
	uint64_t stripe;         /* pmem_stripe: bytes; 0: contiguous parts */
	char path[CONFIG_PATH];  /* pmem_path: the folder */
};

/* Collective: reads the hints. All ranks get the same values or an error. name: the file's. */
void config_agree(struct config *c, MPI_Info info, const char *name, MPI_Comm comm,
		  struct error *e);
/* The name without MPI's prefix for a file system: "/d/a" for "ufs:/d/a". The caller tries the
 * whole name first. */
const char *config_plain_name(const char *name);
/* Finds the folder of a file's cache in the hints and the environment, and checks nothing else. */
bool config_find_folder(MPI_Info info, const char *name, char path[CONFIG_PATH]);
/* Adds the values in use to info. */
void config_write(const struct config *c, MPI_Info info);

#endif
