/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MAPREDUCE_STALE_H
#define MAPREDUCE_STALE_H

#include "mapreduce/record.h"

/*
 * Removes the files in the folder that belong to ranks beyond those of this job, and that no record
 * describes. One rank calls this, with its own record. It is an error if such a rank has
 * acknowledged work, or if another job uses its files: the ranks of this job open only files with
 * their own numbers, and would not notice.
 */
int stale_remove_files(const struct record *r, const char *folder, int ranks);

#endif
