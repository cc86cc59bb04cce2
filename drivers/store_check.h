/* SPDX-License-Identifier: BSD-3-Clause */
/* The check of a store by the drivers of files before they open it: other files may have a part of
 * its contents. */
#ifndef DRIVERS_STORE_CHECK_H
#define DRIVERS_STORE_CHECK_H

#include "cow_file.h"
#include "file.h"
#include "wal_log.h"

static inline int check_log_and_changes(const char *path, struct ummap_geom *geom)
{
	int err = wal_check_store(path, geom);

	return err ? err : cow_check_store(path, geom);
}

/* The check for file_open. wal+ itself has the log. */
static inline file_check *store_check(int oflags)
{
	return oflags & UMMAP_O_LOGGED ? cow_check_store : check_log_and_changes;
}

#endif
