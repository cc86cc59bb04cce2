/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the bytes of a rank's share lie in a file: one behind the other, or in stripes that the ranks have in turn. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include <stdint.h>

struct layout {
	uint64_t offset;       /* of the first byte, or of the first stripe, in the file */
	uint64_t stripe;       /* bytes; 0: all of the file is the share */
	uint32_t rank, ranks;  /* stripes rank, rank + ranks, ... are this share's */
};

/* Where byte off of the share is in the file; *run: how many follow there in a row, itself included. */
uint64_t layout_place(const struct layout *l, uint64_t off, uint64_t *run);
/* How many bytes of the share a file of so many has. */
uint64_t layout_size(const struct layout *l, uint64_t file);

#endif
