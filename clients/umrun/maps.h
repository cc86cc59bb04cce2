/* SPDX-License-Identifier: BSD-3-Clause */
/* The files that the process has mapped (/proc/self/maps). */
#ifndef UMRUN_MAPS_H
#define UMRUN_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Calls found(inode, whether stores go to the file, arg) for each file with a byte in
 * [addr, addr + len), until it returns another value than 0, which is returned. -1: the mappings
 * cannot be read. Only inodes tell files apart: the devices in /proc/self/maps and of stat(2) can
 * differ.
 */
typedef int (*found_file)(ino_t ino, bool shared, void *arg);
int maps_each_file(const void *addr, size_t len, found_file found, void *arg);

#endif
