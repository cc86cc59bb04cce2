/* SPDX-License-Identifier: BSD-3-Clause */
/* File descriptors of other processes, opened by way of /proc. */
#ifndef DESCRIPTOR_H
#define DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>

/* Plain bytes, which a process may send to others. */
struct descriptor {
	uint64_t device, inode;  /* the file */
	int32_t pid, fd;         /* a descriptor of it; fd -1: none */
};

/* Describes a descriptor of this process; false: it is not open. */
bool descriptor_describe(struct descriptor *d, int fd);
/* Opens the file to be read and written; -1: it cannot be opened, or is another file by now. */
int descriptor_open(const struct descriptor *d);

#endif
