/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions, which are file mappings of the program that the library has taken, and the list of
 * them. */
#ifndef UMRUN_LIST_H
#define UMRUN_LIST_H

#include "umrun/file_set.h"

#include <stdatomic.h>
#include <stdint.h>

struct region {
	char *addr;
	size_t len;              /* length of the program's mapping, in whole pages */
	size_t library_len;      /* bytes of it that the library has; the kernel has the rest */
	int prot, flags;         /* arguments of mmap(2) */
	int fd;                  /* the library's own descriptor of the file */
	off_t off;               /* offset of addr in the file */
	struct file_id file;
	bool is_writable;        /* stores go to the file */
	bool is_private;         /* the first store makes it a mapping of the kernel */
	size_t first, last;      /* the program has unmapped what is not in [first, last) */
	bool shares_writes;      /* the program's description of the file allows writes */
	struct lease *lease;     /* lease of the file; NULL with --exclusive */
	int announced;           /* descriptor for other programs (announce.h); -1: none */
	bool is_copy;            /* other programs may share the memory (UMMAP_NODE) */
	bool has_zero_page;      /* a page of zeros follows, which the program has not replaced */
};

/* Number of regions, plus 1 for a heap (heap.h). Wrappers do nothing if it is 0. */
extern _Atomic unsigned region_count;
/* Number of regions, without the heap. */
extern _Atomic unsigned region_file_count;
/* Number of private regions. */
extern _Atomic unsigned region_private_count;
/* Whether the kernel's own accesses to regions are served, so that system calls need no pins. */
extern _Atomic bool region_kernel_can_access;

/* Lock the list for change, or for reading. */
void list_lock_write(void);
void list_lock_read(void);
void list_unlock(void);
/* Whether this thread holds the lock. Its calls are then not the program's. */
bool list_is_locked_here(void);
/* Makes the lock free in a forked child. */
void list_begin_child(void);

/* ---- Searches without the lock: whether a region has a byte of the range, or the file ---- */

bool list_has_range(const void *addr, size_t len);
bool list_has_file(struct file_id file);

/* ---- Functions whose caller holds the lock ---- */

/* The region with this number, by addresses from 0 on. NULL: there are fewer. A loop that removes
 * regions counts down from region_file_count. */
struct region *list_at(size_t i);
/* The first region with a byte in [addr, addr + len), or NULL; likewise the first one behind r. */
struct region *list_find(const void *addr, size_t len);
struct region *list_find_next(const struct region *r, const void *addr, size_t len);
/* The next region of the file behind r, or the first one if r is NULL. */
struct region *list_find_of_file(const struct region *r, struct file_id file);

/* ---- Functions whose caller holds the lock for change ---- */

/* Makes room for another region. Returns false if there is no memory. */
bool list_reserve(void);
void list_insert(struct region *r);
void list_remove(const struct region *r);

#endif
