/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of the mappings that the library takes. */
#ifndef UMRUN_CHOICE_H
#define UMRUN_CHOICE_H

#include "umrun/list.h"

#include <stdio.h>

/* Whether the program has begun asynchronous I/O, or has opened the memory of a process
 * (/proc/PID/mem). Regions would miss these transfers. */
extern _Atomic bool choice_has_async, choice_has_memory;

/* Records a stream of the C library, which makes system calls inside it, or its end. */
void choice_note_stream(FILE *stream, struct file_id file, bool is_writable);
void choice_forget_stream(FILE *stream);

/* ---- Functions whose caller holds the lock of the list for change ---- */

/* Whether a mapping of these rights may be a region; a count of the others is kept for the
 * report. */
bool choice_is_region(size_t library_len, int prot, int flags, int fd, struct file_id file);
/* Records that the kernel has a writable mapping of the file. Returns 0, or -1 with errno. */
int choice_note_kernel_file(struct file_id file);

/* ---- The mappings of the process ---- */

/*
 * Calls found(inode, whether stores go to the file, arg) for each file with a byte in
 * [addr, addr + len), until it returns another value than 0, which is returned. -1: the mappings
 * cannot be read. Only inodes tell files apart: the devices in /proc/self/maps and of stat(2) can
 * differ.
 */
typedef int (*found_file)(ino_t ino, bool shared, void *arg);
int maps_each_file(const void *addr, size_t len, found_file found, void *arg);

#endif
