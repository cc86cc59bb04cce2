/* SPDX-License-Identifier: BSD-3-Clause */
/* Files, by their device and inode, and sets of them. */
#ifndef UMRUN_FILE_SET_H
#define UMRUN_FILE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct file_id {
	dev_t dev;
	ino_t ino;
};

static inline bool is_same_file(struct file_id a, struct file_id b)
{
	return a.ino == b.ino && a.dev == b.dev;
}

/* Whether the descriptor is a regular file, which is stored in *file. Keeps errno. */
bool file_of(int fd, struct file_id *file);
/* Whether the description of a descriptor allows writes. */
bool is_open_for_writing(int fd);

/* The memory of a set comes from the kernel: malloc's locks may be held before a fork. The caller
 * must hold a lock. */
struct file_set {
	struct file_id *files;
	size_t count, room;
};

bool file_set_has(const struct file_set *set, struct file_id file);
/* Adds a file. Returns -1 with errno ENOMEM if there is no memory. */
int file_set_add(struct file_set *set, struct file_id file);

#endif
