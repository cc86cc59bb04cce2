/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes of files that somebody has. */
#ifndef CLAIM_H
#define CLAIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes [from, to) of a file on a machine: no two areas may have the same. to 0: nothing that others could have. */
struct claim {
	uint64_t machine, dev, ino, from, to;
};

/* Bytes [from, from + size) of an open file. */
void claim_file(struct claim *claim, int fd, uint64_t from, size_t size);
/* The processes among which a process id means the same. Machines may be several to a kernel, as containers are: they share
 * files, but not these. */
uint64_t claim_processes(void);
/* Whether two claims have bytes in common. */
bool claim_overlaps(const struct claim *a, const struct claim *b);

#endif
