/* SPDX-License-Identifier: BSD-3-Clause */
/* The drivers and flags with which the library opens a file. */
#ifndef UMRUN_OPEN_H
#define UMRUN_OPEN_H

#include <stdbool.h>

#include <ummap.h>

/*
 * Calls open(uri, attr, arg) for the file of a descriptor, with one driver after another, until it
 * returns 0: with UMMAP_KERNEL if the kernel's accesses can be served; otherwise with attr->flags,
 * and without them. `same`: the driver uses the descriptor's own description. Returns 0, or -1 with
 * errno.
 */
typedef int (*open_call)(const char *uri, struct ummap_attr *attr, void *arg);
int open_file(open_call open, int fd, bool same, struct ummap_attr *attr, void *arg);

#endif
