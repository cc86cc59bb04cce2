/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finding and joining a node copy (table.h). A file in /dev/shm, named after the key of the store,
 * has the holders: the processes that map the copy, each with a descriptor of its memory. The
 * memory itself has no name: another process opens it through /proc, and the kernel frees it with
 * the last holder, however that process ends. Only processes of one user and one memory group find
 * one another, and all holders are in one PID namespace, by whose numbers they find the memory.
 */
#ifndef NODECOPY_H
#define NODECOPY_H

#include "nodecopy/table.h"

#define NODECOPY_PATH_LEN 128
/* Processes, or mappings, that one copy may have. */
#define NODECOPY_HOLDERS 1024

struct nodecopy {
	struct nodecopy_view view;
	struct directory *directory;   /* the file of holders */
	int control;                   /* its descriptor, with the lock of this holder */
	int memory;                    /* descriptor of the table and the segments */
	unsigned holder;               /* number of this holder */
	char path[NODECOPY_PATH_LEN];
};

/*
 * Joins the copy of a store, or begins it.
 *
 * key       text that is the same for the same bytes only: store, version, offset, sizes
 * segments  number of segments
 * seg_size  bytes of each
 * most      bytes that the copy may ever have in memory, if this process begins it
 *
 * Returns 0, or -errno with a sentence. -EXDEV: processes of another PID namespace have the copy.
 */
int nodecopy_join(struct nodecopy *copy, const char *key, uint64_t segments, size_t seg_size,
		  size_t most);
/* The number of its holders, this one included; and the bytes of its memory. */
unsigned nodecopy_holders(const struct nodecopy *copy);
size_t nodecopy_bytes(const struct nodecopy *copy);
/* Sets the bytes of memory that this process gives the copy. The budget of the copy is the sum of
 * what its holders give, and at least NODECOPY_MIN_SLOTS segments. */
void nodecopy_give(struct nodecopy *copy, size_t bytes);
/* Leaves a copy; the last holder removes the file. The memory must not be mapped any more. */
void nodecopy_leave(struct nodecopy *copy);
/* Removes the files of copies whose holders were all killed. */
void nodecopy_sweep(void);
/* In a forked child: closes the descriptors, which belong to the parent's holder. */
void nodecopy_forget(struct nodecopy *copy);

#endif
