/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions: file mappings of the program that the library has taken. */
#ifndef UMRUN_REGION_H
#define UMRUN_REGION_H

#include "umrun/lease.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* The library's descriptors begin here, above those that programs expect. */
#define FD_FIRST 700

struct region {
	char *addr;
	size_t len;              /* length of the program's mapping, in whole pages */
	size_t library_len;      /* bytes of it that the library has; the kernel has the rest */
	int prot, flags;         /* arguments of mmap(2) */
	int fd;                  /* the library's own descriptor of the file */
	off_t off;               /* offset of addr in the file */
	dev_t dev;
	ino_t ino;
	bool writable;           /* stores go to the file */
	struct lease *lease;     /* lease of the file; NULL with --exclusive */
	bool has_zero_page;      /* a page of zeros follows, which the program has not replaced */
};

/* Number of regions, plus 1 for a heap (heap.h). Wrappers do nothing if it is 0. */
extern _Atomic unsigned region_count;
/* Number of regions, without the heap. */
extern _Atomic unsigned region_file_count;
/* Whether the kernel's own accesses to regions are served, so that system calls need no pins. */
extern _Atomic bool region_kernel_can_access;
/* Memory for system calls must be pinned from now on. */
void region_require_pins(void);

/* Lock the list for change, or for reading. */
void region_lock_write(void);
void region_lock_read(void);
void region_unlock(void);
/* Whether this thread holds the lock. Its calls are then not the program's. */
bool region_holds_lock(void);

/* ---- Searches that take the lock only if the list changes meanwhile ---- */

/* Whether a region has a byte of the range, or a file has a region. */
bool region_has_range(const void *addr, size_t len);
bool region_has_file(const struct stat *st);

/* ---- Functions whose caller holds the lock ---- */

/* The first region with a byte in [addr, addr + len), or NULL. */
struct region *region_find(const void *addr, size_t len);
/* The next region behind r with a byte in the range. */
struct region *region_find_next(const struct region *r, const void *addr, size_t len);
/* The next region of the file behind r, or the first one if r is NULL. */
struct region *region_find_of_file(const struct region *r, const struct stat *st);

/* ---- Functions whose caller holds the lock for change ---- */

/* Maps a file by the library, and returns the address. NULL: the kernel must map it. */
void *region_map(size_t len, int prot, int flags, int fd, off_t off);
/* Called before the kernel maps a file: hands the file's regions to the kernel if this mapping or
 * one of them is writable. Returns 0, or -1 with errno. */
int region_note_kernel_mapping(int prot, int flags, int fd);
/* Called before the kernel's mappings in a range get rights: likewise for their files. */
int region_note_kernel_rights(const void *addr, size_t len, int prot);
/* Called after the program has mapped a range, which replaces pages of zeros there. */
void region_forget_zeros(const void *addr, size_t len);
/* Replace a region by a mapping of the kernel at the same addresses: one region, all with a byte in
 * a range, or all of a file that reach beyond `end`. --verbose prints the reason, a clause without
 * a period. Return 0, or -1 with errno; then the region that failed has not changed. */
int region_hand_back(struct region *r, const char *reason);
int region_hand_back_range(const void *addr, size_t len, const char *reason);
int region_hand_back_file(const struct stat *st, off_t end, const char *reason);
/* Hand regions under a write lease to the kernel: those of all files, or of one. Errors are
 * reported. */
void region_hand_back_leased(void);
void region_hand_back_leased_file(const struct stat *st);
/* Hands regions to the kernel whose file the program is going to read (`writes`: or write) by
 * calls that are not intercepted. st NULL: regions of all files. Read-only regions stay if the
 * program only reads. */
void region_hand_back_stale(const struct stat *st, bool writes);
/* Ends a region as munmap(2) does: its stores are in the file. */
int region_unmap(struct region *r);

/* Registers the handlers of fork and of the program's end. */
void region_begin(void);
/* Whether this process has the regions; false in a child of vfork(2), which uses the memory of
 * its parent. */
bool region_is_own_process(void);
/* Called in a child of fork(2). */
void region_note_child(void);
/* Hands the regions whose leases are broken to the kernel. Returns false if one could not be
 * handed over, so that the caller must try again. Takes the lock. */
bool region_yield_broken(void);
/* Writes all stores to the files, where every process sees them. Returns false, after a message,
 * if some could not be written. */
bool region_write_all(void);
/* Called before exec: writes all stores, and keeps the record locks of the program. */
void region_before_exec(void);
/* Returns the exit status of the program: `status`, or EXIT_FAILURE in place of 0 if stores are
 * lost. */
int region_exit_status(int status);

#endif
