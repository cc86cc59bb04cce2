/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds sequential runs of faults, reads ahead of them and drops what lies behind. */
#ifndef READAHEAD_H
#define READAHEAD_H

#include "paging/mapping.h"

/* Segment i is about to be brought in: reads ahead if that continues a run, and waits for the rest of its cluster if that
 * should have been there; in a mapping that is read sequentially, what lies behind may go. */
void readahead_fault(struct mapping *map, size_t i);
/* What was read ahead has been asked for; or is let go of, and was not. */
void readahead_used(struct mapping *map);
void readahead_wasted(struct mapping *map);
/* There is too little memory beside what is read ahead: what was in use had to leave, and has come back from inactive. */
void readahead_pressed(struct mapping *map);
/* Loads [first, last) in the background, as far as there is room. */
void readahead_want(struct mapping *map, size_t first, size_t last);

#endif
