/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver of a part: a node's bytes of a file, as the header of the part lists them. */
#ifndef IOCACHE_PART_H
#define IOCACHE_PART_H

#include "iocache/head.h"

#include <ummap-driver.h>

#define PART_URI_BYTES 8192

/*
 * Opens the part of an open header for writing, behind filters: a URI without path that names
 * cache+ and its near file. The header must remain open until the handle is closed. Returns 0, or
 * -1 with errno; umerrormsg() returns the message.
 */
int part_open_behind(const char *filters, struct head_file *head, struct ummap_driver *driver,
		     void **h, struct ummap_geom *geom);
/* Opens the part behind cache+ with this near file, and closes it, which writes dirty data to the
 * file. Returns 0 or a negative errno value. *opened: whether the failed call was the close. */
int part_flush_near(const char *near, struct head_file *head, bool *opened);

#endif
