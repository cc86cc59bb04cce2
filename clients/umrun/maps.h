/* SPDX-License-Identifier: BSD-3-Clause */
/* Which files the process has mapped, by whomever: what /proc/self/maps says. */
#ifndef UMRUN_MAPS_H
#define UMRUN_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Calls found(inode, whether stores go to the file, arg) for each file of which [addr, addr + len) has a byte, until it returns
 * other than 0, and returns that. Files are told by their inodes only: what stat says of a device is not always what is there.
 * -1: it cannot be known.
 */
int maps_each_file(const void *addr, size_t len, int (*found)(ino_t ino, bool shared, void *arg), void *arg);

#endif
