/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions: file mappings of the program that are mappings of the library. */
#ifndef UMRUN_REGION_H
#define UMRUN_REGION_H

#include "umrun/lease.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Our descriptors are out of the way of those that a program expects. */
#define FD_FIRST 700

struct region {
	char *addr;
	size_t len;              /* the program's, whole pages */
	size_t ours;             /* ... of which the library has these; what lies behind the file's end is the kernel's */
	int prot, flags;         /* as for mmap */
	int fd;                  /* of the file, our own */
	off_t off;               /* of addr in the file */
	dev_t dev;
	ino_t ino;
	bool writable;           /* stores go to the file */
	struct lease *lease;     /* NULL with --exclusive */
	bool zeros;              /* the page behind len is ours, too */
};

/* How many there are, and a heap (heap.h): where there are none, nothing has to be looked for. */
extern _Atomic unsigned region_count;
/* Without the heap. */
extern _Atomic unsigned region_files;
/* Whether system calls may be given addresses of regions as they are. */
extern _Atomic bool region_kernel;
/* They may not, from now on. */
void region_pins(void);

/* The list is changed, or must not change meanwhile. */
void region_lock_change(void);
void region_lock_look(void);
void region_unlock(void);
/* By this thread, whose calls are not the program's then. */
bool region_is_locked(void);

/* ---- Searches, which take the lock only if the list changes meanwhile. ---- */

/* Whether a region has a byte of the range, or a file has a region. */
bool region_has_range(const void *addr, size_t len);
bool region_has_file(const struct stat *st);

/* ---- With the list locked. ---- */

/* The first region of which [addr, addr + len) has a byte; NULL: none. */
struct region *region_at(const void *addr, size_t len);
/* The next one, after r or from the beginning, which need not be the next address. */
struct region *region_next(const struct region *r, const void *addr, size_t len);
/* The next region, after r or from the beginning, of the file. */
struct region *region_of_file(const struct region *r, const struct stat *st);

/* ---- With the list locked to be changed. ---- */

/* Maps the file, if the rules allow it: its address; NULL: it is to be left to the kernel. */
void *region_map(size_t len, int prot, int flags, int fd, off_t off);
/* A mapping of the file is made by the kernel: where one of them can be stored to, all have to be. 0 or -1 with errno. */
int region_share(int prot, int flags, int fd);
/* Mappings of the kernel's get rights: likewise, for the files that are mapped there. */
int region_share_range(const void *addr, size_t len, int prot);
/* The program maps something there: a page of zeros there was no region's any more. */
void region_forget_zeros(const void *addr, size_t len);
/* Replace a region by a mapping of the kernel at the same addresses: one region, all with a byte in a
 * range, or all of a file that reach beyond `end`. --verbose prints the reason, a clause without a
 * period. Return 0, or -1 with errno; then the region that failed has not changed. */
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
/* Ends it, as munmap does: what was stored is in the file. */
int region_end(struct region *r);

/* Begins to watch forks and the end. */
void region_start(void);
/* Whether this process has the regions; false in a child of vfork(2), which uses the memory of
 * its parent. */
bool region_is_own_process(void);
/* In a child of fork(2). */
void region_note_child(void);
/* Hands the regions whose leases are broken to the kernel. Returns false if one could not be
 * handed over, so that the caller must try again. Takes the lock. */
bool region_yield_broken(void);
/* Writes all stores to the files, where every process sees them. Returns false, after a message,
 * if some could not be written. */
bool region_write_all(void);
/* Called before exec: writes all stores (region_write_all), and keeps the program's record locks. */
void region_before_exec(void);
/* Returns the exit status of the program: `status`, or EXIT_FAILURE in place of 0 if stores are
 * lost. */
int region_exit_status(int status);

#endif
