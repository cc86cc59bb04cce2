/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The timeline of a job's output: if the variable UMMAP_TIMELINE names a file, programs and I/O
 * processes append a line to it for each commit, wait, write and flush, which `ummap timeline`
 * draws. Not for the fault path.
 */
#ifndef COMMON_TIMELINE_H
#define COMMON_TIMELINE_H

#include <stdint.h>

/* The present, for timeline_end; 0: no timeline is written. */
uint64_t timeline_begin(void);
/* Appends an event of this process from then on until now. role: "" or "io"; store: its name.
 * Does nothing if `began` is 0. */
void timeline_end(uint64_t began, const char *role, const char *event, uint64_t bytes,
		  const char *store);

#endif
