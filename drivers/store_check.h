/* SPDX-License-Identifier: BSD-3-Clause */
/* The check that drivers of files make before they open a store. It refuses a store if a part of
 * its contents is in another file: the log of wal+, or the file of changes of cow+ after an
 * interrupted commit. */
#ifndef DRIVERS_STORE_CHECK_H
#define DRIVERS_STORE_CHECK_H

#include "file.h"
#include "overlay/overlay.h"

/* Returns the check for file_open. If wal+ opens the store, it reads the log itself. */
static inline file_check *store_check(int oflags)
{
	return oflags & UMMAP_O_LOGGED ? overlay_check_store_cow : overlay_check_store;
}

#endif
