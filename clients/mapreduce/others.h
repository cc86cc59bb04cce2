/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a job of more ranks has left in the folder for storage. The ranks of this one open files of their own numbers only, and
 * would not know of it.
 */
#ifndef MAPREDUCE_OTHERS_H
#define MAPREDUCE_OTHERS_H

#include "mapreduce/state.h"

/* For one rank. What others have acknowledged is an error, and so is a job that has their files; files that no record speaks of
 * go. s is this rank's state. */
int others_clear(const struct state *s, const char *folder, int ranks);

#endif
