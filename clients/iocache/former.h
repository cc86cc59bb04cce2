/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts that earlier jobs have left. */
#ifndef IOCACHE_FORMER_H
#define IOCACHE_FORMER_H

#include "iocache/open_file.h"

#define FORMER_PATH 4352

/* Collective: looks for parts of earlier jobs, and writes back those that this job cannot continue
 * with. *found: at owners, the header of the part. Returns whether all owners have one. */
bool former_find(struct cached *c, const struct head_facts *facts, struct head *found,
		 struct error *e);
/* Collective: writes back the parts of earlier jobs, and removes them. */
void former_flush(struct cached *c, struct error *e);
/* Collective: all ranks get the facts of the file from one rank. */
void former_look(struct cached *c, struct head_facts *facts, struct error *e);
/* Removes parts of a cache from a folder: those whose data the file has, and those of the file with
 * this inode (0: none). Parts that are in use are left. */
void former_remove(const char *name, const char *folder, uint64_t ino);
/* The path of a file of this rank's part, which has this suffix. */
void former_path(char path[static FORMER_PATH], const struct cached *c, const char *suffix);

#endif
