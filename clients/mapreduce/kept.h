/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of the input that stay open when another one is read: mappings, which have in memory what a job that runs again reads
 * again. As many as this, for each takes address space, and an eighth of the descriptors that the process may have, for each
 * takes some, which windows and MPI need as well; files behind them are opened anew.
 */
#ifndef MAPREDUCE_KEPT_H
#define MAPREDUCE_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#define KEPT_MOST 256

struct infile;

struct kept {
	struct infile *files; /* in no order */
	unsigned count, room;
};

/* Moves it there and back: *s is closed afterwards, or else the file if it is not there. */
void kept_put(struct kept *k, struct infile *s);
bool kept_take(struct kept *k, uint64_t number, struct infile *s);
void kept_close(struct kept *k);

#endif
